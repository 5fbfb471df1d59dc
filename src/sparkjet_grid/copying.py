"""Copying: a member pulls the partitions that it should hold from their primaries, and drops the others."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

from sparkjet_grid.background import Loop, in_background
from sparkjet_grid.cluster_state import ClusterState, ready
from sparkjet_grid.connections import Connections, Fetched, fetched, grouped
from sparkjet_grid.contents import Content, check_batch, check_schema
from sparkjet_grid.control import Control
from sparkjet_grid.entries import Entries, Key
from sparkjet_grid.errors import GridFullError, MalformedError, QuorumLostError, StorageError
from sparkjet_grid.log import logger
from sparkjet_grid.messages import Held, Listed, ListEntries
from sparkjet_grid.view import View

_AGAIN = 1.0
"""Seconds after which a copy that has failed is tried again."""
_CALL = 60.0


@dataclass(frozen=True)
class _Copy:
    """A copy from one primary, under way or ended, and the state by which it was begun."""

    state: ClusterState
    done: Future[None]

    @property
    def is_over(self) -> bool:
        """Whether it has ended, in one way or another."""
        return self.done.done()

    def is_outdated(self, state: ClusterState) -> bool:
        """Whether there may be more to copy by now, perhaps from another primary."""
        return self.state is not state


class Copying:
    """Copies, in separate threads, what this member should hold by the newest state and does not hold yet.

    Args:
        entries: Of this member.
        view: What it knows of the cluster.
        connections: To the other members.
        control: Where it reports what it holds.
    """

    def __init__(
        self,
        entries: Entries,
        view: View,
        connections: Connections,
        control: Control,
    ) -> None:
        self._entries, self._view, self._connections, self._control = entries, view, connections, control
        self._loop = Loop("grid-copying", self._step)
        self._again = _AGAIN
        self._copies: dict[str, _Copy] = {}
        self._under_way = 0
        self._removed: set[Key] = set()
        self._removed_below: set[str] = set()

    def start(self) -> None:
        """Start copying."""
        self._loop.start()

    def stop(self) -> None:
        """Stop copying."""
        self._loop.stop()
        with self._view.changes:
            self._view.changes.notify_all()

    def remove(self, keys: Sequence[Key], prefix: str | None) -> None:
        """Remove entries, including those that are being copied from a member that has not removed them yet."""
        with self._view.changes:
            self._entries.remove(keys)
            if prefix is not None:
                self._entries.remove_below(prefix)
            if self._under_way:
                self._removed.update(keys)
                self._removed_below.update(() if prefix is None else (prefix,))

    def drop_others(self) -> None:
        """Drop the partitions that this member should no longer hold; called with every new state."""
        view = self._view
        with view.changes:
            for partition in self._entries.partitions():
                row = view.row(partition)
                if view.me not in {*row.replicas, *row.target}:
                    self._entries.drop(partition)

    def wanted(self) -> dict[str, dict[int, int]]:
        """The partitions to be copied, with the versions of their rows, by primary."""
        me = self._view.me
        found: dict[str, dict[int, int]] = {}
        for partition, row in enumerate(self._view.state.rows):
            if row.replicas and me in row.target and me not in row.replicas:
                found.setdefault(row.replicas[0], {})[partition] = row.version
        return found

    def _step(self) -> None:
        seen = self._view.state
        self._copies = {primary: copy for primary, copy in self._copies.items() if not copy.is_over}
        for primary, rows in self.wanted().items():
            # A copy from a paused primary lasts until its deadline; its successor need not wait for that.
            if primary not in self._copies:
                done = in_background(functools.partial(self._copy, primary, rows), f"grid-copy-{primary}")
                done.add_done_callback(self._notify)
                self._copies[primary] = _Copy(seen, done)

        def is_new() -> bool:
            # A copy that failed by this state is tried again after a pause.
            state = self._view.state
            return state is not seen or any(copy.is_over and copy.is_outdated(state) for copy in self._copies.values())

        try:
            self._view.wait(lambda: self._loop.is_stopped or is_new(), self._again)
        except QuorumLostError:
            self._loop.stop()

    def _notify(self, _: object) -> None:
        with self._view.changes:
            self._view.changes.notify_all()

    def _copy(self, primary: str, rows: Mapping[int, int]) -> None:
        with self._view.changes:
            self._under_way += 1
        is_whole = True
        try:
            uri = self._view.uri(primary)
            for held in self._connections.answers(uri, ListEntries("", dict(rows)), Listed, _CALL):
                for _, group in grouped((uri, each) for each in held.held if not self._holds(each)):
                    is_whole &= self._pull(uri, group)
            if not is_whole:
                # Some were removed here during the copy. Either the primary has yet to remove them, or they were
                # written again, as happens when a map is removed and recreated. Its next list tells.
                return
            self._control.propose(lambda state: ready(state, self._view.me, rows))
        except GridFullError as error:
            logger.warning("Partitions of member %s cannot be copied to this one, and are tried again: %s", uri, error)
        except StorageError as error:
            # The primary has changed, or left: the next state names its successor.
            logger.info("Copying from member %s is tried again: %s", primary, error)
        except Exception:
            logger.exception("Copying from member %s has failed, and is tried again", primary)
        finally:
            with self._view.changes:
                self._under_way -= 1
                if not self._under_way:
                    self._removed.clear()
                    self._removed_below.clear()

    def _holds(self, held: Held) -> bool:
        content = self._entries.get(held.key)
        return content is not None and content.digest == held.digest

    def _pull(self, uri: str, group: Sequence[Held]) -> bool:
        """Copy some entries; returns whether none was skipped because it was removed here."""
        is_whole = True
        expected = {held.key: held for held in group}
        with self._entries.reserve() as room:
            for entry in fetched(self._connections, uri, list(expected), _CALL, self._view.me):
                held = expected[entry.key]
                content = _checked(entry)
                room.take(content.size)
                if content.digest != held.digest:
                    raise MalformedError(f'entry "{held.name}" is {content.digest} here, and {held.digest} there.')
                with self._view.changes:
                    if self._is_removed(entry.key):
                        is_whole = False
                    else:
                        room.store(entry.key, content)
        return is_whole

    def _is_removed(self, key: Key) -> bool:
        return key in self._removed or any(key.name.startswith(prefix) for prefix in self._removed_below)


def _checked(entry: Fetched) -> Content:
    check_schema(entry.schema)
    for batch in entry.batches:
        check_batch(batch)
    return Content.of(entry.schema, entry.batches, str(entry.digest))
