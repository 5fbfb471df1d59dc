"""Bytewax: sliding windows in Python, with two workers in one process.

Run by the interpreter of Bytewax's own environment, so it imports nothing from this repository and repeats the formulas
of ``feed.py``.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterable
from datetime import datetime, timedelta, timezone
from typing import Any

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
        self.next = first
        POSITIONS[first % WORKERS] = first

    def next_batch(self) -> Iterable[tuple[str, Row]]:
        """The next rows."""
        if ENDED.is_set():
            raise StopIteration
        POSITIONS[self.next % WORKERS] = self.next
        numbers = range(self.next, self.next + CHUNK * WORKERS, WORKERS)
        self.next = numbers[-1] + WORKERS
        return [(str(number * 7919 % self.keys), (number, number % 1000 / 8.0)) for number in numbers]

    def snapshot(self) -> int:
        """The position to resume from."""
        return self.next


class Feed(FixedPartitionedSource[tuple[str, Row], int]):
    """The input in as many partitions as there are workers."""

    def __init__(self, work: dict[str, str]) -> None:
        self.work = work

    def list_parts(self) -> list[str]:
        """One per worker."""
        return [str(part) for part in range(WORKERS)]

    def build_part(self, _step_id: str, for_part: str, resume_state: int | None) -> Rows:
        """A partition."""
        return Rows(self.work, int(for_part) if resume_state is None else resume_state)


class Results(StatelessSinkPartition[tuple[str, tuple[int, State]]]):
    """The totals of result rows by window end, shared by the workers of the process."""

    ends: dict[int, list[float]] = {}  # noqa: RUF012  (one for the process on purpose)

    def write_batch(self, items: list[tuple[str, tuple[int, State]]]) -> None:
        """Add result rows."""
        for key, (window, (count, total, price)) in items:
            # Window 0 starts at the epoch and ends after its whole length.
            end = window + LENGTH
            totals = self.ends.setdefault(end, [0, 0, 0.0])
            mixed = end * 8191 + int(key) * 1_000_003 + count * 131 + total * 132
            totals[0] += 1
            totals[1] += (mixed % 2_147_483_647) * (mixed % 65_521 + 1) % 2_147_483_647
            totals[2] += price / count if MEANS else 0.0


class Sink(DynamicSink[tuple[str, tuple[int, State]]]):
    """One collector per worker."""

    def build(self, _step_id: str, _worker_index: int, _worker_count: int) -> Results:
        """The collector."""
        return Results()


POSITIONS: dict[int, int] = {}
"""The next row of each worker."""
ENDED = threading.Event()
WORK = dict(argument.split("=", 1) for argument in sys.argv[1:])
LENGTH = int(WORK.get("steps", "60"))
DENSITY = int(WORK.get("density", "1000000"))
MEANS = "avg" in WORK.get("aggregates", "").split(",")


def dataflow() -> Dataflow:
    """Count, sum and mean of the rows of each key and window."""
    flow = Dataflow("benchmark")
    rows = op.input("rows", flow, Feed(WORK))
    clock = EventClock(
        lambda row: EPOCH + timedelta(microseconds=row[0] * 1_000_000 // DENSITY),
        wait_for_system_duration=timedelta(0),
        # By the real clock, its watermark would run ahead of an input that takes longer than its time span.
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


def reach(row: int) -> tuple[int, float]:
    """Wait until both workers have reached a row; returns the row that they have reached, and the time."""
    pause = threading.Event()
    while len(POSITIONS) < WORKERS or min(POSITIONS.values()) < row:
        pause.wait(0.02)
    return min(POSITIONS.values()), time.perf_counter()


def serve() -> None:
    """Print a stretch for each line of standard input, and then end the input."""
    measured = int(WORK["measured"])
    first = int(WORK["warmUp"])
    for _ in sys.stdin:
        (begin, began), (end, ended) = reach(first), reach(first + measured)
        say({"rows": end - begin, "seconds": ended - began})
        first = end + int(WORK["settling"])
    ENDED.set()


def say(line: dict[str, Any]) -> None:
    """Print a line of JSON."""
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def main() -> None:
    """Run and print the report."""
    from bytewax._bytewax import cluster_main  # noqa: PLC0415

    threading.Thread(target=serve, daemon=True).start()
    cluster_main(dataflow(), [], 0, worker_count_per_proc=WORKERS)
    # The last second is incomplete, and the results of the one before are emitted only when time advances.
    complete = min(POSITIONS.values()) // DENSITY - 1
    ends = {end: totals for end, totals in Results.ends.items() if end <= complete}
    say({"complete": complete, "ends": ends})


if __name__ == "__main__":
    main()
