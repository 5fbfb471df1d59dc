"""Files that survive a crash: durable writes, and checks of what executors have written."""
