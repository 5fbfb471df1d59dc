"""The doors into Spark's JVM: columns, constants, and the analysis of a user's plan."""
