"""Calls of a user's ``applyInPandasWithState`` function, group by group: rows, then the timeout.

Runs in Spark's Python workers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout
from pyspark.sql.types import StructType

from sparkjet.stateful.functions.frames import Frames, OutputError, ReturnedFrames, pandas_keys
from sparkjet.stateful.functions.groups import Group
from sparkjet.stateful.functions.handle import EpochTimes, seen
from sparkjet.stateful.functions.values import StateValues

Function = Callable[[tuple[Any, ...], Iterator[pd.DataFrame], GroupState], Iterable[pd.DataFrame]]


class GroupStateCalls:
    """``applyInPandasWithState``; stores the state's tuple and the timeout of each group, either of which may be None.

    Args:
        function: The user's function.
        timeout: One of ``GroupStateTimeout``.
        state: Schema of the state.
        rows: Makes the rows that the user gets.
        keys: Makes the keys that the user gets.
        returned: Reads the rows that the user returns.
        watermark: Whether the stream has one.
    """

    def __init__(
        self,
        function: Function,
        timeout: str,
        state: StructType,
        rows: Frames,
        keys: Frames,
        returned: ReturnedFrames,
        *,
        watermark: bool,
    ) -> None:
        self.where = f"applyInPandasWithState({getattr(function, '__name__', type(function).__name__)})"
        self.rows, self.returned = rows, returned
        self.initial: Frames | None = None
        self._function = function
        self._timeout = timeout
        self._keys = keys
        self._watermark = watermark
        self._values = StateValues(state)
        self._times = EpochTimes(0, 0, 0)
        self._kept: tuple[bool, tuple[Any, ...] | None, int | None] = (False, None, None)

    def start(self, times: EpochTimes) -> None:
        """Prepare for the keys of a task."""
        self._times = times

    def keys(self, columns: Sequence[pa.Array]) -> list[tuple[Any, ...]]:
        """Keys as the user gets them."""
        return pandas_keys(columns, self._keys)

    def read(self, stored: pa.Array) -> list[tuple[Any, ...]]:
        """The stored state of some groups."""
        return list(zip(self._values.read(stored.field("state")), stored.field("timeout").to_pylist(), strict=True))

    def write(self, kept: Sequence[tuple[Any, ...] | None]) -> list[pa.Array]:
        """Columns with the state of some groups; None is a group without state."""
        states, timeouts = zip(*((None, None) if each is None else each for each in kept), strict=True)
        normalized = [None if each is None else self._values.normalized(each) for each in states]
        return [self._values.write(normalized), pa.array(timeouts, pa.int64())]

    def call(self, group: Group) -> Iterator[pd.DataFrame]:
        """The user's output for a group: for its rows if there are any, then for the timeout if it has passed."""
        key, rows = group.key, group.inputs()
        value, timeout = group.stored or (None, None)
        if rows is not None:
            state = self._state(value, self._times.before, timed_out=False)
            yield from self._called(key, rows, state)
            value, timeout = _of(state)
        if timeout is not None and self._has_passed(timeout):
            state = self._state(value, self._times.watermark, timed_out=True)
            yield from self._called(key, iter([self.rows.empty()]), state)
            value, timeout = _of(state)
        now = None if value is None and timeout is None else (value, timeout)
        # Strictly after it, as in Spark.
        self._kept = now != group.stored, now, None if timeout is None else timeout + 1

    def kept(self) -> tuple[bool, tuple[Any, ...] | None, int | None]:
        """The outcome for the last group: whether its state changed, the state, and the millisecond it is due at."""
        return self._kept

    def close(self) -> None:
        """Called after the last group."""

    def _called(self, key: tuple[Any, ...], rows: Iterator[pd.DataFrame], state: GroupState) -> Iterable[pd.DataFrame]:
        returned: Any = self._function(key, rows, state)
        if isinstance(returned, pd.DataFrame) or not isinstance(returned, Iterable):
            raise OutputError(f"it returned {type(returned).__name__}, not an iterator of pandas.DataFrame")
        return returned

    def _state(self, value: tuple[Any, ...] | None, watermark: int, *, timed_out: bool) -> GroupState:
        return GroupState(
            optionalValue=value,  # type: ignore[arg-type]
            batchProcessingTimeMs=self._times.now,
            eventTimeWatermarkMs=seen(watermark),
            timeoutConf=self._timeout,
            hasTimedOut=timed_out,
            watermarkPresent=self._watermark,
            defined=value is not None,
            updated=False,
            removed=False,
            # As in Spark: each call of the function starts without a timeout.
            timeoutTimestamp=GroupState.NO_TIMESTAMP,
            keyAsUnsafe=b"",
            valueSchema=self._values.schema,
        )

    def _has_passed(self, timeout: int) -> bool:
        by_clock = self._timeout == GroupStateTimeout.ProcessingTimeTimeout
        return timeout < (self._times.now if by_clock else self._times.watermark)


def _of(state: GroupState) -> tuple[tuple[Any, ...] | None, int | None]:
    timeout = int(state._timeout_timestamp)  # noqa: SLF001 - Spark's operator asks for it by json(), for the JVM
    return state.getOption, None if timeout == GroupState.NO_TIMESTAMP else timeout
