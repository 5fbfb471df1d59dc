"""Sending: entries of one schema on their way to one member, in a thread of its own."""

from __future__ import annotations

import queue
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl

from sparkjet_grid.background import in_background
from sparkjet_grid.connections import Connections, refusals
from sparkjet_grid.errors import UnreachableError
from sparkjet_grid.messages import Held, HeldNow, Part, Put, decoded, encoded


class Sending:
    """One call that puts entries to a member.

    In the background, so that whoever waits for the answer need not wait for a member that has left meanwhile.

    Args:
        connections: To members.
        uri: Of the member.
        call: What begins the call.
        schema: Of all entries.
    """

    def __init__(self, connections: Connections, uri: str, call: Put, schema: pa.Schema) -> None:
        self._connections, self._uri, self._call, self._schema = connections, uri, call, schema
        self._entries: queue.SimpleQueue[tuple[Part, Sequence[pa.RecordBatch]] | None] = queue.SimpleQueue()
        self.answer = in_background(self._sent, f"grid-to-{uri}")
        """The entries as the member holds them now, or why it does not."""

    def send(self, part: Part, batches: Sequence[pa.RecordBatch]) -> None:
        """Send one entry; returns at once."""
        self._entries.put((part, batches))

    def finish(self) -> None:
        """There are no more entries."""
        self._entries.put(None)

    def _sent(self) -> list[Held]:
        with refusals(self._uri):
            descriptor = fl.FlightDescriptor.for_command(encoded(self._call))
            client, options = self._connections.to(self._uri), self._connections.options(self._call.seconds)
            writer, reader = client.do_put(descriptor, self._schema, options)
            # Closing raises what the member has refused; what it says counts more than that writing has failed.
            with writer:
                self._write(writer)
                writer.done_writing()
                answer = reader.read()
            if answer is None:
                raise UnreachableError(f"{self._uri} has ended the call without an answer.")
            return decoded(answer, HeldNow).held

    def _write(self, writer: Any) -> None:
        while (entry := self._entries.get()) is not None:
            part, batches = entry
            metadata = pa.py_buffer(encoded(part))
            for batch in batches:
                writer.write_with_metadata(batch, metadata)
