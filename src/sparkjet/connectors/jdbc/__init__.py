"""SQL databases with transactions and a JDBC driver."""
