"""The lag of a watermark from how many rows may be lost: what each lag would have lost of a history."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import accumulate
from numbers import Integral
from typing import TYPE_CHECKING, Any, NamedTuple

from sparkjet.errors import AnalysisError, nearest
from sparkjet.time import SubstreamTracker, limiting_lag
from sparkjet.time.durations import Duration, format_duration, parse_duration

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from sparkjet.time import LimitingLag

DIGITS = 3
"""Digits that count of how late a row is, and of a lag: at most a hundredth more than is needed."""
_ROWS = 12
"""Lags that the text of a report has."""


class Loss(NamedTuple):
    """The loss of a substream with some lag: the number of rows, and their share of its rows."""

    lag: int
    substream: str
    rows: int
    share: float


@dataclass(frozen=True)
class LagReport:
    """The findings of :func:`lag_for` and :func:`~sparkjet.tools.recommend`; times in microseconds.

    Attributes:
        allowed: The share of rows that may be lost.
        rows: How many rows there are, by substream; as a query does not count by substream, of each all of its rows.
        late: Of each substream, how many rows need how much lag: how far they are behind the watermark that a lag of 0
            would have, rounded up as lags are. Rows that no lag would lose are left out.
        least: The least lag of which anything is known: the query's own, as its rows in time do not say how early they
            were.
        together: How many rows there are, if ``rows`` has them for each substream; None for the sum.
    """

    allowed: Fraction
    rows: Mapping[str, int]
    late: Mapping[str, Mapping[int, int]]
    least: int = 0
    together: int | None = None

    @property
    def lag(self) -> int:
        """The least lag, as they are rounded, that loses no more rows of all substreams together than are allowed."""
        return self.lag_of(*self.rows)

    @property
    def policy(self) -> LimitingLag:
        """For ``withWatermark``: :func:`~sparkjet.limiting_lag` of that lag."""
        return limiting_lag(self.lag)

    @property
    def lags(self) -> list[int]:
        """All lags at which the number of lost rows changes, ascending, with the least."""
        return sorted({self.least, *(each for counts in self.late.values() for each in counts)})

    def lag_of(self, *substreams: str) -> int:
        """The least lag that loses no more rows of some substreams than are allowed of them."""
        most = int(self.allowed * self._all(substreams))
        behind = sum((Counter(self.late.get(each, {})) for each in substreams), Counter())
        lost = behind.total()
        for lag in sorted({self.least, *behind}):
            lost -= behind[lag]
            if lost <= most:
                return lag
        return self.least

    def lost(self, lag: Duration, *substreams: str) -> int:
        """How many rows a lag loses, of all substreams or of some: exactly, for a lag as they are rounded.

        Raises:
            AnalysisError: It is less than :attr:`least`.
        """
        least, lost = parse_duration(lag, "lag"), 0
        if least < self.least:
            message = (
                f"lag = {_shown(least)}: the query has {_shown(self.least)}, and its rows in time do not say which of "
                "them less would have lost. Ask lag_for, by a history of when rows came."
            )
            raise AnalysisError(message)
        for each in substreams or self.rows:
            self._rows(each)
            times, at_most = self._sums.get(each, ((), (0,)))
            lost += at_most[-1] - at_most[bisect_right(times, least)]
        return lost

    def share(self, lag: Duration, *substreams: str) -> float:
        """The same as a share of these rows."""
        return self.lost(lag, *substreams) / max(1, self._all(substreams or self.rows))

    def losses(self, lags: Iterable[Duration] | None = None) -> list[Loss]:
        """The losses of each substream by lag, by default for all lags at which they change."""
        chosen = self.lags if lags is None else [parse_duration(each, "lags") for each in lags]
        return [Loss(lag, each, self.lost(lag, each), self.share(lag, each)) for lag in chosen for each in self.rows]

    def __str__(self) -> str:
        """A table: lags down to the recommended one and beyond, and what each of them loses of each substream."""
        lags, best = self.lags, self.lag
        place = bisect_left(lags, best)
        # Evenly from all, and those around the one that is recommended.
        shown = {*lags[:: max(1, len(lags) // _ROWS)], *lags[max(0, place - 1) : place + 2], lags[-1]}
        lines = [f"lag {_shown(best)} loses {self.lost(best)} of {self._all(self.rows)} rows"]
        lines += [
            f"{'->' if lag == best else '  '} {_shown(lag):>24}  "
            + "  ".join(f"{_told(name)}: {self.lost(lag, name)} ({self.share(lag, name):.4%})" for name in self.rows)
            for lag in sorted(shown)
        ]
        return "\n".join(lines)

    @cached_property
    def _sums(self) -> dict[str, tuple[Sequence[int], Sequence[int]]]:
        """How far behind the rows of each substream are, ascending, and how many are less far behind than each."""
        ordered = {name: sorted(counts.items()) for name, counts in self.late.items()}
        return {
            name: ([time for time, _ in each], [*accumulate((rows for _, rows in each), initial=0)])
            for name, each in ordered.items()
        }

    def _all(self, substreams: Iterable[str]) -> int:
        rows = sum(map(self._rows, substreams))
        return rows if self.together is None else self.together

    def _rows(self, substream: str) -> int:
        if substream not in self.rows:
            raise AnalysisError(f"substream = {substream!r}: there are rows of {', '.join(map(repr, self.rows))}")
        return self.rows[substream]


def lag_for(
    history: DataFrame | Iterable[tuple[int, str, int]],
    loss: float | str,
    *,
    event_time: str | Column = "ts",
    arrival: str | Column = "timestamp",
    by: str | Column | Sequence[str | Column] = (),
    trigger: Duration | None = "1 second",
    substreams: str | Sequence[str] = (),
) -> LagReport:
    """Which lag loses how many rows, by a history of when rows came: no lag has to be guessed.

    The rows go through the watermark of a query with ``limiting_lag``, of all substreams together, as through
    :func:`~sparkjet.tools.replay.replay`. A row is lost if its event time is below the watermark when it comes, as with
    session windows; of other windows fewer are. Call it on the driver; of a DataFrame two jobs read all of it, and must
    find the same rows.

    Args:
        history: A batch DataFrame; or :class:`~sparkjet.tools.replay.Arrival` or tuples, in any order, in microseconds.
            Rows without a time do not count.
        loss: The share of rows that may be lost: ``"0.01 %"``, or a number from 0 to below 1.
        event_time: Of a DataFrame, the column of ``withWatermark``, a timestamp.
        arrival: Of a DataFrame, when the row came, a timestamp: that of Kafka's record, or
            ``_metadata.file_modification_time``.
        by: Of a DataFrame, the columns that name the substream, as in ``withWatermark``.
        trigger: Rows that come within this time are one epoch, judged by the watermark before it; None for those of
            the same moment only. With a shorter one than the query's, it loses less than is said.
        substreams: Substreams to wait for from the start, of which history has rows; others are known from their first
            row on.

    Raises:
        AnalysisError: No share, no rows with both times or none of a substream, or columns that are no timestamps.

    >>> events = [(second * 10**6, "a", (second - late) * 10**6) for second, late in enumerate([0, 0, 1, 4, 0, 5])]
    >>> found = lag_for(events, loss="20 %")
    >>> found.lag, found.lost(found.lag), found.lost("1 second")
    (2000000, 1, 2)
    >>> print(found)
    lag 2 seconds loses 1 of 6 rows
                      0 seconds  a: 2 (33.3333%)
    ->                2 seconds  a: 1 (16.6667%)
                      4 seconds  a: 0 (0.0000%)
    """
    allowed = share_of(loss)
    length = 1 if trigger is None else parse_duration(trigger, "trigger", minimum=1)
    rows: Counter[str] = Counter()
    late: defaultdict[str, Counter[int]] = defaultdict(Counter)
    substreams = [substreams] if isinstance(substreams, str) else substreams
    for substream, behind, count in _counted(history, event_time, arrival, by, length, substreams):
        rows[substream] += count
        if behind > 0:
            late[substream][behind] += count
    if not rows:
        raise AnalysisError("lag_for: history has no rows with an event time and a time of arrival")
    absent = [each for each in substreams if each not in rows]
    if absent:
        # The watermark would wait for it, and no row would be late with any lag.
        message = f"substreams: history has no rows of {absent[0]!r}; {nearest(str(absent[0]), map(str, rows))}"
        raise AnalysisError(message)
    return LagReport(allowed, dict(sorted(rows.items())), {name: dict(late[name]) for name in sorted(late)})


def _shown(lag: int) -> str:
    return format_duration(lag) if lag else "0 seconds"


def _told(name: str) -> str:
    # A line break would end the row, and control characters change the terminal.
    return name if name and name.isprintable() else repr(name)


def share_of(loss: float | str) -> Fraction:
    """A share as users give it.

    Raises:
        AnalysisError: It is none.
    """
    try:
        if isinstance(loss, str) and loss.rstrip().endswith("%"):
            share = Fraction(loss.rstrip().removesuffix("%").strip()) / 100
        else:
            # By its text: 0.1 is meant, and not the number that is nearest to it in binary.
            share = Fraction(str(loss))
    except (ValueError, ZeroDivisionError):
        share = Fraction(-1)
    if not 0 <= share < 1:
        raise AnalysisError(f'loss = {loss!r}: a share of rows from 0 to below 1, such as 0.0001 or "0.01 %"')
    return share


def _counted(
    history: Any,
    event_time: str | Column,
    arrival: str | Column,
    by: str | Column | Sequence[str | Column],
    trigger: int,
    substreams: Sequence[str],
) -> Iterator[tuple[str, int, int]]:
    """Substream, how far behind (three digits, 0 if not at all) and number of the rows."""
    if not hasattr(history, "sparkSession"):
        arrivals = [
            (at // trigger, "null" if substream is None else substream, time)
            for at, substream, time in map(_arrival, history)
            if at is not None and time is not None
        ]
        highest: dict[tuple[int, str], int] = {}
        for at, substream, time in arrivals:
            highest[at, substream] = max(time, highest.get((at, substream), time))
        marks = dict(_watermarks(sorted((*key, time) for key, time in highest.items()), substreams))
        for at, substream, time in arrivals:
            yield substream, rounded(max(0, marks[at] - time)), 1
        return
    from sparkjet.tools.histories import behind, epochs, told  # noqa: PLC0415 - replays need no Spark

    found = told(history, event_time, arrival, by, trigger)
    yield from behind(found, list(_watermarks(epochs(found), substreams)), DIGITS)


def _arrival(given: Any) -> tuple[int | None, str | None, int | None]:
    found = tuple(given) if isinstance(given, tuple | list) else ()
    # pandas has its own integers.
    of = Integral | None, str | None, Integral | None
    if len(found) != len(of) or not all(isinstance(each, kind) for each, kind in zip(found, of, strict=True)):
        message = (
            f"history: {given!r} is not an Arrival: when it came, its substream, and its event time, the times as "
            "whole microseconds"
        )
        raise AnalysisError(message)
    at, substream, time = found
    return None if at is None else int(at), substream, None if time is None else int(time)


def _watermarks(highest: Iterable[tuple[int, str, int]], substreams: Sequence[str]) -> Iterator[tuple[int, int]]:
    """The watermark that each epoch's rows are judged by with a lag of 0; other lags are that much behind it."""
    tracker = SubstreamTracker(limiting_lag(0))
    for name in substreams:
        tracker.add(name, 0)
    current: int | None = None
    for at, substream, time in highest:
        if at != current:
            if current is not None:
                tracker.advance(current)
            current = at
            yield at, tracker.watermark
        tracker.report(substream, time, at)


def rounded(time: int) -> int:
    """A time rounded up to three digits.

    >>> rounded(0), rounded(999), rounded(1001), rounded(1234567)
    (0, 999, 1010, 1240000)
    """
    unit: int = 10 ** max(0, len(str(time)) - DIGITS)
    return -(-time // unit) * unit
