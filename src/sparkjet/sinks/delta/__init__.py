"""The Delta sink: files by Spark's writer, commits by Delta Kernel, after the decision."""
