"""The format ``sparkjet-state``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkjet.connectors.format import SourceFormat
from sparkjet.options import number, text

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSource

SOURCE_NAME = "sparkjet-state"
PATH = text("path", "The home of the query, as its checkpointLocation; load(…) takes it too.")
OPERATOR_ID = text("operatorId", "Name of the operator, as sparkjet state lists them; the only one by default.")
PIN = text("pin", "Name of the pinned record to read; the newest one by default.")
EPOCH = number("epoch", "The epoch to read: the newest by default, or one that is pinned.")
JOIN_SIDE = text("joinSide", "left or right: only these rows of a join, with their own columns; both by default.")
OPTIONS = (PATH, OPERATOR_ID, PIN, EPOCH, JOIN_SIDE)
"""Options of ``format("sparkjet-state")``."""


def _source() -> type[DataSource]:
    from sparkjet.connectors.state.data_source import StateDataSource  # noqa: PLC0415 - needs pyarrow

    return StateDataSource


SOURCE = SourceFormat(SOURCE_NAME, _source, OPTIONS, {"pyarrow": "pyarrow"}, None)
