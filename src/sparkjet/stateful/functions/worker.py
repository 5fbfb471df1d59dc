"""The worker: runs a user's function over the keys of a partition, from record batches to record batches.

Runs in Spark's Python workers. This package is shipped there with the function: sparkjet need not be installed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from sparkjet.stateful.functions.frames import OutputError
from sparkjet.stateful.functions.groups import Group, Part, Reader, groups
from sparkjet.stateful.functions.handle import EpochTimes
from sparkjet.stateful.functions.pieces import Piece, pieces
from sparkjet.stateful.functions.values import UnfitStateError

NEVER = 2**63 - 1
"""The time at which a key without a timer is due."""
TIMES = ("now", "before", "watermark", "reached")
"""Columns of :class:`EpochTimes`, and the time before which stored rows are dead; microseconds, equal in all rows."""
_OUT = ("key_hash", "emitted", "kept")
_MILLISECOND = 1_000
_LONGEST_SHOWN = 300


class FunctionError(Exception):
    """A user's function failed; the message names the function and the key."""

    condition = "SPARKJET_FUNCTION"

    def __str__(self) -> str:
        # Not an error of sparkjet.errors, which is not shipped: Spark forwards its text.
        return f"[{self.condition}] {super().__str__()}"


class _Kept(NamedTuple):
    """The state to store for a group; ``row`` is one of its rows in the part that was read last."""

    group: Group
    row: int
    state: tuple[Any, ...] | None
    due: int
    latest: int


class Calls(Reader, Protocol):
    """Calls a user's function."""

    returned: Any

    @property
    def where(self) -> str:
        """The user's method that is being called, in words."""
        ...

    def start(self, times: EpochTimes) -> None:
        """Prepare for the keys of a task."""
        ...

    def call(self, group: Group) -> Iterable[Any]:
        """The user's output for a key."""
        ...

    def kept(self) -> tuple[bool, tuple[Any, ...] | None, int | None]:
        """The outcome for the last key: whether its state changed, the state, and the millisecond it is due at."""
        ...

    def write(self, kept: Sequence[tuple[Any, ...] | None]) -> Sequence[pa.Array]:
        """Columns with the state of some keys; None is a key without state."""
        ...

    def close(self) -> None:
        """Called after the last key."""
        ...


class Worker:
    """Runs a user's function over rows grouped by key, those of a key sorted by ``kind``.

    Takes ``(key_hash, keys…, kind, stored, input, position, now, before, watermark, reached)``. Returns ``(key_hash,
    emitted, kept)``, where one of the last two is null: ``emitted`` is an output row, ``kept`` is the new state
    ``(keys…, due, latest, gone, state…)`` of a key. ``stored`` is ``(due, latest, state…)``: rows in the store are
    alive until ``due``, and ``latest`` is the latest ``due`` that the key has had. A row with ``gone`` hides older ones
    until those are dead.

    Args:
        calls: Calls the user's function.
        keys: Names of the key columns.
        longest: Maximum number of rows of a key that are passed at once.
    """

    def __init__(self, calls: Calls, keys: Sequence[str], longest: int) -> None:
        self._calls = calls
        self._keys = list(keys)
        self._longest = longest
        self._type = pa.struct([])
        self._emitted: list[tuple[tuple[Any, ...], list[Any]]] = []
        self._kept: list[_Kept] = []
        self._reached = 0

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The body of ``mapInArrow``."""
        cut = pieces(batches, self._longest)
        first = next(cut, None)
        if first is None:
            return
        self._start(first)
        part: Part | None = None
        count = 0
        for group in groups(chain([first], cut), self._keys, self._calls):
            if part is not None and group.last.part is not part:
                yield from self._flushed(part)
                count = 0
            for returned in self._called(group):
                if returned:
                    self._emitted.append((group.key, returned))
                    count += self._calls.returned.count(returned)
                if count >= self._longest:
                    yield self._emitted_batch(group.last.part)
                    count = 0
            group.finish()
            part = group.last.part
            self._keep(group)
        if part is not None:
            yield from self._flushed(part)
        self._guarded(self._calls.close)

    def _start(self, first: Piece) -> None:
        row = first.rows
        *visible, self._reached = (row.column(each)[0].as_py() for each in TIMES)
        now, before, watermark = (each // _MILLISECOND for each in visible)
        self._guarded(lambda: self._calls.start(EpochTimes(now, before, watermark)))
        stored = row.schema.field("stored").type
        marks = [stored.field(0), stored.field(1), pa.field("gone", pa.bool_())]
        state = [stored.field(i) for i in range(2, stored.num_fields)]
        self._type = pa.struct([*map(row.schema.field, self._keys), *marks, *state])

    def _called(self, group: Group) -> Iterator[list[Any]]:
        try:
            for each in self._calls.call(group):
                yield self._calls.returned.checked(each)
        except Exception as error:
            raise self._failed(group.key, error) from error

    def _keep(self, group: Group) -> None:
        changed, state, millisecond = self._calls.kept()
        due, latest = group.stored_due
        # A row that was due is dead, whether or not anything came of it.
        if not changed and due >= self._reached:
            return
        if state is not None:
            # Just before it, as the watermark reaches it; but alive, if it is in the past.
            due = NEVER if millisecond is None else min(max(millisecond * _MILLISECOND - 1, self._reached), NEVER)
            self._kept.append(_Kept(group, group.last.start, state, due, max(due, latest)))
        elif latest >= self._reached:
            self._kept.append(_Kept(group, group.last.start, None, latest, latest))

    def _flushed(self, part: Part) -> Iterator[pa.RecordBatch]:
        if self._emitted:
            yield self._emitted_batch(part)
        if self._kept:
            yield self._kept_batch(part)

    def _emitted_rows(self) -> pa.Array:
        emitted, self._emitted = self._emitted, []
        array = self._calls.returned.array
        try:
            return array([row for _, rows in emitted for row in rows])
        except OutputError:
            for key, rows in emitted:
                try:
                    array(rows)
                except OutputError as error:
                    raise self._failed(key, error) from error
            raise

    def _kept_batch(self, part: Part) -> pa.RecordBatch:
        kept, self._kept = self._kept, []
        states = [each.state for each in kept]
        try:
            columns = self._calls.write(states)
        except UnfitStateError:
            for each in kept:
                try:
                    self._calls.write([each.state])
                except UnfitStateError as error:
                    raise self._failed(each.group.key, error) from error
            raise
        rows = pa.array([each.row for each in kept], pa.int64())
        hashes, *keys = (part.rows.column(name).take(rows) for name in ("key_hash", *self._keys))
        due, latest = pa.array([each.due for each in kept]), pa.array([each.latest for each in kept])
        gone = pa.array([state is None for state in states], pa.bool_())
        fields = [self._type.field(i) for i in range(self._type.num_fields)]
        arrays = [
            array if array.type == each.type else array.cast(each.type)
            for array, each in zip([*keys, due, latest, gone, *columns], fields, strict=True)
        ]
        state = pa.StructArray.from_arrays(arrays, fields=fields)
        return pa.RecordBatch.from_arrays([hashes, pa.nulls(len(kept), self._calls.returned.arrow), state], _OUT)

    def _emitted_batch(self, part: Part) -> pa.RecordBatch:
        rows = self._emitted_rows()
        # Of any key of the partition, so that the rows stay where they are.
        hashes = pa.repeat(part.rows.column("key_hash")[0], len(rows))
        return pa.RecordBatch.from_arrays([hashes, rows, pa.nulls(len(rows), self._type)], _OUT)

    def _guarded(self, step: Callable[[], None]) -> None:
        try:
            step()
        except Exception as error:
            raise self._failed(None, error) from error

    def _failed(self, key: tuple[Any, ...] | None, error: Exception) -> FunctionError:
        shown = repr(key)
        if len(shown) > _LONGEST_SHOWN:
            shown = f"{shown[:_LONGEST_SHOWN]}…"
        of_key = "" if key is None else f" for the key {shown}"
        return FunctionError(f"{self._calls.where} failed{of_key}: {type(error).__name__}: {error}")
