"""Dropped rows: the rows that a window does not count, with the reason, and how late the late ones are."""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from sparkjet.catalyst.columns import HIDDEN, KEPT, SUBSTREAM, TIME
from sparkjet.catalyst.constants import constant, older
from sparkjet.errors import AnalysisError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

DROPPED = "_sparkjet_dropped"
"""The :class:`RowKind` of a dropped row, including how late a late one is; null if the row is accepted."""
ADDED_COLUMNS = ("_substream", "_watermark", "_reason")
"""Columns that are added to a dropped row."""


class RowKind(IntEnum):
    """The fate of a row of a batch."""

    ACCEPTED = 0
    PROGRESS_ONLY = 1
    """It only shows how far its substream has come."""
    NULL_TIMESTAMP = 2
    LATE = 3
    """This and all values above: each higher value is one step later (:func:`lateness_of`)."""


class DropReason(Enum):
    """Why a window does not count a row; the value of ``_reason``."""

    LATE = "late"
    """The first window of the row's frame had closed before the epoch began.

    With session windows: the row was older than the watermark.
    """
    SHED = "shed"
    """The row would have been in time, but its windows were closed early, as the state had reached its limit."""
    NULL_TIMESTAMP = "null_timestamp"
    """The row has no event time."""


_LATEST = 10**16
"""Rows more than about three centuries late count as this late: no arithmetic on times must overflow."""
_LAG = "_sparkjet_lag"
"""How far back the watermark would have to be for a late row to be in time; null for others."""
_LEAST = 3
"""The smallest step of lateness, a millisecond, as a power of ten in microseconds."""


def judged(
    rows: DataFrame, judged_by: int | None, beyond: int | None = None, step: int = 1, *, timed: bool
) -> DataFrame:
    """Rows after the user's transformations, with the reason for dropping them, if any.

    Args:
        rows: The rows.
        judged_by: The time below which a row is late; None if no row is.
        beyond: How far the watermark is beyond that time, at least 1, including the time that is not reached yet.
        step: The distance between times by which rows can be judged: between the ends of windows.
        timed: Whether rows without an event time are dropped.
    """
    if not timed:
        return rows.withColumn(DROPPED, F.lit(None).cast("int"))
    no_time = F.when(F.col(TIME).isNull(), RowKind.NULL_TIMESTAMP.value)
    if judged_by is None:
        return rows.withColumn(DROPPED, no_time)
    low = constant(earliest(judged_by), TIME)
    steps = f"({_LATEST}L - (greatest({TIME}, {low}) - {low})) div {step}L * {step}L"
    lag = F.expr(f"{steps} + {constant(1 if beyond is None else beyond, TIME)}")
    # A value one below the next power of ten may get its exponent: it is rounded up to that power in any case.
    exponent = f"greatest(cast(log10({_LAG}) as int), {_LEAST})"
    unit = f"cast(pow(10, {exponent}) as bigint)"
    kind = f"cast({RowKind.LATE.value} + ({exponent} - {_LEAST}) * 9 + ({_LAG} + {unit} - 1) div {unit} as int)"
    dropped = no_time.when(F.col(_LAG).isNotNull(), F.expr(kind))
    # In two steps: Spark would compute the lag again wherever the kind uses it.
    return rows.withColumn(_LAG, F.when(older(TIME, judged_by), lag)).withColumn(DROPPED, dropped).drop(_LAG)


def earliest(judged_by: int) -> int:
    """The time before which rows count as equally late; a constant of :func:`judged`."""
    return judged_by - 1 - _LATEST


def lateness_of(kind: int) -> int:
    """The lateness that a kind of late rows stands for: microseconds, rounded up to one digit and a millisecond.

    >>> [lateness_of(RowKind.LATE + step) for step in (1, 9, 10, 11)]
    [1000, 9000, 10000, 20000]
    """
    exponent, digit = divmod(kind - RowKind.LATE - 1, 9)
    lateness: int = (digit + 1) * 10 ** (exponent + _LEAST)
    return lateness


def dropped_rows(judged_rows: DataFrame, watermark: int | None, shed_from: int | None = None) -> DataFrame:
    """The dropped rows as they arrived, with the substream, the watermark that judged them, and the reason.

    Those from ``shed_from`` on are late only as their windows were closed early; None if none are.
    """
    judged_by = F.lit(None).cast("timestamp") if watermark is None else F.timestamp_micros(F.lit(watermark))
    no_time = F.col(DROPPED) == RowKind.NULL_TIMESTAMP.value
    reason = F.when(no_time, DropReason.NULL_TIMESTAMP.value)
    if shed_from is not None:
        reason = reason.when(F.col(TIME) >= F.lit(shed_from), DropReason.SHED.value)
    reason = reason.otherwise(DropReason.LATE.value)
    added = zip(ADDED_COLUMNS, (F.col(SUBSTREAM), judged_by, reason), strict=True)
    return judged_rows.where(F.col(KEPT) & F.col(DROPPED).isNotNull()).withColumns(dict(added)).drop(DROPPED, *HIDDEN)


def dropped_shape(shape: DataFrame) -> DataFrame:
    """A DataFrame with the schema of the dropped rows of ``shape``, for analysis only."""
    taken = [name for name in shape.columns if name in ADDED_COLUMNS]
    if taken:
        message = f"late rows: the column {taken[0]!r} exists already and is added to late rows. Rename yours."
        raise AnalysisError(message)
    return dropped_rows(shape.withColumns({DROPPED: F.lit(RowKind.LATE.value), KEPT: F.lit(True)}), None)
