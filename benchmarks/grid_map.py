"""GM: the grid's map against Redis, whose client sends many commands at once, and Hazelcast CE's IMap.

``python -m benchmarks.grid_map [--small]``. 100,000 rows of a key, a number and a text: 1,000 of them by their keys
from Redis, and the whole of them from Hazelcast and into it, with two copies of each on three members. Redis has one
server without a copy. Rows come from the map as Python's and Arrow's values, while the peers hand out a row as a text
that is ready and that nobody decodes. An epoch of the map is whole: it is counted, checked and made visible at once.
They take turns. Beside the ratios, the 99th percentile of single gets is printed.
"""

from __future__ import annotations

import contextlib
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.beside import in_turns
from benchmarks.grid import MEMBERS, members, timed
from benchmarks.hazelcast import CLUSTER, PYTHON, HazelcastMembers, free_ports
from benchmarks.peers.map_client import GETS, KEYS
from benchmarks.process import PeerError
from benchmarks.ratio import Ratio
from benchmarks.studies import main
from benchmarks.work import Goal
from sparkjet_grid.client import GridClient
from sparkjet_grid.map_keys import hash_of, text_of
from sparkjet_grid.map_layers import EXPIRES, GONE, HASH, layer_schema
from sparkjet_grid.map_reader import Map
from sparkjet_grid.map_store import MapStore, following, write_layers
from sparkjet_grid.map_version import MapVersion
from sparkjet_grid.places import MapPlace
from sparkjet_grid.reader_leases import LeaseBook

ROWS = 100_000
SMALL = 10_000
ROUNDS = 9
WARM_UP = 3
REDIS, VALUES, IMAP = Goal("pipelined Redis", 0.5), Goal("Hazelcast's values()", 2.0), Goal("Hazelcast's IMap", 1.0)
SCHEMA = pa.schema([("k", pa.string()), ("n", pa.int64()), ("text", pa.string())])


class GridMap:
    """A map that is written as the sink's tasks and its driver do, and its reader."""

    def __init__(self, client: GridClient, rows: int) -> None:
        self._client, self._rows = client, rows
        self._store, self._book = MapStore(client, MapPlace("rows")), LeaseBook(time.monotonic)
        self._map = Map("", "rows", client=client)
        self._chosen = random.Random(1)  # noqa: S311 - which keys
        self._names = [f"key-{number:07d}" for number in range(rows)]
        count = len(client.state().rows)
        # Spark has the hashes, and the rows in this order.
        hashes = np.array([hash_of(text_of([name], ["text"])) for name in self._names], np.int64)
        order = np.lexsort((hashes, hashes % count))
        table = pa.table(
            {
                HASH: hashes,
                GONE: pa.array(np.zeros(rows, bool)),
                EXPIRES: pa.nulls(rows, pa.int64()),
                "k": self._names,
                "n": np.arange(rows),
                "text": [f"{number:064d}" for number in range(rows)],
            },
            schema=layer_schema(SCHEMA),
        ).take(pa.array(order))
        partitions = (hashes % count)[order]
        ends = [*np.flatnonzero(np.diff(partitions)) + 1, rows]
        starts = [0, *ends[:-1]]
        self._deltas = {
            int(partitions[start]): table.slice(start, end - start) for start, end in zip(starts, ends, strict=True)
        }

    def put(self, _: int) -> float:
        """An epoch in which every row has changed."""
        return timed(self._put)

    def get_all(self, _: int) -> float:
        """Rows by 1,000 keys."""
        keys = self._chosen.sample(self._names, KEYS)
        found: list[int] = []
        taken = timed(lambda: found.append(len(self._map.get_all(keys))))
        return taken if found == [KEYS] else sys.exit(f"{found} rows instead of {KEYS}")

    def scan(self, _: int) -> float:
        """All rows."""
        found: list[int] = []
        taken = timed(lambda: found.append(self._map.scan().read_all().num_rows))
        return taken if found == [self._rows] else sys.exit(f"{found} rows instead of {self._rows}")

    def p99(self) -> float:
        """Of single gets."""
        gets = [timed(partial(self._map.get, self._chosen.choice(self._names))) for _ in range(GETS)]
        return sorted(gets)[GETS * 99 // 100]

    def _put(self) -> None:
        base, place = self._store.newest(), self._store.place
        number = 1 if base is None else base.number + 1
        transaction = f"000001-{number:09d}-0"
        written = write_layers(self._client, place, transaction, self._deltas, base, ["k"], 0)
        version = MapVersion(
            number=number,
            epoch=number,
            clock=0,
            watermark=None,
            query="q",
            output="results",
            run="",
            keys=("k",),
            arrow_schema=SCHEMA.serialize().to_pybytes(),
            spark_schema="",
            partitions=len(self._client.state().rows),
            layers=following(base, written),
        )
        if not self._store.publish(self._store.write(version, transaction)):
            sys.exit("another one has written the map")
        self._store.clean(self._book)


class PeerMap:
    """A peer's client, which is a process.

    Args:
        kind: ``redis`` or ``hazelcast``.
        rows: How many.
        addresses: Of its servers.
        log: What it says.
    """

    def __init__(self, kind: str, rows: int, addresses: list[str], log: Path) -> None:
        words: list[str | Path] = [
            PYTHON,
            Path(__file__).parent / "peers" / "map_client.py",
            kind,
            CLUSTER,
            str(rows),
            *addresses,
        ]
        self._log = log
        self._process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log.open("w"), text=True
        )
        self._said()

    def told(self, what: str, _: int = 0) -> float:
        """Have it do something; returns the seconds that it took."""
        assert self._process.stdin is not None  # noqa: S101 - for mypy
        self._process.stdin.write(f"{what}\n")
        self._process.stdin.flush()
        return float(self._said())

    def end(self) -> None:
        """Kill it."""
        self._process.kill()
        self._process.wait()

    def _said(self) -> str:
        assert self._process.stdout is not None  # noqa: S101 - for mypy
        line: str = self._process.stdout.readline()
        if not line:
            raise PeerError(f"a peer's client has ended: {self._log.read_text()[-2000:]}")
        return line


@contextlib.contextmanager
def redis(rows: int, folder: Path) -> Iterator[PeerMap]:
    """A server of Redis's that keeps nothing on disk, and its client."""
    [port] = free_ports(1)
    words = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
    server = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=folder)
    try:
        for line in server.stdout or ():
            if "Ready to accept connections" in line:
                break
        else:
            raise PeerError("redis-server has ended. It is in the package redis-server.")
        client = PeerMap("redis", rows, [f"127.0.0.1:{port}"], folder / "redis-client.log")
        try:
            yield client
        finally:
            client.end()
    finally:
        server.kill()
        server.wait()


@contextlib.contextmanager
def hazelcast(rows: int, folder: Path) -> Iterator[PeerMap]:
    """Members of Hazelcast's, and their client."""
    peers = HazelcastMembers(folder, MEMBERS)
    try:
        client = PeerMap("hazelcast", rows, peers.addresses, folder / "hazelcast-client.log")
        try:
            yield client
        finally:
            client.end()
    finally:
        peers.end()


def study() -> list[Ratio]:
    """All ratios."""
    rows, rounds = (SMALL, 3) if "--small" in sys.argv else (ROWS, ROUNDS)
    with (
        tempfile.TemporaryDirectory() as name,
        members(Path(name)) as (client, _),
        redis(rows, Path(name)) as other,
        hazelcast(rows, Path(name)) as imap,
    ):
        ours = GridMap(client, rows)
        puts = in_turns({"grid": ours.put, IMAP.other: partial(imap.told, "put")}, rounds, WARM_UP)
        other.told("put")
        gets = in_turns({"grid": ours.get_all, REDIS.other: partial(other.told, "get_all")}, 5 * rounds, WARM_UP)
        scans = in_turns({"grid": ours.scan, VALUES.other: partial(imap.told, "scan")}, rounds, WARM_UP)
        single = {"the map": ours.p99(), "Redis": other.told("p99"), "Hazelcast": imap.told("p99")}
        many = imap.told("get_all")
    told = ", ".join(f"{name} {1000 * seconds:.2f} ms" for name, seconds in single.items())
    print(f"p99 of a single get: {told}; get_all of {KEYS} of Hazelcast: {1000 * many:.1f} ms", file=sys.stderr)
    of = f"of {rows:,} rows in a map, two copies on three members"
    return [
        Ratio.of_seconds("GM-get", f"get_all of {KEYS} keys {of}", REDIS, gets["grid"], gets[REDIS.other], KEYS),
        Ratio.of_seconds("GM-scan", f"scan {of}", VALUES, scans["grid"], scans[VALUES.other], rows),
        Ratio.of_seconds("GM-put", f"put {of}", IMAP, puts["grid"], puts[IMAP.other], rows),
    ]


if __name__ == "__main__":
    main(study)
