"""Calls of a user's StatefulProcessor, key by key: rows, then the timers that have expired.

Runs in Spark's Python workers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.streaming.stateful_processor import ExpiredTimerInfo, StatefulProcessor, TimerValues
from pyspark.sql.types import StructType

from sparkjet.stateful.functions.frames import Frames, ReturnedFrames
from sparkjet.stateful.functions.groups import Group
from sparkjet.stateful.functions.handle import EVENT_TIME, NONE, EpochTimes, Handle, seen
from sparkjet.stateful.functions.rows import ReturnedRows, Rows


class ProcessorCalls:
    """``transformWithState`` and ``transformWithStateInPandas``.

    Args:
        processor: The user's processor, not initialized.
        time_mode: One of :data:`sparkjet.stateful.functions.handle.TIME_MODES`.
        schemas: Schemas by their text, as given in ``init``.
        variables: Names of the declared variables, as they are stored.
        rows: Makes the rows that the user gets.
        returned: Reads the rows that the user returns.
        initial: Makes the initial state that the user gets, None if there is none.
    """

    def __init__(
        self,
        processor: StatefulProcessor,
        time_mode: str,
        schemas: dict[str, StructType],
        variables: Sequence[str],
        rows: Frames | Rows,
        returned: ReturnedFrames | ReturnedRows,
        initial: Frames | Rows | None = None,
    ) -> None:
        self.rows, self.returned, self.initial = rows, returned, initial
        self._processor = processor
        self._mode = time_mode
        self._variables = list(variables)
        self._handle = Handle(time_mode, schemas)
        self._before = self._after = TimerValues()
        self._until: int | None = None
        self._method = "init"

    @property
    def where(self) -> str:
        """The method that is being called."""
        return f"{type(self._processor).__name__}.{self._method}"

    def start(self, times: EpochTimes) -> None:
        """Prepare for the keys of a task."""
        self._method = "init"
        self._processor.init(self._handle)
        if list(self._handle.variables) != self._variables:
            found = list(self._handle.variables)
            raise ValueError(f"init() declared {self._variables} when the query started, and {found} now")
        self._handle.start(times)
        if self._mode != NONE:
            watermarks = seen(times.before), seen(times.watermark)
            self._before, self._after = (TimerValues(times.now, watermark) for watermark in watermarks)
            self._until = times.watermark if self._mode == EVENT_TIME else times.now

    def keys(self, columns: Sequence[pa.Array]) -> list[tuple[Any, ...]]:
        """Keys as the user gets them."""
        if isinstance(self.rows, Rows):
            return list(zip(*(column.to_pylist() for column in columns), strict=True))
        return list(zip(*(_scalars(column) for column in columns), strict=True))

    def read(self, stored: pa.Array) -> list[tuple[Any, ...]]:
        """The stored state of some keys."""
        variables = self._handle.variables.values()
        columns = [each.read(stored.field(f"state{i}")) for i, each in enumerate(variables)]
        return list(zip(*columns, stored.field("timers").to_pylist(), strict=True))

    def write(self, kept: Sequence[tuple[Any, ...] | None]) -> list[pa.Array]:
        """Columns with the state of some keys; None is a key without state."""
        empty = (None,) * (len(self._variables) + 1)
        *columns, timers = list(zip(*(empty if each is None else each for each in kept), strict=True)) or [()] * len(
            empty
        )
        states = zip(self._handle.variables.values(), columns, strict=True)
        return [*(variable.write(column) for variable, column in states), pa.array(timers, pa.list_(pa.int64()))]

    def call(self, group: Group) -> Iterator[Any]:
        """The user's output for a key: for initial state, then for rows if there are any, then for timers."""
        key = group.key
        self._handle.open(group.stored)
        self._method = "handleInitialState"
        for each in group.initial():
            self._processor.handleInitialState(key, each, self._before)
        rows = group.inputs()
        if rows is not None:
            self._method = "handleInputRows"
            yield from self._processor.handleInputRows(key, rows, self._before)
        if self._until is not None:
            self._method = "handleExpiredTimer"
            for timer in self._handle.expired(self._until):
                yield from self._processor.handleExpiredTimer(key, self._after, ExpiredTimerInfo(timer))
                self._handle.deleteTimer(timer)

    def kept(self) -> tuple[bool, tuple[Any, ...] | None, int | None]:
        """The outcome for the last key: whether its state changed, the state, and the millisecond it is due at."""
        due = self._handle.due()
        if due is not None and self._until is not None:
            # A timer that another timer has registered for the past belongs to the next epoch.
            due = max(due, self._until + 1)
        return self._handle.changed, self._handle.stored(), due

    def close(self) -> None:
        """Called after the last key."""
        self._method = "close"
        self._processor.close()


def _scalars(column: pa.Array) -> list[Any]:
    """Keys as Spark's ``transformWithStateInPandas`` passes them: pandas timestamps, otherwise Python types."""
    if pa.types.is_timestamp(column.type):
        naive = column if column.type.tz is None else pc.local_timestamp(column)
        return naive.to_pandas().tolist()  # type: ignore[no-any-return]
    return column.to_pylist()  # type: ignore[no-any-return]
