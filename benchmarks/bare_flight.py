"""Bare Arrow Flight, the peer of the grid: servers that make the same copies and nothing else, and their client.

``python -m benchmarks.bare_flight`` serves on any free port.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl

STREAMS = 2
"""Calls to each server at a time, as many as the grid's client makes."""


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
        """Start over."""
        for client in self._clients:
            list(client.do_action(fl.Action("forget", b"")))

    def _each(self, work: Callable[[int, int, slice], Any]) -> list[Any]:
        servers = len(self._clients)
        count = servers * STREAMS
        with ThreadPoolExecutor(count) as pool:
            parts = [(n % servers, n // servers, slice(n, None, count)) for n in range(count)]
            return list(pool.map(lambda each: work(*each), parts))

    def _put(self, server: int, stream: int, rows: Sequence[pa.RecordBatch]) -> None:
        command = f"{stream} {self._uris[(server + 1) % len(self._uris)]}".encode()
        writer, answer = self._clients[server].do_put(fl.FlightDescriptor.for_command(command), rows[0].schema)
        with writer:
            for batch in rows:
                writer.write_batch(batch)
            writer.done_writing()
            answer.read()

    def _get(self, server: int, stream: int) -> int:
        reader = self._clients[server].do_get(fl.Ticket(b"%d" % stream))
        kept = [chunk.data for chunk in reader]
        return sum(batch.num_rows for batch in kept)


if __name__ == "__main__":
    server = BareServer()
    print(f"listens at grpc://127.0.0.1:{server.port}", flush=True)
    server.serve()
