"""Common code of the sinks of maps and journals: one version in the grid for each epoch, by one writer."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Generic, TypeVar

import msgspec

from sparkjet.clock import Clock, SystemClock
from sparkjet.errors import (
    AnalysisError,
    CopiedHomeError,
    LostTransactionError,
    RecoveryError,
    SinkError,
    StorageError,
)
from sparkjet.sinks.copies import check_run, origin
from sparkjet.sinks.protocol import Guarantee, Handle, TransactionId
from sparkjet.storage.grid_location import check_whole
from sparkjet_grid.errors import LostRowsError, MissingEntriesError
from sparkjet_grid.known_types import known
from sparkjet_grid.messages import Held
from sparkjet_grid.places import Version, Writer
from sparkjet_grid.reader_leases import LeaseBook
from sparkjet_grid.version_store import VersionStore

if TYPE_CHECKING:
    from sparkjet.storage.grid_location import GridLocation

V = TypeVar("V", bound=Version)


class GridVersionsSink(Generic[V]):
    """Writes a version for each epoch that has rows: before the decision, and visible by one slot after it.

    Args:
        store: Store of the versions.
        location: The grid.
        path: Location of the map or journal, as given by the user.
        clock: Dates epochs for which no other clock is given.
    """

    guarantee = Guarantee.EXACTLY_ONCE

    def __init__(self, store: VersionStore[V], location: GridLocation, path: str, clock: Clock | None) -> None:
        self._store, self._location, self._path = store, location, path
        self._place = store.place
        self._clock = clock or SystemClock()
        self._leases = LeaseBook(time.monotonic)
        self._newest: V | None = None
        """The newest version known to have been visible."""
        self._seen_ahead = 0, 0
        """Number of a version, and how far its clock was ahead of the query's at most."""

    def check_alive(self, handle: Handle) -> None:
        """See :meth:`Expiring.check_alive`: members may have been lost since."""
        try:
            self._store.check(self._store.decoded(_manifest(handle)))
        except StorageError as error:
            raise SinkError(str(error)) from error

    def commit(self, handle: Handle, between: Callable[[], None]) -> None:
        """See :meth:`Sink.commit`."""
        store = self._store_of(handle)
        self._publish(store, handle, between)

    def published_after(self, newest: TransactionId, handle: Handle | None) -> str | None:
        """See :meth:`Sink.published_after`."""
        version = self._newest = self._store.newest()
        writer = self._store.writer()
        if writer not in {None, Writer(newest.query, newest.sink)}:
            raise RecoveryError(self._other_writer(writer))
        if handle is not None and handle[self._place.kind] == self._place.name:
            self._check_there(version, handle)
        if version is None or version.epoch <= newest.epoch:
            return None
        return (
            f"{self._place} has epoch {version.epoch}. Restore the newest copy of the home, with which nothing is "
            f"lost or repeated. Or go on from this one with another {self._place.kind} (path): epochs from "
            f"{newest.epoch + 1} on are computed again and written there. Or remove it (python -m sparkjet grid "
            f"{self._place.kind} remove), and start from scratch with another checkpointLocation."
        )

    def abort_orphans(self, query: str, takeover: int, keep: Sequence[Handle]) -> None:
        """See :meth:`Sink.abort_orphans`."""
        writer = self._store.writer()
        if writer is not None and writer.query == query:
            decided = [_manifest(handle) for handle in keep if handle[self._place.kind] == self._place.name]
            self._store.undo(lambda name: int(name.partition("-")[0]) < takeover, decided)
            self._store.clean(self._leases)

    def abort(self, transaction: TransactionId) -> None:
        """See :meth:`Aborting.abort`."""
        self._store.undo(lambda name: name == str(transaction))

    def _store_of(self, handle: Handle) -> VersionStore[V]:
        """The store in which a transaction was prepared: ``path`` may have named another place in this grid then."""
        name = handle[self._place.kind]
        here = self._place.name == name
        return self._store if here else type(self._store)(self._store.client, type(self._place)(name))

    def _publish(self, store: VersionStore[V], handle: Handle, between: Callable[[], None]) -> None:
        number, manifest = handle["number"], _manifest(handle)
        while not self._is_published(store, handle, last := store.last()):
            if number > 1 and (last is None or last[0] < number - 1):
                message = (
                    f"Epoch {handle['epoch']} was decided, but {store.place} has no version {number - 1} "
                    f"that it goes on from: it was removed, or its grid was lost. {self._way_out()}"
                )
                raise LostTransactionError(message)
            try:
                # If another has put it, this is found out next.
                is_ours = store.publish(manifest)
            except LostRowsError as error:
                raise LostTransactionError(f"Epoch {handle['epoch']} was decided, but {error}") from error
            if is_ours:
                if store is self._store:
                    self._newest = store.decoded(manifest)
                between()
                store.clean(self._leases)
                return

    def _check_not_removed(self, base: V | None) -> None:
        # Otherwise the epoch would begin another one, without the rows of those before.
        if self._newest is not None and (base is None or base.number < self._newest.number):
            message = (
                f"{self._named} was removed, or its grid was lost, while this query was writing it. {self._way_out()}"
            )
            raise SinkError(message)

    def _check_writer(self, base: V | None, transaction: TransactionId) -> None:
        own = Writer(transaction.query, transaction.sink)
        if base is None or Writer(base.query, base.output) != own:
            # Later there need be no look at the slot: it goes after all versions.
            writer = self._store.claim(own)
            if writer != own:
                raise SinkError(self._other_writer(writer))
        if base is not None:
            check_run({"epoch": transaction.epoch, **origin(transaction)}, base.epoch, base.run, self._named)

    def _other_writer(self, writer: Writer | None) -> str:
        whose = f"output {writer.output!r} of query {writer.query}" if writer is not None else "another query"
        return (
            f"{self._named} is written by {whose}, and a {self._place.kind} has one writer. Write into "
            f"another one; or, if that query is gone for good, remove it first: python -m sparkjet grid "
            f"{self._place.kind} remove {self._path}"
        )

    def _check_there(self, version: V | None, handle: Handle) -> None:
        number = version.number if version is not None else 0
        # The newest decided one may not have been published yet.
        if number < handle["number"] and (number < handle["number"] - 1 or not self._is_written(handle)):
            has = "is not there" if version is None else f"has epoch {version.epoch} only"
            message = (
                f"{self._named} {has}, and this query has published epoch {handle['epoch']} into it: it was removed, "
                f"or its grid was lost. {self._way_out()}"
            )
            raise RecoveryError(message)
        if version is not None:
            try:
                self._store.check(version)
            except LostRowsError as error:
                raise RecoveryError(str(error)) from error

    def _is_written(self, handle: Handle) -> bool:
        try:
            self._store.decoded(_manifest(handle))
        except MissingEntriesError:
            return False
        return True

    def _is_published(self, store: VersionStore[V], handle: Handle, last: tuple[int, Held] | None) -> bool:
        """Whether the version is or was visible, judging by the newest one."""
        number, manifest = handle["number"], _manifest(handle)
        if last is None or last[0] < number:
            return False
        named = f"{store.place} of {self._location}"
        there = last[1] if last[0] == number else store.manifest_at(number)
        if there is not None and there.name == manifest.name:
            return True
        newest = store.newest()
        if newest is None or newest.number < number:
            # Removed in the meantime, which the next look finds.
            return False
        check_run(handle, newest.epoch, newest.run, named)
        if there is not None:
            message = (
                f"{named} has another epoch {newest.epoch} of this query in the place of epoch "
                f"{handle['epoch']}: another copy of this home has published it. End one of the two queries."
            )
            raise CopiedHomeError(message)
        return True

    def _way_out(self) -> str:
        return (
            "Start the query from the beginning of its source, with another checkpointLocation: that builds the "
            f"{self._place.kind} again."
        )

    @property
    def _named(self) -> str:
        return f"{self._place} of {self._location}"

    def _check_grid(self) -> V | None:
        """The newest version, in a grid that can be used."""
        check_whole(self._store.client, "path", self._path)
        try:
            return self._store.newest()
        except StorageError as error:
            raise AnalysisError(f'path: {self._place.kind} "{self._path}" cannot be used: {error}') from error

    def _begin(self, transaction: TransactionId) -> tuple[V | None, int]:
        """The version that the next one follows, and the next one's clock."""
        base = self._store.newest()
        self._check_not_removed(base)
        self._newest = base
        self._check_writer(base, transaction)
        now = self._now(transaction)
        return base, now + self._ahead(base, now)

    def _now(self, transaction: TransactionId) -> int:
        return self._clock.now() if transaction.clock is None else transaction.clock

    def _ahead(self, version: V | None, now: int) -> int:
        """Microseconds by which the clock of a version's successor is ahead of a reading of the query's clock.

        What has expired, or was released, must not come back when that clock is set back; and what is there then must
        not last that much longer, so the clock of versions moves on rather than stands still, even in a lull.
        """
        if version is None:
            return 0
        number, seen = self._seen_ahead
        ahead = max(version.ahead, version.clock - now, seen if number == version.number else 0)
        self._seen_ahead = version.number, ahead
        return ahead

    def _handle(self, version: V, transaction: TransactionId, rows: int) -> Handle:
        """The record's handle for a version being written."""
        return {
            self._place.kind: self._place.name,
            "query": transaction.query,
            "sink": transaction.sink,
            "epoch": transaction.epoch,
            "number": version.number,
            "manifest": msgspec.to_builtins(self._store.write(version, str(transaction))),
            "rows": rows,
            **origin(transaction),
        }


def _manifest(handle: Handle) -> Held:
    return msgspec.convert(handle["manifest"], known(Held))
