"""The Iceberg sink: files by Spark's writer, commits by Iceberg's own library, after the decision."""
