"""The receivers of a run: the engine's messages to sources that acknowledge messages."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from sparkjet.errors import SourceError
from sparkjet.known_types import known
from sparkjet.query_log import logger
from sparkjet.sources.acknowledging.control import Acknowledge, ControlClient, Held, Start, Stop
from sparkjet.sources.acknowledging.ledger import LedgerState
from sparkjet.sources.acknowledging.offset import QueueOffset

if TYPE_CHECKING:
    from sparkjet.snapshots import SnapshotStore


class Receivers:
    """The receivers that the offsets of a run name, by the number or name of their source; see docs/design/021.

    An epoch calls :meth:`meet`, :meth:`save` and, once it is decided, :meth:`acknowledge`; one thread at a time.

    Args:
        store: The store in which the ids are saved.
        identified: Whether messages are identified by their ids: with exactly-once.
    """

    def __init__(self, store: SnapshotStore, *, identified: bool) -> None:
        self._store, self._identified = store, identified
        self._known: dict[str, _Receiver] = {}

    def meet(self, offsets: Mapping[str, str], saved: Mapping[str, str]) -> dict[str, int]:
        """Let receivers read that are new in the offsets of a batch."""
        positions: dict[str, int] = {}
        for source, text in offsets.items():
            offset = QueueOffset.found_in(text)
            if offset is None:
                continue
            positions[source] = offset.position
            before = self._known.get(source)
            if before is None or before.path != offset.receiver:
                receiver = _Receiver(offset.receiver)
                name = saved.get(source)
                state = (
                    None if name is None else msgspec.json.decode(self._store.read_blob(name), type=known(LedgerState))
                )
                receiver.line.ask(Start(identified=self._identified, state=state))
                self._known[source] = receiver
        return positions

    def save(self, positions: Mapping[str, int], name: str) -> dict[str, str]:
        """Write the ids that the record of an epoch must name into blobs; sources without ids need no blobs."""
        names: dict[str, str] = {}
        for source, position in positions.items():
            state = self._known[source].line.ask(Held(position))
            if state is not None and state.expected:
                names[source] = f"{name}-queues{source}"
                self._store.put_blob(names[source], msgspec.json.encode(state))
        return names

    def acknowledge(self, positions: Mapping[str, int]) -> None:
        """Have the messages of a decided epoch acknowledged, and wait for it.

        If this fails, nothing is lost: the messages are delivered again, and dropped.
        """
        for source, position in positions.items():
            try:
                self._known[source].line.ask(Acknowledge(position))
            except SourceError as error:
                logger.warning("messages up to %d are decided, but were not acknowledged: %s", position, error)

    def stop(self) -> None:
        """End the receivers, which Spark would not notify; nothing else of the query is running."""
        for each in self._known.values():
            # Spark may have ended the process already.
            with contextlib.suppress(SourceError):
                each.line.ask(Stop())
            each.line.close()
        self._known.clear()


class _Receiver:
    def __init__(self, path: str) -> None:
        self.path, self.line = path, ControlClient(path)
