"""Options of ``format("sparkjet-state")``."""

from __future__ import annotations

from sparkjet.options import number, text

SOURCE_NAME = "sparkjet-state"
"""The name of the source."""
PATH = text("path", "The home of the query, as its checkpointLocation; load(…) takes it too.")
OPERATOR_ID = text("operatorId", "Name of the operator, as sparkjet state lists them; the only one by default.")
PIN = text("pin", "Name of the pinned record to read; the newest one by default.")
EPOCH = number("epoch", "The epoch to read: the newest by default, or one that is pinned.")
JOIN_SIDE = text("joinSide", "left or right: only these rows of a join, with their own columns; both by default.")
SOURCE_OPTIONS = (PATH, OPERATOR_ID, PIN, EPOCH, JOIN_SIDE)
