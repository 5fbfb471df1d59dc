"""The state that operators keep between epochs: DataFrames in log-structured segments, and rows looked up by key."""

from sparkjet.state.keyed_rows import DELETED, KEY_HASH, NEVER
from sparkjet.state.keyed_store import KeyedStore
from sparkjet.state.operator import KeyedOperator, OneSided, Operator, Side, TimedOperator, UpgradableOperator
from sparkjet.state.segments import Segment, SegmentStatistics

__all__ = [
    "DELETED",
    "KEY_HASH",
    "NEVER",
    "KeyedOperator",
    "KeyedStore",
    "OneSided",
    "Operator",
    "Segment",
    "SegmentStatistics",
    "Side",
    "TimedOperator",
    "UpgradableOperator",
]
