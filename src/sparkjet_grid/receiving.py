"""Receiving: a call that puts entries on a member, as their primary or as a backup."""

from __future__ import annotations

import time
from contextlib import AbstractContextManager
from typing import Any

import pyarrow as pa
from typing_extensions import Self

from sparkjet_grid.connections import Connections, Sending
from sparkjet_grid.contents import Content, Digest, check_batch, check_schema, size_of
from sparkjet_grid.entries import Entries, Key
from sparkjet_grid.errors import DifferentContentError, GridFullError, MalformedError, MovedError
from sparkjet_grid.messages import Held, Part, Put
from sparkjet_grid.view import View

_NEWER_WITHIN = 2.0
"""Seconds in which a state that another member knows should arrive here."""
_LOOK = 1.0
"""Seconds between two checks whether a pending answer can still arrive."""
_GONE_WITHIN = 5.0
"""Seconds in which a silent member should have been removed: more than the control plane keeps it."""


class Receiving(AbstractContextManager["Receiving"]):
    """Receives the record batches of one call.

    The primary stores an entry and decides in the same step which members it forwards it to: later replicas find it in
    the list of what to copy. It acknowledges when all these members have stored it, or have left.

    Args:
        call: The first message of the call.
        schema: Of all entries.
        entries: Of this member.
        view: Of this member.
        connections: To the other members.

    Raises:
        MalformedError: The schema has types that a grid does not hold.
    """

    def __init__(self, call: Put, schema: pa.Schema, entries: Entries, view: View, connections: Connections) -> None:
        check_schema(schema)
        self._call, self._schema, self._view, self._connections = call, schema, view, connections
        self._room = entries.reserve()
        self._entries = entries
        self._part: Part | None = None
        self._batches: list[pa.RecordBatch] = []
        self._size = 0
        self._digest = Digest()
        self._sendings: dict[str, Sending] = {}
        self._sent: dict[str, dict[int, int]] = {}
        self._held: list[Held] = []

    def take(self, batch: pa.RecordBatch, part: Part) -> None:
        """Take a batch; with its last batch an entry is stored and forwarded."""
        if self._part is None:
            self._part = part
        if part != self._part:
            raise MalformedError(f'entry "{self._part.name}" is not complete when "{part.name}" begins.')
        size = size_of(batch)
        self._room.take(size)
        check_batch(batch)
        if not self._call.sender:
            # Once is enough: readers compare it, and pass over a replica whose entry has another one.
            self._digest.add(batch)
        self._batches.append(batch)
        self._size += size
        if len(self._batches) == part.batches:
            digest = part.digest if self._call.sender else str(self._digest)
            content = Content.of(self._schema, self._batches, digest, self._size)
            self._part, self._batches, self._size, self._digest = None, [], 0, Digest()
            if self._call.sender:
                self._store_as_backup(part, content)
            else:
                self._store_as_primary(part, content)
            self._held.append(Held(part.partition, part.name, content.rows, content.size, content.digest))

    def finish(self) -> list[Held]:
        """Wait until all members have answered; returns the entries."""
        if self._part is not None:
            raise MalformedError(f'entry "{self._part.name}" is not complete.')
        for sending in self._sendings.values():
            sending.finish()
        for member, sending in self._sendings.items():
            self._await(member, sending)
        # A former primary that had no backups to refuse its entries must not acknowledge them.
        self._view.check()
        if not self._call.sender:
            for partition in {held.partition for held in self._held}:
                self._view.primary_row(partition)
        return self._held

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for sending in self._sendings.values():
            sending.finish()
        self._room.__exit__()

    def _store_as_primary(self, part: Part, content: Content) -> None:
        key = Key(part.partition, part.name)
        view = self._view
        with view.changes:
            view.check()
            row = view.primary_row(key.partition)
            self._room.store(key, content)
            members = {member: view.uri(member) for member in view.holders(key.partition)}
        forwarded = Part(part.partition, part.name, part.batches, row.version, content.rows, content.digest)
        for member, uri in members.items():
            self._to(member, uri).send(forwarded, content.batches)
            self._sent.setdefault(member, {})[key.partition] = row.version

    def _store_as_backup(self, part: Part, content: Content) -> None:
        if part.rows != content.rows:
            raise MalformedError(f'entry "{part.name}" has {content.rows} rows here, and {part.rows} at its primary.')
        view, key = self._view, Key(part.partition, part.name)
        with view.changes:
            view.wait(lambda: view.row(key.partition).version >= part.version, _NEWER_WITHIN)
            view.check()
            row = view.row(key.partition)
            if row.version != part.version:
                raise MovedError(f"partition {key.partition} has changed: {row.version} instead of {part.version}.")
            if row.replicas[:1] != (self._call.sender,) or view.me not in {*row.replicas, *row.target}:
                raise MovedError(f"partition {key.partition} is not handed on from there to here.")
            self._room.store(key, content)

    def _to(self, member: str, uri: str) -> Sending:
        if member not in self._sendings:
            call = Put(self._view.me, self._call.seconds)
            sending = self._sendings[member] = Sending(self._connections, uri, call, self._schema)
            sending.answer.add_done_callback(self._notify)
        return self._sendings[member]

    def _notify(self, _: Any) -> None:
        with self._view.changes:
            self._view.changes.notify_all()

    def _await(self, member: str, sending: Sending) -> None:
        view, answer = self._view, sending.answer

        def has_left() -> bool:
            return all(member not in view.holders(partition) for partition in self._sent[member])

        def has_moved() -> bool:
            return any(view.row(partition).version != version for partition, version in self._sent[member].items())

        until = time.monotonic() + self._call.seconds
        while not view.wait(lambda: answer.done() or has_left(), _LOOK):
            if time.monotonic() > until:
                raise MovedError(f"member {member} has not answered within {self._call.seconds:.0f} s.")
            self._connections.nudge(view.uri(member))
        error = answer.exception() if answer.done() else None
        if isinstance(error, (GridFullError, DifferentContentError)):
            raise error
        # A member that refuses it knows a newer row, which will arrive here too; one that is gone will be removed soon.
        if error is not None and not (view.wait(has_moved, _GONE_WITHIN) and has_left()):
            raise MovedError(f"member {member} has not stored what was handed on to it: {error}")
