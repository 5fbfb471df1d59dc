"""Directories on POSIX file systems and Hadoop's: durable writes, and checks of the files executors have written."""
