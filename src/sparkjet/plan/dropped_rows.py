"""Dropped rows: those that a window does not count, with the reason."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from sparkjet.catalyst.columns import HIDDEN, KEPT, SUBSTREAM, TIME
from sparkjet.catalyst.constants import older
from sparkjet.errors import AnalysisError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

DROPPED = "_sparkjet_dropped"
"""The :class:`DropReason` of a row, null for a row that is accepted."""
ADDED_COLUMNS = ("_substream", "_watermark", "_reason")
"""What a dropped row is delivered with."""


class DropReason(Enum):
    """Why a window does not count a row: what ``_reason`` says of it."""

    LATE = "late"
    """The first window of the row's frame had closed before the epoch began; with session windows, the row was older
    than the watermark."""
    NULL_TIMESTAMP = "null_timestamp"
    """The row has no event time."""


def judged(rows: DataFrame, judged_by: int | None, *, timed: bool) -> DataFrame:
    """Rows that have gone through the user's transformations, with the reason for dropping them, if any."""
    if not timed:
        return rows.withColumn(DROPPED, F.lit(None).cast("string"))
    reason = F.when(F.col(TIME).isNull(), DropReason.NULL_TIMESTAMP.value)
    return rows.withColumn(DROPPED, reason.when(older(TIME, judged_by), DropReason.LATE.value))


def dropped_rows(judged_rows: DataFrame, watermark: int | None) -> DataFrame:
    """The dropped rows as they came, with substream, the watermark that judged them, and the reason."""
    judged_by = F.lit(None).cast("timestamp") if watermark is None else F.timestamp_micros(F.lit(watermark))
    added = zip(ADDED_COLUMNS, (F.col(SUBSTREAM), judged_by, F.col(DROPPED)), strict=True)
    return judged_rows.where(F.col(KEPT) & F.col(DROPPED).isNotNull()).withColumns(dict(added)).drop(DROPPED, *HIDDEN)


def dropped_shape(shape: DataFrame) -> DataFrame:
    """A DataFrame with the schema of the dropped rows of ``shape``, for analysis only."""
    taken = [name for name in shape.columns if name in ADDED_COLUMNS]
    if taken:
        message = f"late rows: the column {taken[0]!r} exists already and is added to late rows. Rename yours."
        raise AnalysisError(message)
    return dropped_rows(shape.withColumns({DROPPED: F.lit(DropReason.LATE.value), KEPT: F.lit(True)}), None)
