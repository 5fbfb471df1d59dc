"""Rules of a query of rolling sums, first rows and users' functions: operators whose state is by key."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from tests.crash.feeds import Event
from tests.crash.functions import DELAY, GAP, bucket_end
from tests.crash.replay import RESULTS, Replayed, Row, replay
from tests.crash.stages import Expected, StagesRules

TOTALS, VISITS, BUCKETS = "totals", "visits", "buckets"
"""Names of the directories of rolling sums, of a function with a timeout, and of a processor with timers."""
NO_KEY = "-"
"""Stands for a null in the table of totals, as a null cannot be a primary key."""
_ROLLING = "stage1"
_STAGES = ("stage0", _ROLLING, "stage2", "stage3")


@dataclass(frozen=True)
class _Step:
    """An epoch: what came, what of it was in time, and the watermark after it. The end of a run is one without rows."""

    given: Sequence[Event]
    accepted: Sequence[Event]
    watermark: int | None


@dataclass(frozen=True)
class KeyedRules(StagesRules):
    """``lag`` is also how long duplicates are recognized; the first output has the first rows."""

    @property
    def outputs(self) -> dict[str, list[str]]:
        """Columns of each output by its directory."""
        return {
            RESULTS: ["id", "sub", "key", "twice"],
            TOTALS: ["key", "rows", "total", "high"],
            VISITS: ["key", "rows", "last", "ids"],
            BUCKETS: ["sub", "key", "bucket", "rows"],
        }

    def closed_at(self, accepted: Sequence[Event]) -> int:
        """The watermark that ends everything: that of the last bucket's timer, after which no key is remembered."""
        assert self.lag <= DELAY * 1_000 >= GAP * 1_000 + 1_000
        return max(1_000 * (bucket_end(event[self.time] // 1_000) + DELAY) for event in accepted)

    def expected(self, recorded: Sequence[Sequence[Event]], closings: Collection[int]) -> Expected:
        """See :meth:`StagesRules.expected`."""
        steps, seen = self._steps(recorded, closings)
        buckets = Counter(
            (event["sub"], event["key"], bucket_end(event[self.time] // 1_000)) for event in seen.accepted
        )
        dropped = seen.dropped("late"), seen.dropped("null_timestamp")
        return Expected(
            results={
                RESULTS: self._first_rows(steps),
                TOTALS: _totals(steps),
                VISITS: self._visits(steps),
                BUCKETS: Counter((*bucket, rows) for bucket, rows in buckets.items()),
            },
            late=seen.late,
            # Nothing is late for rolling sums, and they ask no row for its time.
            dropped={name: ({}, {}) if name == _ROLLING else dropped for name in _STAGES},
            kept=[_ROLLING],
        )

    def in_table(self, output: str, rows: Counter[Row]) -> Counter[Row]:
        """See :meth:`StagesRules.in_table`: of the totals of a key, the last ones."""
        if output != TOTALS:
            return rows
        last = {key: max(row for row in rows if row[0] == key) for key in {row[0] for row in rows}}
        return Counter((NO_KEY if key is None else key, *rest) for key, *rest in last.values())

    def _steps(self, recorded: Sequence[Sequence[Event]], closings: Collection[int]) -> tuple[list[_Step], Replayed]:
        steps = []
        seen = Replayed(highest=dict.fromkeys(self.listed))
        for number, batch in enumerate(recorded, 1):
            before = len(seen.accepted)
            seen = replay([batch], self, (), seen)
            steps.append(_Step(batch, seen.accepted[before:], seen.watermark))
            if number in closings:
                seen.advance(self.closed_at(seen.accepted))
                steps.append(_Step([], [], seen.watermark))
        return steps, seen

    def _first_rows(self, steps: Sequence[_Step]) -> Counter[Row]:
        """Of several rows of a key in an epoch the one with the least time is the first."""
        remembered: dict[Row, int] = {}
        found: Counter[Row] = Counter()
        for before, step in zip([None, *(step.watermark for step in steps)], steps, strict=False):
            remembered = {key: due for key, due in remembered.items() if before is None or due >= before}
            for event in sorted(step.accepted, key=lambda event: event[self.time]):
                key = (event["sub"], event["key"])
                if key not in remembered:
                    remembered[key] = event[self.time] + self.lag
                    found[(event["id"], *key, 2 * event["n"])] += 1
        return found

    def _visits(self, steps: Sequence[_Step]) -> Counter[Row]:
        """The rows of a key between two timeouts, which the watermark after an epoch decides."""
        found: Counter[Row] = Counter()
        held: dict[str | None, list[Event]] = defaultdict(list)
        for step in steps:
            for event in step.accepted:
                held[event["key"]].append(event)
            for key, events in list(held.items()):
                last = max(event[self.time] for event in events) // 1_000
                if step.watermark is not None and last + GAP < step.watermark // 1_000:
                    found[key, len(events), last, sum(event["id"] for event in held.pop(key))] += 1
        return found


def _totals(steps: Sequence[_Step]) -> Counter[Row]:
    """In each epoch those of the keys that had rows in it; late rows count too."""
    found: Counter[Row] = Counter()
    values: dict[str | None, list[int]] = defaultdict(list)
    for step in steps:
        for event in step.given:
            values[event["key"]].append(event["n"])
        for key in {event["key"] for event in step.given}:
            found[key, len(values[key]), sum(values[key]), max(values[key])] += 1
    return found
