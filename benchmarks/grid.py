"""GR: the grid against bare Arrow Flight that makes the same number of copies.

``python -m benchmarks.grid``. 200 MB in 542 batches of rows over 271 partitions, to and from three processes on this
machine, each batch on two of them. The bare servers take a batch, hand it on to the next one and keep it; the grid also
decides who gets it, checks it, computes its digest, keeps count of its memory, and compares the digest when it is read.
Time runs from the first batch in memory to the last answer, and they take turns.
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
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl

from benchmarks.beside import in_turns
from benchmarks.ratio import Ratio
from benchmarks.studies import main
from benchmarks.work import Goal
from sparkjet.grid.access import Access, create_token
from sparkjet.grid.client import GridClient
from sparkjet.grid.messages import Held

MEMBERS = 3
COPIES = 2
BATCHES = 542
PARTITIONS = 271
SIZE = 200_000_000
STATE = 96
WARM_UP = 2
ROUNDS = 7
STREAMS = 2
GOAL = Goal("bare Flight", 0.8)
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


class BareServer(fl.FlightServerBase):  # type: ignore[misc] # pyarrow has no types
    """Keeps what is put, after it has handed it on to the server that the call names."""

    def __init__(self) -> None:
        super().__init__("grpc://127.0.0.1:0")
        self._kept: dict[bytes, list[pa.RecordBatch]] = {}

    def do_put(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:  # noqa: ARG002 - Flight's
        """Keep batches."""
        name, _, on_to = descriptor.command.partition(b" ")
        kept: list[pa.RecordBatch] = []
        if on_to:
            client = fl.FlightClient(on_to.decode())
            onward, answer = client.do_put(fl.FlightDescriptor.for_command(b"backup-" + name), reader.schema)
            with onward:
                for chunk in reader:
                    kept.append(chunk.data)
                    onward.write_batch(chunk.data)
                onward.done_writing()
                answer.read()
        else:
            kept += [chunk.data for chunk in reader]
        self._kept[name] = kept
        writer.write(pa.py_buffer(b"done"))

    def do_get(self, context: Any, ticket: Any) -> Any:  # noqa: ARG002 - Flight's
        """Give batches."""
        kept = self._kept[ticket.ticket]
        return fl.GeneratorStream(kept[0].schema, ((batch, b"") for batch in kept))

    def do_action(self, context: Any, action: Any) -> list[bytes]:  # noqa: ARG002 - Flight's
        """Forget everything."""
        self._kept.clear()
        return []


class Bare:
    """A client of bare servers."""

    def __init__(self, uris: Sequence[str]) -> None:
        self._uris = uris
        self._clients = [fl.FlightClient(uri) for uri in uris]

    def put(self, rows: Sequence[pa.RecordBatch]) -> None:
        """Put batches, each server its part in as many streams as the grid's client uses."""
        self._each(lambda server, stream, part: self._put(server, stream, rows[part]))

    def get(self) -> int:
        """Get all batches; returns the number of rows."""
        return sum(self._each(lambda server, stream, _: self._get(server, stream)))

    def forget(self) -> None:
        """Begin anew."""
        for client in self._clients:
            list(client.do_action(fl.Action("forget", b"")))

    def _each(self, work: Callable[[int, int, slice], Any]) -> list[Any]:
        count = MEMBERS * STREAMS
        with ThreadPoolExecutor(count) as pool:
            parts = [(n % MEMBERS, n // MEMBERS, slice(n, None, count)) for n in range(count)]
            return list(pool.map(lambda each: work(*each), parts))

    def _put(self, server: int, stream: int, rows: Sequence[pa.RecordBatch]) -> None:
        command = f"{stream} {self._uris[(server + 1) % MEMBERS]}".encode()
        writer, answer = self._clients[server].do_put(fl.FlightDescriptor.for_command(command), SCHEMA)
        with writer:
            for batch in rows:
                writer.write_batch(batch)
            writer.done_writing()
            answer.read()

    def _get(self, server: int, stream: int) -> int:
        reader = self._clients[server].do_get(fl.Ticket(b"%d" % stream))
        kept = [chunk.data for chunk in reader]
        return sum(batch.num_rows for batch in kept)


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
        """Begin anew."""
        self._client.remove(prefix=f"{self._round}/")


@contextlib.contextmanager
def processes(folder: Path) -> Iterator[tuple[list[str], list[str], Access]]:
    """Bare servers and members: their addresses, and the token of the latter."""
    token = folder / "token"
    create_token(token)
    with contextlib.ExitStack() as stack:
        bare = [_address(stack, [sys.executable, "-m", "benchmarks.grid", "--serve"]) for _ in range(MEMBERS)]
        start = [sys.executable, "-m", "sparkjet", "grid", "start", "--port", "0", "--token-file", str(token)]
        members: list[str] = []
        for number in range(MEMBERS):
            join = ["--join", members[0]] if members else []
            uri = _address(stack, [*start, *join, "--host", f"host-{number}"])
            members.append(uri.partition("//")[2])
        yield bare, members, Access(token_file=str(token))


def _address(stack: contextlib.ExitStack, command: Sequence[str]) -> str:
    # A member allocates like this on its own account; then the bare servers may as well.
    environment = {**os.environ, "MALLOC_ARENA_MAX": "1"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment)
    stack.callback(process.wait)
    stack.callback(process.send_signal, signal.SIGKILL)
    for line in process.stdout or ():
        if "listens at" in line:
            return line.split()[-1]
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


def study() -> list[Ratio]:
    """The ratios of putting and of getting, paired by round."""
    rows = batches()
    expected = sum(batch.num_rows for batch in rows)
    seconds: dict[str, list[float]] = {"get-grid": [], "get-bare": []}
    with tempfile.TemporaryDirectory() as folder, processes(Path(folder)) as (bare_uris, members, access):
        client = GridClient(members, access, host="elsewhere")
        settled(client)
        ends: dict[str, Grid | Bare] = {"grid": Grid(client), "bare": Bare(bare_uris)}

        def measured(name: str, round_: int) -> float:
            end = ends[name]
            end.forget()
            put = timed(lambda: end.put(rows))
            found: list[int] = []
            get = timed(lambda: found.append(end.get()))
            if found != [expected]:
                sys.exit(f"{name}: {found} rows instead of {expected}")
            if round_ >= WARM_UP:
                seconds[f"get-{name}"].append(get)
            return put

        ways = {name: lambda round_, name=name: measured(name, round_) for name in ends}
        seconds |= {f"put-{name}": found for name, found in in_turns(ways, ROUNDS, WARM_UP).items()}
        client.close()
    what = "MB in 542 batches, two copies, three members"
    return [
        Ratio.of_seconds(
            f"GR-{way}", f"{way} of 200 {what}", GOAL, seconds[f"{way}-grid"], seconds[f"{way}-bare"], SIZE
        )
        for way in ("put", "get")
    ]


if __name__ == "__main__":
    if "--serve" in sys.argv:
        server = BareServer()
        print(f"listens at grpc://127.0.0.1:{server.port}", flush=True)
        server.serve()
    else:
        main(study)
