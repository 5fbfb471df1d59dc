"""The grid: member processes that keep snapshots in replicated memory, and their clients; without sparkjet and Spark."""
