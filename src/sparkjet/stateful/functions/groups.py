"""Groups: the rows of one key after another, as users get them, from the pieces of a partition.

Runs in Spark's Python workers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, groupby
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from sparkjet.stateful.functions.pieces import Piece

STORED, INITIAL, INPUT = range(3)
"""Kinds of rows, in their order within a key."""
KIND = "kind"
MAX = 2**63 - 1
BELOW_ALL = -(2**63) - 1
COLUMNS = ("stored", "initial", "input")
"""The column for each kind of row, null in rows of the other kinds."""


class Reader(Protocol):
    """Converts Arrow to what users get."""

    rows: Any
    initial: Any

    def keys(self, columns: Sequence[pa.Array]) -> Sequence[tuple[Any, ...]]:
        """Keys as the user gets them."""
        ...

    def read(self, stored: pa.Array) -> Sequence[tuple[Any, ...]]:
        """The stored state of some keys."""
        ...


class Part:
    """A piece, with its columns as users get them."""

    def __init__(self, piece: Piece, keys: Sequence[str], reader: Reader) -> None:
        rows = piece.rows
        self.rows = rows
        self.continues = piece.continues
        self.starts = piece.starts
        starts = pa.array(piece.starts, pa.int64())
        self.keys = reader.keys([rows.column(key).take(starts) for key in keys])
        kinds = rows.column(KIND).to_numpy()
        self._counts = [[0, *np.cumsum(kinds == kind).tolist()] for kind in (STORED, INITIAL, INPUT)]
        stored = self._of(STORED, kinds)
        self._stored = reader.read(stored)
        self._due = list(zip(stored.field("due").to_pylist(), stored.field("latest").to_pylist(), strict=True))
        self._slices = {INPUT: reader.rows.of(self._of(INPUT, kinds).flatten())}
        if reader.initial is not None:
            self._slices[INITIAL] = reader.initial.of(self._of(INITIAL, kinds).flatten())

    def stored(self, start: int, stop: int) -> tuple[Any, ...] | None:
        """The stored state of a group, None if there is none."""
        counts = self._counts[STORED]
        return self._stored[counts[start]] if counts[stop] > counts[start] else None

    def stored_due(self, start: int, stop: int) -> tuple[int, int]:
        """The ``due`` of a group's stored row, and the latest it has had; the extremes if there is no row."""
        counts = self._counts[STORED]
        return self._due[counts[start]] if counts[stop] > counts[start] else (MAX, BELOW_ALL)

    def slices(self, kind: int, start: int, stop: int) -> Sequence[Any]:
        """A group's rows of one kind, as the user gets them."""
        first, last = self._counts[kind][start], self._counts[kind][stop]
        return self._slices[kind].slice(first, last) if last > first else ()

    def _of(self, kind: int, kinds: np.ndarray[Any, Any]) -> pa.Array:
        column = self.rows.column(COLUMNS[kind])
        return column if self._counts[kind][-1] == len(kinds) else column.filter(pa.array(kinds == kind))


class _Run:
    """The share of a part in a group: the rows from start to stop."""

    def __init__(self, part: Part, number: int, index: int, stop: int) -> None:
        self.part, self.number, self.index = part, number, index
        self.start, self.stop = part.starts[index], stop


class Group:
    """The rows of one key, read from Arrow as the user's function asks for them."""

    def __init__(self, run: _Run, others: Iterator[_Run]) -> None:
        self.key = run.part.keys[run.index]
        self.stored = run.part.stored(run.start, run.stop)
        self.stored_due = run.part.stored_due(run.start, run.stop)
        self.last = run
        """The part read so far."""
        self._elements = self._read(chain([run], others))
        self._next = next(self._elements, None)

    def initial(self) -> Iterator[Any]:
        """The initial state, to be read before :meth:`inputs`."""
        return self._taken(INITIAL)

    def inputs(self) -> Iterator[Any] | None:
        """The rows, None if there are none."""
        return None if self._next is None else self._taken(INPUT)

    def finish(self) -> None:
        """Skip whatever has not been read."""
        for _ in self._elements:
            pass

    def _read(self, runs: Iterable[_Run]) -> Iterator[tuple[int, Any]]:
        for run in runs:
            self.last = run
            for kind in (INITIAL, INPUT):
                for each in run.part.slices(kind, run.start, run.stop):
                    yield kind, each

    def _taken(self, kind: int) -> Iterator[Any]:
        while self._next is not None and self._next[0] == kind:
            _, element = self._next
            self._next = next(self._elements, None)
            yield element


def groups(pieces: Iterable[Piece], keys: Sequence[str], reader: Reader) -> Iterator[Group]:
    """The groups of a partition, one after another; each must be finished before the next."""
    for _, found in groupby(_runs(pieces, keys, reader), key=lambda run: run.number):
        runs = iter(found)
        yield Group(next(runs), runs)


def _runs(pieces: Iterable[Piece], keys: Sequence[str], reader: Reader) -> Iterator[_Run]:
    number = 0
    for piece in pieces:
        part = Part(piece, keys, reader)
        stops = [*part.starts[1:], part.rows.num_rows]
        for index, stop in enumerate(stops):
            number += not (index == 0 and part.continues)
            yield _Run(part, number, index, stop)
