"""Files that survive a crash: durable writes, and checks of the files that executors have written."""
