"""Fetching: entries from one member, of any number of schemas."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.flight as fl

from sparkjet_grid.connections import Connections, refusals
from sparkjet_grid.contents import Digest
from sparkjet_grid.entries import Key
from sparkjet_grid.errors import MalformedError
from sparkjet_grid.messages import Get, Piece, decoded, encoded


class Fetched(NamedTuple):
    """An entry as it came."""

    key: Key
    schema: pa.Schema
    batches: list[pa.RecordBatch]
    digest: Digest


def fetched(
    connections: Connections, uri: str, keys: Sequence[Key], seconds: float, sender: str = ""
) -> Iterator[Fetched]:
    """The entries that a member holds of some, as they come; what it does not hold is left out."""
    left = list(keys)
    while left:
        came: set[Key] = set()
        for each in _of_one_schema(connections, uri, Get(left, sender), seconds):
            came.add(each.key)
            yield each
        left = [key for key in left if key not in came] if came else []


def _of_one_schema(connections: Connections, uri: str, call: Get, seconds: float) -> Iterator[Fetched]:
    entry: Fetched | None = None
    with refusals(uri):
        reader = connections.to(uri).do_get(fl.Ticket(encoded(call)), connections.options(seconds))
        schema = reader.schema
        for chunk in reader:
            position = decoded(chunk.app_metadata, Piece).position
            if position >= len(call.keys):
                raise MalformedError(f"{uri} has sent what it was not asked for.")
            key = call.keys[position]
            if entry is not None and entry.key != key:
                yield entry
                entry = None
            entry = entry or Fetched(key, schema, [], Digest())
            entry.batches.append(chunk.data)
            entry.digest.add(chunk.data)
    if entry is not None:
        yield entry
