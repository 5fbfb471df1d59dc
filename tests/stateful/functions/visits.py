"""Visits: a function with state and event-time timers, by each of Spark's methods, and naively, event by event."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import pandas as pd
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor
from pyspark.sql.streaming.state import GroupState

from sparkjet.time import MIN

if TYPE_CHECKING:
    from sparkjet.api.stream import Stream

GAP, LATER = 5, 12
"""Milliseconds after the last row of a key: a visit has ended, and is forgotten."""
ENDED, FORGOTTEN = "ended", "forgotten"
OUTPUT = "k string, what string, total long, last long"
STATE = "total long, last long"

Result = tuple[str | None, str, int, int]
"""A row of ``OUTPUT``; times are in milliseconds."""
Arrival = tuple[str | None, int, int]
"""Key, time and value."""


def of_groups(key: Any, frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    """With one timer for each key; a visit that has ended is forgotten."""
    if state.hasTimedOut:
        total, last = state.get
        state.remove()
        yield pd.DataFrame({"k": [key[0]], "what": [ENDED], "total": [total], "last": [last]})
        return
    total, last = state.getOption or (0, MIN)
    for frame in frames:
        total, last = total + int(frame["value"].sum()), max(last, _milliseconds(frame["ts"].max()))
    state.update((total, last))
    state.setTimeoutTimestamp(last + GAP)


class Visits(StatefulProcessor):
    """With two timers for each key, which are set anew by each of its rows."""

    def init(self, handle: Any) -> None:
        self.handle = handle
        self.visit = handle.getValueState("visit", STATE)

    def take(self, value: int, time: int) -> None:
        total, last = self.visit.get() or (0, MIN)
        last = max(last, time)
        self.visit.update((total + value, last))
        for timer in self.handle.listTimers():
            self.handle.deleteTimer(timer)
        self.handle.registerTimer(last + GAP)
        self.handle.registerTimer(last + LATER)

    def expired(self, key: Any, timer: int) -> Result:
        total, last = self.visit.get()
        if timer == last + GAP:
            return key[0], ENDED, total, last
        self.visit.clear()
        return key[0], FORGOTTEN, total, last


class PandasVisits(Visits):
    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:
        for frame in rows:
            for each in frame.itertuples():
                self.take(int(each.value), _milliseconds(each.ts))
        return iter(())

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[pd.DataFrame]:
        k, what, total, last = self.expired(key, expiredTimerInfo.getExpiryTimeInMs())
        yield pd.DataFrame({"k": [k], "what": [what], "total": [total], "last": [last]})


class RowVisits(Visits):
    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        for each in rows:
            self.take(each.value, _milliseconds(each.ts))
        return iter(())

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
        k, what, total, last = self.expired(key, expiredTimerInfo.getExpiryTimeInMs())
        yield Row(k=k, what=what, total=total, last=last)


METHODS = ("applyInPandasWithState", "transformWithStateInPandas", "transformWithState")


def visits(rows: Stream, method: str) -> Stream:
    """The visits of each ``key``, by one of Spark's methods."""
    grouped = rows.groupBy("key")
    if method == "applyInPandasWithState":
        return grouped.applyInPandasWithState(of_groups, OUTPUT, STATE, "append", "EventTimeTimeout")
    processor = PandasVisits() if method == "transformWithStateInPandas" else RowVisits()
    result: Stream = getattr(grouped, method)(processor, OUTPUT, "append", "EventTime")
    return result


def _milliseconds(time: datetime) -> int:
    return round(time.replace(tzinfo=timezone.utc).timestamp() * 1000)


@dataclass
class _Visit:
    total: int = 0
    last: int = MIN
    timers: list[int] = field(default_factory=list)


class NaiveVisits:
    """The same in plain Python: each row, then each timer that the watermark has reached, those of a key in order.

    Args:
        method: One of ``METHODS``. The timer of ``applyInPandasWithState`` expires strictly after its time.
    """

    def __init__(self, method: str) -> None:
        self._groups = method == "applyInPandasWithState"
        self._watermark = MIN
        self.open: dict[str | None, _Visit] = {}
        self.late = 0

    def after(self, arrivals: Iterable[Arrival], watermark: int | None) -> list[Result]:
        """The results of an epoch with its watermark at its end; None is the end of the input."""
        for key, time, value in arrivals:
            if time < self._watermark:
                self.late += 1
                continue
            visit = self.open.setdefault(key, _Visit())
            visit.total, visit.last = visit.total + value, max(visit.last, time)
            visit.timers = [visit.last + GAP] if self._groups else [visit.last + GAP, visit.last + LATER]
        found = []
        for key, visit in list(self.open.items()):
            for timer in list(visit.timers):
                if watermark is None or timer + self._groups <= watermark:
                    visit.timers.remove(timer)
                    what = ENDED if timer == visit.last + GAP else FORGOTTEN
                    found.append((key, what, visit.total, visit.last))
            if not visit.timers:
                del self.open[key]
        if watermark is not None:
            self._watermark = max(self._watermark, watermark)
        return found


def all_of(epochs: Sequence[tuple[Sequence[Arrival], int | None]], method: str) -> tuple[list[list[Result]], int]:
    """The results of each epoch, the last one being the end of the input, and the number of late rows."""
    naive = NaiveVisits(method)
    results = [naive.after(arrivals, watermark) for arrivals, watermark in epochs]
    assert not naive.open
    return results, naive.late
