"""The JDBC sink: any database that has transactions and a driver for Java."""
