"""A client of a grid on its own machine: what a query does there, and what one member alone answers."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable, Collection, Sequence

import msgspec

from sparkjet_grid.access import Access
from sparkjet_grid.client import GridClient
from sparkjet_grid.cluster_state import ClusterState, may_start
from sparkjet_grid.connections import Connections, Sending, fetched
from sparkjet_grid.errors import GridError
from sparkjet_grid.journal_reader import Journal
from sparkjet_grid.map_reader import Map
from sparkjet_grid.messages import GetSlots, GetState, Held, Part, Put, PutSlot, Unheld, Verify
from tests.grid.batches import ROWS, rows_of
from tests.grid.calls import CalledProcess, answer
from tests.grid.journals import PARTITIONS, JournalWriter, read
from tests.grid.maps import MapWriter
from tests.grid.processes import is_settled

ENTRIES = 40
"""More than there are partitions: a snapshot has entries on all members."""
SIZE = 200
"""Rows of an entry, which has its number in addition."""
KEYS = [f"k{number}" for number in range(60)]
"""Of a map: in all partitions."""
_ANSWERS_WITHIN = 2.0


class ClientProcess(CalledProcess):
    """A client; a context manager that leaves no process behind.

    Args:
        members: Addresses of some members.
        access: Token and certificates.
        patience: Seconds after which it gives up.
        command: What begins its command line.
    """

    def __init__(self, members: Sequence[str], access: Access, patience: float, command: Sequence[str]) -> None:
        super().__init__("tests.grid.client_process", [list(members), msgspec.to_builtins(access), patience], command)

    def write(self, home: str, slot: int) -> bool:
        """Write a snapshot: entries, then a slot that names them; whether it has won the slot."""
        won: bool = self.call("write", home, slot)
        return won

    def read(self, home: str) -> dict[int, int]:
        """Read all snapshots as a restart does, compare them with what was written; the writer of each slot."""
        return dict(self.call("read", home))

    @property
    def id(self) -> int:
        """The id by which its snapshots are known."""
        return self._process.pid

    def asked(self, uri: str, home: str) -> list[str]:
        """The requests that one member still answers for a client that knows only it."""
        done: list[str] = self.call("asked", uri, home)
        return done

    def copies(self, home: str) -> int:
        """The least number of copies that an entry of any snapshot has."""
        fewest: int = self.call("copies", home)
        return fewest

    def write_map(self, name: str, epoch: int) -> None:
        """Write an epoch of a map in which each key has its number."""
        self.call("write_map", name, epoch)

    def read_map(self, name: str) -> int:
        """The epoch of which all rows of a map are, by their keys and as a whole, the newest read last."""
        found: int = self.call("read_map", name)
        return found

    def write_journal(self, name: str, epoch: int) -> None:
        """Write an epoch of a journal, of which each partition gets a row with its number."""
        self.call("write_journal", name, epoch)

    def read_journal(self, name: str) -> int:
        """How many epochs a journal has, in each of its partitions."""
        found: int = self.call("read_journal", name)
        return found

    @property
    def members(self) -> list[str]:
        """Ids of the members, as one of those that answer knows them."""
        found: list[str] = self.call("members")
        return found


class _Calls:
    """The other process's answer."""

    def __init__(self, members: Sequence[str], access: Access, patience: float) -> None:
        self._client = GridClient(members, access, patience=patience)
        self._connections = Connections(access)
        self._manifest: list[Held] = []

    def write(self, home: str, slot: int) -> bool:
        client, writer = self._client, os.getpid()
        manifest = client.put(
            [
                client.entry(
                    f"{home}/{slot}/{writer}/{number}", ROWS, [rows_of(SIZE + number, _first(slot, writer, number))]
                )
                for number in range(ENTRIES)
            ]
        )
        # Acknowledged: from here on it has as many copies as there are replicas, whoever they are.
        unheld = client.unheld(manifest)
        if unheld:
            raise GridError(f"{unheld} are not on all replicas, though they were acknowledged.")
        self._manifest = manifest
        return client.put_slot(f"{home}/{slot:06}", msgspec.msgpack.encode((writer, manifest)), manifest)

    def read(self, home: str) -> list[tuple[int, int]]:
        found = []
        for name in self._client.slots(home):
            slot, (writer, manifest) = int(name.rpartition("/")[2]), self._snapshot(name)
            self._client.check(manifest)
            entries = {entry.key: entry.batches for entry in self._client.get(manifest)}
            if len(entries) != ENTRIES:
                raise GridError(f"{name} has {len(entries)} entries.")
            for held in manifest:
                number = int(held.name.rpartition("/")[2])
                if entries[held.key] != [rows_of(SIZE + number, _first(slot, writer, number))]:
                    raise GridError(f"{held.name} has another content.")
            found.append((slot, writer))
            self._manifest = manifest
        return found

    def copies(self, home: str) -> int:
        """The least number of copies that an entry of any snapshot has, on members that say so."""
        state, fewest = self._client.state(), sys.maxsize
        for name in self._client.slots(home):
            manifest = self._snapshot(name)[1]
            counts = dict.fromkeys((held.key for held in manifest), 0)
            for member in state.members:
                unheld = self._asked(member.uri, Verify(manifest)).keys
                for key in counts:
                    counts[key] += key not in unheld
            fewest = min(fewest, *counts.values())
        return fewest

    def write_map(self, name: str, epoch: int) -> None:
        MapWriter(self._client, name).write(epoch, dict.fromkeys(KEYS, epoch))

    def read_map(self, name: str) -> int:
        map_ = Map("", name, client=self._client)
        by_key = map_.get_all(KEYS)
        whole: list[int] = map_.scan(["n"]).read_all().column("n").to_pylist()
        found: list[int] = [row["n"] for row in by_key.values()]
        if len(found) != len(KEYS) or len(whole) != len(KEYS) or len({*found}) != 1 or len({*whole}) != 1:
            raise GridError(f"rows of several epochs, or not all: {found} by key, {whole} as a whole.")
        return max(whole[0], found[0])

    def write_journal(self, name: str, epoch: int) -> None:
        JournalWriter(self._client, name).write(epoch, {each: [epoch] for each in range(PARTITIONS)})

    def read_journal(self, name: str) -> int:
        journal = Journal("", name, client=self._client)
        latest = journal.latest()
        rows = {each: [n for n, _, _ in read(journal, each, 0, end)] for each, end in latest.ends.items()}
        if any(found != [*range(1, latest.epoch + 1)] for found in rows.values()):
            raise GridError(f"not each epoch up to {latest.epoch} once: {rows}.")
        return latest.epoch

    def slots(self, home: str) -> list[int]:
        return [int(name.rpartition("/")[2]) for name in self._client.slots(home)]

    def members(self) -> list[str]:
        return [member.id for member in self._client.state().members]

    def lost(self) -> int:
        return len(self._client.state().lost)

    def may_start(self) -> bool:
        return may_start(self._client.state())

    def voters(self) -> list[str]:
        found = [each.voters for each in self._client.status().values() if not isinstance(each, GridError)]
        return found[0]

    def settled(self, ids: Collection[str], backup_count: int) -> bool:
        return is_settled(self._client, ids, backup_count)

    def asked(self, uri: str, home: str) -> list[str]:
        """The requests that one member answers for a client that knows only it; none if it refuses all."""
        ask, manifest = self._connections.ask, self._manifest
        known = self._client._contact.state()
        me = next((member.id for member in known.members if member.uri == uri), "")
        partition = next((number for number, row in enumerate(known.rows) if row.replicas[:1] == (me,)), 0)

        def put() -> object:
            sending = Sending(self._connections, uri, Put("", _ANSWERS_WITHIN), ROWS)
            sending.send(Part(partition, f"{home}/late/{os.urandom(4).hex()}", 1), [rows_of(1)])
            sending.finish()
            return sending.answer.result(2 * _ANSWERS_WITHIN)

        requests: dict[str, Callable[[], object]] = {
            "state": lambda: ask(uri, GetState(), ClusterState, _ANSWERS_WITHIN),
            "slots": lambda: ask(uri, GetSlots(home), list[str], _ANSWERS_WITHIN),
            "entries": lambda: [*fetched(self._connections, uri, [held.key for held in manifest], _ANSWERS_WITHIN)],
            "slot": lambda: ask(uri, PutSlot(f"{home}/999999", b"late", known.version), bool, _ANSWERS_WITHIN),
            "put": put,
        }
        done = []
        for name, request in requests.items():
            with contextlib.suppress(GridError):
                request()
                done.append(name)
        return done

    def _asked(self, uri: str, request: Verify) -> Unheld:
        # A connection that was open during a cut may be one of a member that has ended.
        return self._client._contact.attempts()(lambda: self._connections.ask(uri, request, Unheld))

    def _snapshot(self, name: str) -> tuple[int, list[Held]]:
        return msgspec.msgpack.decode(self._client.slot(name) or b"", type=tuple[int, list[Held]])


def _first(slot: int, writer: int, number: int) -> int:
    return (slot * 100_000 + writer) * 1000 + number


def main() -> None:
    """Answer until the standard input ends."""
    members, access, patience = json.loads(sys.argv[1])
    answer(_Calls(members, Access(**access), patience))


if __name__ == "__main__":
    main()
