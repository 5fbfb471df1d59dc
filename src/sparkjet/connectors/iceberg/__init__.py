"""Iceberg tables (extra ``iceberg``): files by Spark's writer, commits by Iceberg's library, after the decision."""
