"""The baseline of sinks: plain processes that write the same Arrow columns to the same server."""

from __future__ import annotations

import multiprocessing
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from sparkjet.sinks.protocol import TransactionId

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from sparkjet.sinks.protocol import Sink

BATCH = 10_000
"""Rows per batch, as Spark passes them to tasks."""


def arrow_files(table: pa.Table, count: int, home: Path) -> list[str]:
    """A table split evenly into files, one per process."""
    size = len(table) // count
    paths = []
    for number in range(count):
        path = str(home / f"{number}.arrow")
        with pa.ipc.new_file(path, table.schema) as file:
            file.write_table(table.slice(number * size, size), max_chunksize=BATCH)
        paths.append(path)
    return paths


def batches_of(path: str) -> list[pa.RecordBatch]:
    """The batches in a file of :func:`arrow_files`."""
    with pa.ipc.open_file(path) as file:
        return [file.get_batch(number) for number in range(file.num_record_batches)]


def seconds_of(work: Callable[..., None], each: Sequence[tuple[object, ...]]) -> float:
    """Seconds that processes take together, without their start.

    Args:
        work: The work of each; its last arguments are a semaphore to release when ready and an event to wait for.
        each: The other arguments of each process.
    """
    context = multiprocessing.get_context("spawn")
    ready, go = context.Semaphore(0), context.Event()
    # Daemons: if one fails, those that wait for `go` must not keep this process alive.
    processes = [context.Process(target=work, args=(*own, ready, go), daemon=True) for own in each]
    for process in processes:
        process.start()
    for _ in processes:
        # A process that has failed never is.
        while not ready.acquire(timeout=0.5):
            if any(process.exitcode for process in processes):
                sys.exit("a bare process failed before it was ready")
    started = time.perf_counter()
    go.set()
    for process in processes:
        process.join()
    taken = time.perf_counter() - started
    if any(process.exitcode for process in processes):
        sys.exit("a bare process failed")
    return taken


def through_sink(sink: Sink, rows: DataFrame, epoch: int) -> float:
    """Seconds of an epoch's rows through a sink: prepare and commit."""
    started = time.perf_counter()
    handle = sink.prepare(rows, TransactionId("benchmark", "results", 0, epoch, 0))
    if handle is None:
        sys.exit("nothing was prepared")
    sink.commit(handle, lambda: None)
    return time.perf_counter() - started


def in_turns(
    ways: Mapping[str, Callable[[int], float]], rounds: int, warm_up: int, before: Callable[[], Any] = lambda: None
) -> dict[str, list[float]]:
    """Seconds of each way in every round, without the warm-up.

    Args:
        ways: Functions from a round's number to its seconds, by name; they run in this order.
        rounds: Number of measured rounds.
        warm_up: Number of rounds before.
        before: Called before each, so that all start alike.
    """
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for round_ in range(warm_up + rounds):
        for name, measured in ways.items():
            before()
            taken = measured(round_)
            if round_ >= warm_up:
                seconds[name].append(taken)
    return seconds
