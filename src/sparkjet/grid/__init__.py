"""The grid: member processes that keep snapshots in replicated memory, outside of Spark."""
