"""GR: the grid against bare Arrow Flight that makes the same number of copies, and against Hazelcast CE.

``python -m benchmarks.grid``. 200 MB in 542 batches of rows over 271 partitions, to and from three processes on this
machine, each batch on two of them. The bare servers take a batch, hand it on to the next one and keep it; the grid also
decides who gets it, checks it, computes its digest, keeps count of its memory, and compares the digest when it is read.
Hazelcast's map gets as many bytes from its own client in Python, as arrays that are ready, while the grid's batches are
yet to be encoded. Time runs from the first batch in memory to the last answer, and they take turns. Then a member of
each is killed, and time runs until everything is read.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from benchmarks.bare_flight import Bare
from benchmarks.beside import in_turns
from benchmarks.hazelcast import hazelcast
from benchmarks.ratio import Ratio
from benchmarks.studies import main
from benchmarks.work import Goal
from sparkjet_grid.access import Access, create_token
from sparkjet_grid.client import GridClient
from sparkjet_grid.messages import Held

MEMBERS = 3
COPIES = 2
BATCHES = 542
PARTITIONS = 271
SIZE = 200_000_000
STATE = 96
WARM_UP = 2
ROUNDS = 7
KILLS = 3
BARE, HAZELCAST = Goal("bare Flight", 0.9), Goal("Hazelcast", 1.0)
SCHEMA = pa.schema([("key", pa.int64()), ("at", pa.int64()), ("state", pa.binary(STATE))])


def batches() -> list[pa.RecordBatch]:
    """The rows of a snapshot."""
    rows = SIZE // BATCHES // (STATE + 16)
    numbers = pa.array(range(rows))
    found = []
    for _ in range(BATCHES):
        state = pa.Array.from_buffers(pa.binary(STATE), rows, [None, pa.py_buffer(os.urandom(rows * STATE))])
        found.append(pa.RecordBatch.from_arrays([numbers, numbers, state], schema=SCHEMA))
    return found


class Grid:
    """A client of the grid."""

    def __init__(self, client: GridClient) -> None:
        self._client = client
        self._held: list[Held] = []
        self._round = 0

    def put(self, rows: Sequence[pa.RecordBatch]) -> None:
        """Put batches as entries of their partitions."""
        self._round += 1
        entry = self._client.entry
        entries = [entry(f"{self._round}/{n}", SCHEMA, [batch], n % PARTITIONS) for n, batch in enumerate(rows)]
        self._held = self._client.put(entries)

    def get(self) -> int:
        """Get all entries; returns the number of rows."""
        entries = list(self._client.get(self._held))
        return sum(batch.num_rows for entry in entries for batch in entry.batches)

    def forget(self) -> None:
        """Start over."""
        self._client.remove(prefix=f"{self._round}/")


@contextlib.contextmanager
def bare_servers() -> Iterator[list[str]]:
    """The addresses of bare servers."""
    with contextlib.ExitStack() as stack:
        words = [sys.executable, "-m", "benchmarks.bare_flight"]
        yield [_address(stack, words)[0] for _ in range(MEMBERS)]


@contextlib.contextmanager
def members(folder: Path) -> Iterator[tuple[GridClient, subprocess.Popen[str]]]:
    """A client of three members that hold what they should, and one of them, to be killed."""
    token = folder / "token"
    create_token(token)
    start = [sys.executable, "-m", "sparkjet", "grid", "start", "--port", "0", "--token-file", str(token)]
    with contextlib.ExitStack() as stack:
        found: list[tuple[str, subprocess.Popen[str]]] = []
        for number in range(MEMBERS):
            join = ["--join", found[0][0]] if found else []
            uri, process = _address(stack, [*start, *join, "--host", f"host-{number}"])
            found.append((uri.partition("//")[2], process))
        client = GridClient([address for address, _ in found], Access(token_file=str(token)), host="elsewhere")
        stack.callback(client.close)
        settled(client)
        yield client, found[-1][1]


def _address(stack: contextlib.ExitStack, command: Sequence[str]) -> tuple[str, subprocess.Popen[str]]:
    # A member allocates like this on its own account; then the bare servers may as well.
    environment = {**os.environ, "MALLOC_ARENA_MAX": "1"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment)
    stack.callback(process.wait)
    stack.callback(process.send_signal, signal.SIGKILL)
    for line in process.stdout or ():
        if "listens at" in line:
            return line.split()[-1], process
    sys.exit(f"{' '.join(command)} has ended")


def settled(client: GridClient) -> None:
    """Wait until every partition is on two members."""
    while any(len(row.replicas) < COPIES or set(row.replicas) != set(row.target) for row in client.state().rows):
        time.sleep(0.1)


def timed(work: Callable[[], Any]) -> float:
    """Seconds that something takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


@dataclass(frozen=True)
class End:
    """What is put to and got from; each returns the seconds that it took."""

    put: Callable[[], float]
    get: Callable[[], float]
    forget: Callable[[], Any]


def end_of(end: Grid | Bare, rows: Sequence[pa.RecordBatch]) -> End:
    """The grid or its bare peer, checked by the number of rows."""
    expected = sum(batch.num_rows for batch in rows)

    def get() -> None:
        if (found := end.get()) != expected:
            sys.exit(f"{type(end).__name__}: {found} rows instead of {expected}")

    return End(lambda: timed(lambda: end.put(rows)), lambda: timed(get), end.forget)


def throughput(rows: Sequence[pa.RecordBatch], folder: Path) -> list[Ratio]:
    """The ratios of putting and of getting, paired by round."""
    gets: dict[str, list[float]] = {}
    with (
        bare_servers() as uris,
        members(folder) as (client, _),
        hazelcast(folder, MEMBERS, BATCHES, _each(rows)) as peer,
    ):
        ends = {
            "grid": end_of(Grid(client), rows),
            BARE.other: end_of(Bare(uris), rows),
            HAZELCAST.other: End(peer.put, peer.get, peer.clear),
        }

        def measured(name: str, round_: int) -> float:
            end = ends[name]
            end.forget()
            put, get = end.put(), end.get()
            if round_ >= WARM_UP:
                gets.setdefault(name, []).append(get)
            return put

        puts = in_turns({name: partial(measured, name) for name in ends}, ROUNDS, WARM_UP)
    what = "MB in 542 batches, two copies, three members"
    return [
        Ratio.of_seconds(f"GR-{way}", f"{way} of 200 {what}", goal, found["grid"], found[goal.other], SIZE)
        for way, found in (("put", puts), ("get", gets))
        for goal in (BARE, HAZELCAST)
    ]


def recovery(rows: Sequence[pa.RecordBatch], folder: Path) -> list[Ratio]:
    """The ratio of the seconds from the end of one of three members until all is read, from scratch each time."""
    ours, theirs = [], []
    for number in range(KILLS):
        home = folder / f"kill-{number}"
        home.mkdir()
        with members(home) as (client, victim):
            end = end_of(Grid(client), rows)
            end.put()
            end.get()
            ours.append(timed(victim.kill) + end.get())
        with hazelcast(home, MEMBERS, BATCHES, _each(rows)) as peer:
            peer.put()
            peer.get()
            theirs.append(timed(peer.kill) + peer.get())
    what = "from SIGKILL of one of three members that hold 200 MB twice to all of it read: that often in a second"
    return [Ratio.of_seconds("GR-kill", what, HAZELCAST, ours, theirs)]


def study() -> list[Ratio]:
    """All ratios."""
    rows = batches()
    with tempfile.TemporaryDirectory() as folder:
        return throughput(rows, Path(folder)) + recovery(rows, Path(folder))


def _each(rows: Sequence[pa.RecordBatch]) -> int:
    size: int = sum(batch.nbytes for batch in rows) // len(rows)
    return size


if __name__ == "__main__":
    main(study)
