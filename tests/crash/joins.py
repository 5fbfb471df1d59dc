"""Rules of a query that joins: two streams by an interval, results by their windows, and rows with a static table."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from tests.crash.feeds import Event
from tests.crash.replay import RESULTS, Replayed, Row, Rules, replay
from tests.crash.stages import Dropped, Expected, StagesRules

RATES, NAMED = "rates", "named"
"""Names of the directories of joined windows, and of the stream's rows with those of the static table."""
NAMES = (("x", "anna"), ("x", "bea"), ("y", "bert"), ("unused", "carl"))
"""The static table: key and name."""
LEFT, RIGHT = "left", "right"


@dataclass(frozen=True)
class _Part:
    """A consumer of rows: a side of the interval join, or windows over one of the streams.

    Attributes:
        stream: The stream that it reads.
        weight: How many rows it makes of an event, 0 where it filters it out.
        rules: Those by which it judges.
        until: The watermark that ends an event's state.
    """

    stream: str
    weight: Callable[[Event], int]
    rules: Rules
    until: Callable[[Event], int]

    def taken(self, seen: Replayed) -> list[Event]:
        """The events that it has accepted."""
        return [event for event in seen.accepted for _ in range(self.weight(event))]

    def dropped(self, seen: Replayed) -> Dropped:
        """Late rows and rows without an event time, by the names of substreams in a query of two streams."""
        late, null = Counter[str](), Counter[str]()
        names = [*self.rules.columns, "_substream", "_watermark", "_reason"]
        for row in seen.late.elements():
            event = dict(zip(names, row, strict=True))
            counted = late if event["_reason"] == "late" else null
            counted[f"{self.stream}/{event['_substream']}"] += self.weight(event)
        return dict(+late), dict(+null)


@dataclass(frozen=True)
class JoinRules(StagesRules):
    """Both streams read the same feed, the right one what has a positive ``n``, each with its own lag.

    ``lag`` is that of the left stream, ``behind`` that of the right one, which is at least as long: the query's
    watermark is the right one's. ``size`` and ``slide`` are of the windows. Rows of equal keys are joined if the right
    one is ``lower`` to ``upper`` after the left one.
    """

    sources: ClassVar[int] = 2
    behind: int = 0
    slide: int = 1
    lower: int = 0
    upper: int = 0
    framed: bool = False
    """Whether these are the rules of windows: an event is late once the first of its windows has closed."""

    @property
    def outputs(self) -> dict[str, list[str]]:
        """Columns of each output by its directory."""
        return {
            RESULTS: ["id", "key", "other", "apart"],
            RATES: ["start", "end", "key", "names", "total"],
            NAMED: ["id", "name"],
        }

    @property
    def late_columns(self) -> tuple[str, ...]:
        """Some of the columns of both sides."""
        return LATE

    def frame(self, timestamp: int) -> int:
        """End of the slide-long slice of time that a timestamp is in."""
        return timestamp // self.slide * self.slide + self.slide

    def windows(self, timestamp: int) -> range:
        """Ends of all windows that a timestamp is in."""
        frame = self.frame(timestamp)
        return range(frame, frame + self.size, self.slide)

    def is_late(self, timestamp: int, watermark: int) -> bool:
        """Whether an event is late for a join, or for windows."""
        return (self.frame(timestamp) if self.framed else timestamp) <= watermark - (not self.framed)

    def expected(self, recorded: Sequence[Sequence[Event]], closings: Collection[int]) -> Expected:
        """See :meth:`StagesRules.expected`."""
        parts = self._parts
        seen = {name: Replayed(highest=dict.fromkeys(self.listed)) for name in parts}
        for number, batch in enumerate(recorded, 1):
            seen = {name: replay([batch], part.rules, (), seen[name]) for name, part in parts.items()}
            if number in closings:
                ends = [part.until(event) for name, part in parts.items() for event in part.taken(seen[name])]
                for each in seen.values():
                    each.advance(max(ends))
        taken = {name: part.taken(seen[name]) for name, part in parts.items()}
        dropped = {name: part.dropped(seen[name]) for name, part in parts.items()}
        sides = [dropped[LEFT], dropped[RIGHT]]
        late = self._late(LEFT, parts[LEFT], seen[LEFT], ("id", "sub", "key", "n"))
        return Expected(
            results={
                RESULTS: self._pairs(taken[LEFT], taken[RIGHT]),
                RATES: self._rates(taken["left windows"], taken["right windows"]),
                NAMED: Counter((event["id"], name) for batch in recorded for event in batch for name in _names(event)),
            },
            late=late + self._late(RIGHT, parts[RIGHT], seen[RIGHT], ("other",)),
            dropped={
                "stage0": (sides[0][0] | sides[1][0], sides[0][1] | sides[1][1]),
                "stage1": dropped["left windows"],
                "stage2": dropped["right windows"],
            },
        )

    @property
    def _parts(self) -> dict[str, _Part]:
        right, windows = replace(self, lag=self.behind), replace(self, lag=self.behind, framed=True)
        span = self.upper - self.lower

        def of_join(event: Event) -> int:
            return int(event[self.time] + span + 1)

        def of_windows(event: Event) -> int:
            return self.windows(event[self.time])[-1]

        return {
            LEFT: _Part(LEFT, lambda event: 1, self, of_join),
            RIGHT: _Part(RIGHT, _is_right, right, of_join),
            "left windows": _Part(LEFT, lambda event: len(_found(event)), windows, of_windows),
            "right windows": _Part(RIGHT, _is_right, windows, of_windows),
        }

    def _late(self, stream: str, part: _Part, seen: Replayed, names: Sequence[str]) -> Counter[Row]:
        """Rows of the late-rows sink, which has the columns of both sides."""
        found: Counter[Row] = Counter()
        for *values, substream, watermark, reason in seen.late.elements():
            event = dict(zip(self.columns, values, strict=True))
            row: dict[str, Any] = dict.fromkeys(LATE)
            row |= {name: event["id" if name == "other" else name] for name in names}
            found[(*row.values(), f"{stream}/{substream}", watermark, reason)] += part.weight(event)
        return +found

    def _pairs(self, left: Sequence[Event], right: Sequence[Event]) -> Counter[Row]:
        """Pairs, and the rows of both sides that have no partner."""
        found: Counter[Row] = Counter()
        alone = {event["id"] for event in right}
        for one in left:
            pairs = [
                (other, apart)
                for other in right
                if one["key"] is not None
                and one["key"] == other["key"]
                and self.lower <= (apart := other[self.time] - one[self.time]) <= self.upper
            ]
            found.update((one["id"], one["key"], other["id"], apart) for other, apart in pairs)
            alone -= {other["id"] for other, _ in pairs}
            if not pairs:
                found[one["id"], one["key"], None, None] += 1
        found.update((None, None, event["id"], None) for event in right if event["id"] in alone)
        return found

    def _rates(self, left: Sequence[Event], right: Sequence[Event]) -> Counter[Row]:
        """All windows of both sides; nulls are not equal to each other."""
        names = Counter(key for event in left for key in self._groups(event))
        totals: dict[Row, int] = defaultdict(int)
        for event in right:
            for key in self._groups(event):
                totals[key] += event["n"]
        return Counter((*key, names.get(key), totals.get(key)) for key in {*names, *totals})

    def _groups(self, event: Event) -> list[Row]:
        return [(end - self.size, end, event["key"]) for end in self.windows(event[self.time])]


LATE = ("id", "sub", "key", "n", "other")
"""Columns of the late-rows sink that are compared."""


def _found(event: Event) -> list[str]:
    return [name for key, name in NAMES if key == event["key"]]


def _names(event: Event) -> list[str | None]:
    """Those of a left outer join with the static table."""
    return [*_found(event)] or [None]


def _is_right(event: Event) -> int:
    return int(event["n"] > 0)
