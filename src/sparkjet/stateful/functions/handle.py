"""The handle of a stateful processor: the variables and timers of the current key.

Runs in Spark's Python workers, and on the driver to find out what a processor declares.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql.streaming.stateful_processor import ListState, MapState, StatefulProcessorHandle, ValueState
from pyspark.sql.types import StructType

from sparkjet.stateful.functions.variables import StoredList, StoredMap, StoredValue, Variable

NONE, PROCESSING_TIME, EVENT_TIME = "none", "processingtime", "eventtime"
TIME_MODES = {NONE: "None", PROCESSING_TIME: "ProcessingTime", EVENT_TIME: "EventTime"}
"""Spark's time modes by their names in lower case: Spark accepts them in any case."""


class HandleError(Exception):
    """A call on the handle that Spark would refuse too."""


NO_WATERMARK = -(2**63) // 1_000
"""The watermark until there is one."""


@dataclass(frozen=True)
class EpochTimes:
    """The times of an epoch, in milliseconds.

    Attributes:
        now: The epoch's processing time.
        before: The watermark that its rows were judged by.
        watermark: The watermark after them, by which timers expire.
    """

    now: int
    before: int
    watermark: int


def seen(watermark: int) -> int:
    """A watermark as functions see it: Spark's is 1970 until there is one."""
    return 0 if watermark == NO_WATERMARK else watermark


class Handle(StatefulProcessorHandle):
    """Spark's handle, over the state of one key at a time.

    Args:
        time_mode: One of :data:`TIME_MODES`.
        schemas: Schemas by their text; only the driver can parse them.
    """

    def __init__(self, time_mode: str, schemas: Mapping[str, StructType]) -> None:
        self._mode = time_mode
        self._schemas = schemas
        self._open = True
        self._timers: set[int] = set()
        self._timers_changed = False
        self.variables: dict[str, Variable] = {}

    def getValueState(self, stateName: str, schema: StructType | str, ttlDurationMs: int | None = None) -> ValueState:
        """Same as in Spark."""
        declared = StoredValue(self._parsed(schema), self._ttl(stateName, ttlDurationMs))
        self._declare(stateName, declared)
        return declared

    def getListState(self, stateName: str, schema: StructType | str, ttlDurationMs: int | None = None) -> ListState:
        """Same as in Spark."""
        declared = StoredList(self._parsed(schema), self._ttl(stateName, ttlDurationMs))
        self._declare(stateName, declared)
        return declared

    def getMapState(
        self,
        stateName: str,
        userKeySchema: StructType | str,
        valueSchema: StructType | str,
        ttlDurationMs: int | None = None,
    ) -> MapState:
        """Same as in Spark."""
        ttl = self._ttl(stateName, ttlDurationMs)
        declared = StoredMap(self._parsed(userKeySchema), self._parsed(valueSchema), ttl)
        self._declare(stateName, declared)
        return declared

    def deleteIfExists(self, stateName: str) -> None:
        """Same as in Spark: whatever earlier runs kept under the name is dropped."""
        if not self._open:
            raise HandleError(f"deleteIfExists({stateName!r}): call it in init().")
        self.variables.pop(stateName, None)

    def registerTimer(self, expiryTimestampMs: int) -> None:
        """Same as in Spark."""
        self._check_timers("registerTimer")
        self._timers.add(int(expiryTimestampMs))
        self._timers_changed = True

    def deleteTimer(self, expiryTimestampMs: int) -> None:
        """Same as in Spark."""
        self._check_timers("deleteTimer")
        self._timers.discard(int(expiryTimestampMs))
        self._timers_changed = True

    def listTimers(self) -> Iterator[int]:
        """Same as in Spark, the earliest first."""
        self._check_timers("listTimers")
        return iter(sorted(self._timers))

    def start(self, times: EpochTimes) -> None:
        """End of ``init``: keys follow, in an epoch at these times."""
        self._open = False
        for variable in self.variables.values():
            variable.expiry.now = times.now

    def open(self, stored: tuple[Any, ...] | None) -> None:
        """Hold the state of a key: the stored value of each variable, and the timers."""
        *kept, timers = stored or (*(None for _ in self.variables), None)
        for variable, each in zip(self.variables.values(), kept, strict=True):
            variable.open(each)
        self._timers = set(timers or ())
        self._timers_changed = False

    @property
    def changed(self) -> bool:
        """Whether the state of the key differs from what is stored."""
        return self._timers_changed or any(each.expiry.changed for each in self.variables.values())

    def stored(self) -> tuple[Any, ...] | None:
        """The state of the key to store, None if there is nothing."""
        kept = [each.stored() for each in self.variables.values()]
        if not self._timers and all(each is None for each in kept):
            return None
        return (*kept, sorted(self._timers) or None)

    def due(self) -> int | None:
        """The millisecond at which the key has something to do even without rows, None for never.

        That is the next timer. A key whose entire state expires has to be dropped then; parts that expire earlier are
        dropped when the key is next read.
        """
        expiries = [each.last_expiry() for each in self.variables.values() if each.expiry.ttl is not None]
        due = [*self._timers, *(each for each in expiries if each is not None)]
        return min(due, default=None)

    def expired(self, until: int) -> Iterator[int]:
        """The timers up to a time, the earliest first, without those deleted in the meantime."""
        for timer in sorted(each for each in self._timers if each <= until):
            if timer in self._timers:
                yield timer

    def _declare(self, name: str, variable: Variable) -> None:
        if not self._open:
            raise HandleError(f"State variable {name!r}: declare it in init().")
        if name in self.variables:
            raise HandleError(f"State variable {name!r} is declared twice.")
        self.variables[name] = variable

    def _parsed(self, schema: StructType | str) -> StructType:
        return self._schemas[schema] if isinstance(schema, str) else schema

    def _ttl(self, name: str, ttl: int | None) -> int | None:
        if ttl is None:
            return None
        if self._mode != PROCESSING_TIME:
            needed = f'needs timeMode "{TIME_MODES[PROCESSING_TIME]}", not "{TIME_MODES[self._mode]}"'
            raise HandleError(f"State variable {name!r}: ttlDurationMs {needed}.")
        if ttl <= 0:
            raise HandleError(f"State variable {name!r}: ttlDurationMs={ttl!r} must be above zero.")
        return ttl

    def _check_timers(self, method: str) -> None:
        if self._mode == NONE:
            raise HandleError(f'{method}: with timeMode "None" there are no timers.')
        if self._open:
            raise HandleError(f"{method}: in init() there is no key yet.")
