"""The expected results in plain Python: late or accepted for every single event, and the windows of the accepted.

Independent on purpose: nothing from sparkjet is imported. A substream's watermark is its maximum timestamp minus the
lag; the query's is the minimum of all known substreams', floored to the slide, and never goes back. An event is late
if the first window of its frame was closed when its batch began.
"""

from __future__ import annotations

import copy
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from tests.crash.feeds import Event

Row = tuple[Any, ...]
Compute = Callable[[Sequence[Event]], Any]
RESULTS = "out"
"""Name of the directory of a query's first output."""


@dataclass(frozen=True)
class Rules:
    """Settings of a query as the replay needs them, durations in microseconds.

    ``columns`` are those of a feed's rows, in the order in which late rows are compared.
    """

    windowed: ClassVar[bool] = True
    """Whether its results are of windows."""
    staged: ClassVar[bool] = True
    """Whether it has stages, which the end of the input closes."""

    size: int
    step: int
    lag: int
    time: str
    by: str
    listed: tuple[str, ...]
    keys: tuple[str, ...]
    columns: tuple[str, ...]
    aggregates: Mapping[str, Compute]

    @property
    def late_columns(self) -> tuple[str, ...]:
        """Columns of the late-rows sink."""
        return self.columns

    def frame(self, timestamp: int) -> int:
        """End of the slide-long slice of time that a timestamp is in."""
        return timestamp // self.step * self.step + self.step

    def windows(self, timestamp: int) -> range:
        """Ends of all windows that a timestamp is in."""
        frame = self.frame(timestamp)
        return range(frame, frame + self.size, self.step)

    @property
    def outputs(self) -> dict[str, list[str]]:
        """Columns of each output by its directory, the window's first."""
        return {RESULTS: ["window", *self.keys, *self.aggregates]}

    def is_late(self, timestamp: int, watermark: int) -> bool:
        """Whether the first window of a timestamp's frame has been closed."""
        return self.frame(timestamp) <= watermark

    def closed_at(self, accepted: Sequence[Event]) -> int:
        """The watermark that closes everything."""
        return max(self.windows(event[self.time])[-1] for event in accepted)

    def results(self, accepted: Sequence[Event]) -> dict[str, Counter[Row]]:
        """The expected rows of each output for the accepted events."""
        return {RESULTS: batch_result(accepted, self)}


@dataclass
class Replayed:
    """Outcome of a replay: accepted events, the expected rows of the late-rows sink, and the current time."""

    accepted: list[Event] = field(default_factory=list)
    late: Counter[Row] = field(default_factory=Counter)
    highest: dict[str, int | None] = field(default_factory=dict)
    watermark: int | None = None

    def dropped(self, reason: str) -> dict[str, int]:
        """Number of dropped rows of each substream."""
        found: Counter[str] = Counter()
        for row, times in self.late.items():
            if row[-1] == reason:
                found[row[-3]] += times
        return dict(found)

    def advance(self, watermark: int) -> None:
        """Advance the watermark, never back."""
        self.watermark = watermark if self.watermark is None else max(self.watermark, watermark)


def replay(
    batches: Sequence[Sequence[Event]], rules: Rules, closings: Collection[int], before: Replayed | None = None
) -> Replayed:
    """Classify the events one by one; after each number of batches in ``closings``, a run closed its windows."""
    outcome = Replayed(highest=dict.fromkeys(rules.listed)) if before is None else copy.deepcopy(before)
    for number, batch in enumerate(batches, 1):
        judged_by = outcome.watermark
        for event in batch:
            time, substream = event[rules.time], event[rules.by]
            if time is None:
                outcome.late[_late_row(event, rules, judged_by, "null_timestamp")] += 1
                continue
            if judged_by is not None and rules.is_late(time, judged_by):
                outcome.late[_late_row(event, rules, judged_by, "late")] += 1
            else:
                outcome.accepted.append(event)
            highest = outcome.highest.get(substream)
            outcome.highest[substream] = time if highest is None else max(highest, time)
        known = [time for time in outcome.highest.values() if time is not None]
        if known and len(known) == len(outcome.highest):
            outcome.advance((min(known) - rules.lag) // rules.step * rules.step)
        if number in closings and outcome.accepted:
            outcome.advance(rules.closed_at(outcome.accepted))
    return outcome


def batch_result(accepted: Sequence[Event], rules: Rules) -> Counter[Row]:
    """Every window of the accepted events, computed at once: ``(start, end, keys…, aggregates…)``."""
    members: dict[Row, list[Event]] = defaultdict(list)
    for event in accepted:
        for end in rules.windows(event[rules.time]):
            members[(end - rules.size, end, *(event[key] for key in rules.keys))].append(event)
    return Counter(
        (*group, *(compute(events) for compute in rules.aggregates.values())) for group, events in members.items()
    )


def _late_row(event: Event, rules: Rules, watermark: int | None, reason: str) -> Row:
    return (*(event[column] for column in rules.columns), event[rules.by], watermark, reason)
