"""The grid: processes that keep maps, journals and snapshots in replicated memory, and their clients; without Spark."""
