"""Delta tables (extra ``delta``): files by Spark's writer, commits by Delta Kernel, after the decision."""
