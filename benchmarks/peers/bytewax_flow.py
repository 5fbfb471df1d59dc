"""Bytewax: sliding windows in Python, two workers of one process.

Run by the interpreter of Bytewax's own environment, so it imports nothing of ours; it states the formulas of
``feed.py`` again.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable
from datetime import datetime, timedelta, timezone

import bytewax.operators as op
from bytewax.dataflow import Dataflow
from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition
from bytewax.operators.windowing import EventClock, SlidingWindower, fold_window
from bytewax.outputs import DynamicSink, StatelessSinkPartition

WORKERS = 2
CHUNK = 1_000
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
Row = tuple[int, float]
State = tuple[int, int, float]


class Rows(StatefulSourcePartition[tuple[str, Row], int]):
    """Every second row of the input."""

    def __init__(self, work: dict[str, str], first: int) -> None:
        self.keys = int(work["keys"])
        self.warm_up = int(work["warmUp"])
        # A little more than is measured: the results of the last second come when time goes on.
        self.rows = int(work["rows"]) * 102 // 100
        self.next = first

    def next_batch(self) -> Iterable[tuple[str, Row]]:
        """The next rows."""
        if self.next >= self.rows:
            raise StopIteration
        if self.next >= self.warm_up:
            Results.seen.setdefault(0, time.perf_counter())
        numbers = range(self.next, min(self.next + CHUNK * WORKERS, self.rows), WORKERS)
        self.next = numbers[-1] + WORKERS
        return [(str(number * 7919 % self.keys), (number, number % 1000 / 8.0)) for number in numbers]

    def snapshot(self) -> int:
        """Where to go on."""
        return self.next


class Feed(FixedPartitionedSource[tuple[str, Row], int]):
    """The input in as many partitions as there are workers."""

    def __init__(self, work: dict[str, str]) -> None:
        self.work = work

    def list_parts(self) -> list[str]:
        """One a worker."""
        return [str(part) for part in range(WORKERS)]

    def build_part(self, _step_id: str, for_part: str, resume_state: int | None) -> Rows:
        """A partition."""
        return Rows(self.work, int(for_part) if resume_state is None else resume_state)


class Results(StatelessSinkPartition[tuple[str, tuple[int, State]]]):
    """What result rows add up to by window end, and when the first came (at 0: the first row after warm-up).

    Shared by the workers of the process.
    """

    seen: dict[int, float] = {}  # noqa: RUF012  (one for the process on purpose)
    ends: dict[int, list[float]] = {}  # noqa: RUF012

    def write_batch(self, items: list[tuple[str, tuple[int, State]]]) -> None:
        """Add result rows."""
        for key, (window, (count, total, price)) in items:
            # Window 0 starts at the epoch and ends after its whole length.
            end = window + LENGTH
            self.seen.setdefault(end, time.perf_counter())
            totals = self.ends.setdefault(end, [0, 0, 0.0])
            mixed = end * 8191 + int(key) * 1_000_003 + count * 131 + total * 132
            totals[0] += 1
            totals[1] += (mixed % 2_147_483_647) * (mixed % 65_521 + 1) % 2_147_483_647
            totals[2] += price / count


class Sink(DynamicSink[tuple[str, tuple[int, State]]]):
    """One collector a worker."""

    def build(self, _step_id: str, _worker_index: int, _worker_count: int) -> Results:
        """The collector."""
        return Results()


WORK = dict(argument.split("=", 1) for argument in sys.argv[1:])
LENGTH = int(WORK.get("steps", "60"))
DENSITY = int(WORK.get("density", "1000000"))


def dataflow() -> Dataflow:
    """Count, sum and mean of the rows of each key and window."""
    flow = Dataflow("benchmark")
    rows = op.input("rows", flow, Feed(WORK))
    clock = EventClock(
        lambda row: EPOCH + timedelta(microseconds=row[0] * 1_000_000 // DENSITY),
        wait_for_system_duration=timedelta(0),
        # By the real clock its watermark would run ahead of an input that takes longer than it spans.
        now_getter=lambda: EPOCH,
        to_system_utc=lambda _: None,
    )
    windower = SlidingWindower(length=timedelta(seconds=LENGTH), offset=timedelta(seconds=1), align_to=EPOCH)
    folded = fold_window(
        "fold",
        rows,
        clock,
        windower,
        builder=lambda: (0, 0, 0.0),
        folder=lambda state, row: (state[0] + 1, state[1] + row[0], state[2] + row[1]),
        merger=lambda one, other: (one[0] + other[0], one[1] + other[1], one[2] + other[2]),
    )
    op.output("results", folded.down, Sink())
    return flow


def main() -> None:
    """Run and print the report."""
    from bytewax._bytewax import cluster_main  # noqa: PLC0415

    cluster_main(dataflow(), [], 0, worker_count_per_proc=WORKERS)
    last = int(WORK["rows"]) // DENSITY
    # From the first row after warm-up to the first result of the last window: a second of event time is too long.
    seconds = Results.seen[last] - Results.seen[0]
    ends = {end: totals for end, totals in Results.ends.items() if end <= last}
    report = {"rows": last * DENSITY - int(WORK["warmUp"]), "seconds": seconds, "complete": last, "ends": ends}
    sys.stdout.write(json.dumps(report) + "\n")


if __name__ == "__main__":
    main()
