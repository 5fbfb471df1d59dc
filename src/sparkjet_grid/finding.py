"""Finding: rows of a map by their keys; members search the layers that they hold."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from typing import NamedTuple

import pyarrow as pa

from sparkjet_grid.background import in_background
from sparkjet_grid.contact import AWAY, Contact
from sparkjet_grid.contents import Content
from sparkjet_grid.entries import Entries, Key
from sparkjet_grid.errors import MalformedError
from sparkjet_grid.getting import Wanted
from sparkjet_grid.map_layers import EXPIRES, GONE, HASH, found
from sparkjet_grid.messages import FindRows, FoundRows, Lookup

_PIECE = 4 << 20
"""Bytes of rows in one message, unless a single row has more."""
_TOGETHER = 1 << 30
"""Bytes of layers that are searched together: an Arrow column of text has room for twice as many."""
_CALL = 30.0


class Found(NamedTuple):
    """Rows that were found, with the columns of layers, and the place of the key of each."""

    places: list[int]
    rows: pa.RecordBatch


def rows_of(entries: Entries, request: FindRows) -> Iterator[FoundRows]:
    """Answer a request, on a member, with the rows that it asks for."""
    lacking: list[int] = []
    left: list[tuple[list[Content], list[tuple[int, int, str]]]] = []
    for lookup in request.lookups:
        layers = [layer for name in lookup.layers if (layer := entries.get(Key(lookup.partition, name))) is not None]
        if len(layers) < len(lookup.layers):
            lacking.append(lookup.partition)
        elif layers:
            left.append((layers, lookup.keys))
    yield FoundRows([], b"", lacking)
    while left:
        there: set[int] = set()
        # The newest layer of each partition that has not been searched yet.
        for layers, wanted in _by_schema([(layers[0], keys) for layers, keys in left], request.columns):
            places, rows = found([layer.batches for layer in layers], request.columns, wanted)
            if rows is not None and places:
                yield from _pieces(places, rows)
                there.update(places)
        rest = [(layers[1:], [key for key in keys if key[0] not in there]) for layers, keys in left]
        left = [(layers, keys) for layers, keys in rest if layers and keys]


def _by_schema(
    layers: Sequence[tuple[Content, list[tuple[int, int, str]]]], columns: Sequence[str]
) -> Iterator[tuple[list[Content], list[list[tuple[int, int, str]]]]]:
    groups: list[tuple[list[Content], list[list[tuple[int, int, str]]]]] = []
    size = 0
    for layer, keys in layers:
        size += layer.size
        if size > _TOGETHER:
            yield from groups
            groups, size = [], layer.size
        # Most maps have one schema; looking it up in a dictionary takes longer than finding the rows.
        group = next((each for each in groups if each[0][0].schema.equals(layer.schema)), None)
        if group is None:
            _check(layer, columns)
            group = [], []
            groups.append(group)
        group[0].append(layer)
        group[1].append(keys)
    yield from groups


class Finding:
    """Has members find rows in the layers that they hold; where one fails, other replicas are asked.

    Args:
        contact: With the cluster.
    """

    def __init__(self, contact: Contact) -> None:
        self._contact = contact

    def find(self, columns: Sequence[str], lookups: Sequence[Lookup]) -> list[Found]:
        """See :meth:`sparkjet_grid.client.GridClient.find`."""
        # By the first layer: a member that lacks one layer of a partition is not asked for the others.
        wanted = Wanted(self._contact, {Key(lookup.partition, lookup.layers[0]): lookup for lookup in lookups})
        rows: list[Found] = []
        for _ in wanted.rounds():
            for member, group, answer in self._calls(columns, wanted):
                try:
                    answers = self._contact.awaited(answer, member, _CALL)
                except AWAY as error:
                    wanted.lack(group, member, error)
                    continue
                partitions = {partition for each in answers for partition in each.lacking}
                wanted.lack([key for key in group if key.partition in partitions], member)
                rows += [_rows_in(each) for each in answers if each.places]
                for key in group:
                    if key.partition not in partitions:
                        del wanted.left[key]
        return rows

    def _calls(self, columns: Sequence[str], wanted: Wanted[Lookup]) -> list[_Call]:
        # Many partitions have the same few replicas.
        nearest = functools.cache(self._contact.nearest)
        groups: dict[str, list[Key]] = {}
        for key in wanted.left:
            if replicas := wanted.replicas(key):
                groups.setdefault(nearest(tuple(replicas)), []).append(key)
        calls = []
        for member, group in groups.items():
            request = FindRows(list(columns), [wanted.left[key] for key in group])
            answer = in_background(functools.partial(self._asked, member, request), f"grid-find-{member}")
            calls.append(_Call(member, group, answer))
        return calls

    def _asked(self, member: str, request: FindRows) -> list[FoundRows]:
        contact = self._contact
        return list(contact.connections.answers(contact.uri(member), request, FoundRows, _CALL))


class _Call(NamedTuple):
    """A call in progress."""

    member: str
    group: list[Key]
    answer: Future[list[FoundRows]]


def _rows_in(answer: FoundRows) -> Found:
    with pa.ipc.open_stream(answer.rows) as reader:
        batch = reader.read_next_batch()
    if batch.num_rows != len(answer.places):
        raise MalformedError(f"{batch.num_rows} rows were found for {len(answer.places)} keys.")
    return Found(answer.places, batch)


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
        raise MalformedError(f"an entry with the columns {schema.names} is not a layer of a map with keys {columns}.")
