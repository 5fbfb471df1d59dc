"""Snapshot stores: where the record log and the state of a query are kept."""

from sparkjet.snapshots.directory import DirectoryStore
from sparkjet.snapshots.store import Delta, SnapshotStore

__all__ = ["Delta", "DirectoryStore", "SnapshotStore"]
