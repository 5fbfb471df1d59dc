"""Finding: rows of a map by their keys, which members look for in the layers that they hold."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from typing import NamedTuple

import pyarrow as pa

from sparkjet.grid.background import in_background
from sparkjet.grid.contact import AWAY, Contact
from sparkjet.grid.contents import Content
from sparkjet.grid.entries import Entries, Key
from sparkjet.grid.errors import MalformedError
from sparkjet.grid.getting import again
from sparkjet.grid.map_layers import EXPIRES, GONE, HASH, found
from sparkjet.grid.requests import FindRows, FoundRows, Lookup

_PIECE = 4 << 20
"""Bytes of rows in one message, unless a row has more."""
_CALL = 30.0


class FoundRow(NamedTuple):
    """A row that was found: for which key, in which batch of a layer's schema, and whether and until when it is one."""

    place: int
    batch: pa.RecordBatch
    row: int
    gone: bool
    expires: int | None


def rows_of(entries: Entries, request: FindRows) -> Iterator[FoundRows]:
    """In a member: the rows that are asked for.

    Raises:
        MalformedError: An entry that is named is no layer with such keys.
    """
    lacking: list[int] = []
    by_schema: list[tuple[pa.Schema, list[int], list[pa.RecordBatch]]] = []
    for lookup in request.lookups:
        layers = [entries.get(Key(lookup.partition, name)) for name in lookup.layers]
        left = lookup.keys
        if any(layer is None for layer in layers):
            lacking.append(lookup.partition)
            continue
        for layer in layers:
            assert layer is not None  # noqa: S101 - as above
            # Of most maps all layers have one; to look it up in a dictionary takes longer than the rows.
            same = next((each for each in by_schema if each[0].equals(layer.schema)), None)
            if same is None:
                _check(layer, request.columns)
                same = layer.schema, [], []
                by_schema.append(same)
            _, places, rows = same
            wanted = [(hash_, text) for _, hash_, text in left]
            where = found(layer.batches, request.columns, wanted)
            for (place, _, _), at in zip(left, where, strict=True):
                if at is not None:
                    places.append(place)
                    rows.append(layer.batches[at[0]].slice(at[1], 1))
            left = [key for key, at in zip(left, where, strict=True) if at is None]
            if not left:
                break
    yield FoundRows([], b"", lacking)
    for _, places, rows in by_schema:
        if places:
            yield from _pieces(places, pa.concat_batches(rows))


class Finding:
    """Has rows found by the members that hold their layers, by others where these fail.

    Args:
        contact: With the cluster.
    """

    def __init__(self, contact: Contact) -> None:
        self._contact = contact

    def find(self, columns: Sequence[str], lookups: Sequence[Lookup]) -> list[FoundRow]:
        """See :meth:`sparkjet.grid.client.GridClient.find`."""
        # A member that lacks one layer of a partition is asked for no other one of it.
        left = {Key(lookup.partition, lookup.layers[0]): lookup for lookup in lookups}
        lacking: dict[Key, set[str]] = {}
        rows: list[FoundRow] = []
        until = time.monotonic() + self._contact.patience
        while left:
            before, failure = len(left), None
            for member, group, answer in self._answers(columns, left, lacking):
                try:
                    answers = self._contact.awaited(answer, member, _CALL)
                except AWAY as error:
                    failure = error
                    lacked = set(group)
                else:
                    partitions = {partition for each in answers for partition in each.lacking}
                    lacked = {key for key in group if key.partition in partitions}
                    rows += [row for each in answers for row in _rows_in(each)]
                for key in group:
                    if key in lacked:
                        lacking.setdefault(key, set()).add(member)
                    else:
                        del left[key]
            if len(left) < before:
                until = time.monotonic() + self._contact.patience
            elif left:
                lacking = again(self._contact, list(left), lacking, failure, until)
        return rows

    def _answers(self, columns: Sequence[str], left: dict[Key, Lookup], lacking: dict[Key, set[str]]) -> list[_Call]:
        rows = self._contact.state().rows
        groups: dict[str, list[Key]] = {}
        for key in left:
            replicas = [each for each in rows[key.partition].replicas if each not in lacking.get(key, ())]
            if replicas:
                groups.setdefault(self._contact.nearest(replicas), []).append(key)
        calls = []
        for member, group in groups.items():
            asking = partial(self._asked, member, FindRows(list(columns), [left[key] for key in group]))
            calls.append(_Call(member, group, in_background(asking, f"grid-find-{member}")))
        return calls

    def _asked(self, member: str, request: FindRows) -> list[FoundRows]:
        contact = self._contact
        return list(contact.connections.answers(contact.uri(member), request, FoundRows, _CALL))


class _Call(NamedTuple):
    """A call that is under way."""

    member: str
    group: list[Key]
    answer: Future[list[FoundRows]]


def _rows_in(answer: FoundRows) -> Iterator[FoundRow]:
    if not answer.places:
        return
    with pa.ipc.open_stream(answer.rows) as reader:
        batch = reader.read_next_batch()
    if batch.num_rows != len(answer.places):
        raise MalformedError(f"{batch.num_rows} rows were found for {len(answer.places)} keys.")
    gone, expires = (batch.column(name).to_pylist() for name in (GONE, EXPIRES))
    for row, place in enumerate(answer.places):
        yield FoundRow(place, batch, row, gone[row], expires[row])


def _pieces(places: Sequence[int], rows: pa.RecordBatch) -> Iterator[FoundRows]:
    """Rows in messages of limited size."""
    if rows.nbytes > _PIECE and len(places) > 1:
        half = len(places) // 2
        yield from _pieces(places[:half], rows.slice(0, half))
        yield from _pieces(places[half:], rows.slice(half))
        return
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_batch(rows)
    yield FoundRows(list(places), sink.getvalue().to_pybytes(), [])


def _check(layer: Content, columns: Sequence[str]) -> None:
    schema = layer.schema
    names = {HASH: pa.int64(), GONE: pa.bool_(), EXPIRES: pa.int64()}
    is_layer = all(name in schema.names and schema.field(name).type == kind for name, kind in names.items())
    if not is_layer or schema.field(HASH).nullable or not set(columns) <= set(schema.names):
        raise MalformedError(f"an entry with the columns {schema.names} is no layer of a map with keys {columns}.")
