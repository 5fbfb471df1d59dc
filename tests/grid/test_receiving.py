"""Entries are taken by the primary only, and by backups only from the primary they know: zombies change nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest

from sparkjet_grid.cluster_state import ClusterState, Row, left
from sparkjet_grid.connections import Connections, Sending, fetched
from sparkjet_grid.contents import Content
from sparkjet_grid.entries import Key
from sparkjet_grid.errors import (
    DifferentContentError,
    GridFullError,
    MalformedError,
    MovedError,
    QuorumLostError,
    StaleStateError,
    UnreachableError,
)
from sparkjet_grid.member import Member
from sparkjet_grid.messages import GetState, Held, Listed, ListEntries, Part, Put, PutSlot, Unheld, Verify
from tests.faults.waiting import holds_within, until
from tests.grid.batches import ROWS, rows_of, sent
from tests.grid.grids import Grid, grid_of

# They wait for what members must not do.
pytestmark = pytest.mark.crash

BATCH = rows_of(3)
DIGEST = Content.of(ROWS, [sent(BATCH)]).digest


@pytest.fixture
def grid(tmp_path: Path) -> Iterator[Grid]:
    with grid_of(tmp_path) as grid:
        yield grid


@pytest.fixture
def restless(tmp_path: Path) -> Iterator[Grid]:
    """A grid whose members do not believe long in what they know."""
    with grid_of(tmp_path, lease=2.0) as grid:
        yield grid


def put(
    grid: Grid, member: Member, parts: Sequence[tuple[Part, pa.RecordBatch]], *, sender: str = "", seconds: float = 20.0
) -> list[Held]:
    """Put to one member, as a client or as another member."""
    connections = Connections(grid.access)
    sending = Sending(connections, member.address.uri, Put(sender, seconds), ROWS)
    for part, batch in parts:
        sending.send(part, [batch])
    sending.finish()
    try:
        return sending.answer.result(60)
    finally:
        connections.close()


def row(grid: Grid, partition: int = 0) -> Row:
    return grid.cluster.now().rows[partition]


def primary(grid: Grid, partition: int = 0) -> Member:
    return grid.member(row(grid, partition).replicas[0])


def backup(grid: Grid, partition: int = 0) -> Member:
    return grid.member(row(grid, partition).replicas[1])


def outsider(grid: Grid, partition: int = 0) -> Member:
    return next(member for member in grid.members if member.id not in row(grid, partition).replicas)


def forwarded(grid: Grid, name: str = "a", rows: int = 3, later: int = 0) -> Part:
    return Part(0, name, 1, row(grid).version + later, rows, DIGEST)


def test_only_the_primary_takes_what_a_client_puts(grid: Grid) -> None:
    assert put(grid, primary(grid), [(Part(0, "a", 1), BATCH)])[0].digest == DIGEST
    for member in (backup(grid), outsider(grid)):
        with pytest.raises(MovedError, match="not the primary of partition 0"):
            put(grid, member, [(Part(0, "b", 1), BATCH)])
        assert member.entries.get(Key(0, "b")) is None


def test_a_backup_takes_from_its_primary_at_its_version_only(grid: Grid) -> None:
    one = primary(grid).id
    assert put(grid, backup(grid), [(forwarded(grid), BATCH)], sender=one)[0].key == Key(0, "a")
    for sender in (outsider(grid).id, backup(grid).id, "someone"):
        with pytest.raises(MovedError, match="not handed on from there to here"):
            put(grid, backup(grid), [(forwarded(grid, "b"), BATCH)], sender=sender)
    with pytest.raises(MovedError, match="not handed on"):
        put(grid, outsider(grid), [(forwarded(grid, "b"), BATCH)], sender=one)
    with pytest.raises(MovedError, match="partition 0 has changed"):
        put(grid, backup(grid), [(forwarded(grid, "b", later=-1), BATCH)], sender=one)
    # One that it has not heard of does not come either.
    with pytest.raises(MovedError, match="partition 0 has changed"):
        put(grid, backup(grid), [(forwarded(grid, "b", later=1), BATCH)], sender=one)
    assert all(member.entries.get(Key(0, "b")) is None for member in grid.members)


def test_a_backup_waits_for_the_state_that_its_primary_knows_already(grid: Grid) -> None:
    one, other = primary(grid), backup(grid)
    control = grid.controls[other.id]
    control.is_behind = True

    def again(state: ClusterState) -> ClusterState:
        found = state.rows[0]
        rows = (Row(found.replicas, found.target, found.version + 1), *state.rows[1:])
        return msgspec.structs.replace(state, version=state.version + 1, rows=rows)

    grid.cluster.change(again)
    connections = Connections(grid.access)
    sending = Sending(connections, other.address.uri, Put(one.id, 20.0), ROWS)
    sending.send(forwarded(grid), [BATCH])
    sending.finish()
    assert not holds_within(sending.answer.done, 0.3)
    control.catch_up()
    assert sending.answer.result(30)[0].key == Key(0, "a")
    connections.close()


def test_a_backup_waits_for_its_control_plane_and_a_primary_does_not(restless: Grid) -> None:
    one, other = primary(restless), backup(restless)
    for member in (one, other):
        restless.controls[member.id].is_silent = True
    until(lambda: not (may_act(one) or may_act(other)), "the end of their leases", 30)
    connections = Connections(restless.access)
    sending = Sending(connections, other.address.uri, Put(one.id, 20.0), ROWS)
    sending.send(forwarded(restless), [BATCH])
    sending.finish()
    with pytest.raises(MovedError, match="not heard of its control plane"):
        put(restless, one, [(Part(0, "a", 1), BATCH)])
    # As that of a member that has just joined.
    restless.controls[other.id].is_silent = False
    assert sending.answer.result(30)[0].key == Key(0, "a")
    connections.close()


def test_a_backup_refuses_what_does_not_have_the_rows_of_its_primary(grid: Grid) -> None:
    with pytest.raises(MalformedError, match='entry "a" has 3 rows here, and 4 at its primary'):
        put(grid, backup(grid), [(forwarded(grid, rows=4), BATCH)], sender=primary(grid).id)
    assert backup(grid).entries.used == 0


def test_a_zombie_is_refused_by_the_backups_that_know_better(grid: Grid) -> None:
    zombie, successor = primary(grid), backup(grid)
    grid.controls[zombie.id].is_behind = True
    grid.cluster.change(lambda state: left(state, [zombie.id]))
    assert row(grid).replicas[0] == successor.id
    # It hears nothing of that, and believes that it is the primary.
    assert zombie.view.primary_row(0).replicas[0] == zombie.id
    with pytest.raises(MovedError, match="has not stored what was handed on to it"):
        put(grid, zombie, [(Part(0, "a", 1), BATCH)])
    assert successor.entries.get(Key(0, "a")) is None


def test_what_a_zombie_alone_has_taken_gets_no_slot(tmp_path: Path) -> None:
    with grid_of(tmp_path, backup_count=0) as grid:
        zombie = primary(grid)
        grid.controls[zombie.id].is_behind = True
        state = zombie.view.state
        grid.cluster.change(lambda found: left(found, [zombie.id]))
        # Without backups nobody contradicts it, and a client that asks it alone learns nothing newer.
        held = put(grid, zombie, [(Part(0, "a", 1), BATCH)])
        connections = Connections(grid.access)
        uri = zombie.address.uri
        assert connections.ask(uri, Verify(held), Unheld).keys == []
        with pytest.raises(StaleStateError):
            connections.ask(uri, PutSlot("log/1", b"token", state.version), bool)
        assert grid.cluster.slots == {}
        connections.close()


def test_a_member_that_has_slept_does_nothing_until_it_has_asked(restless: Grid) -> None:
    member = primary(restless)
    held = put(restless, member, [(Part(0, "a", 1), BATCH)])
    # As after SIGCONT, before its control plane has answered again.
    restless.controls[member.id].is_silent = True
    until(lambda: not may_act(member), "the end of the lease", 30)
    connections = Connections(restless.access)
    uri = member.address.uri
    with pytest.raises(MovedError, match="not heard of its control plane"):
        put(restless, member, [(Part(0, "b", 1), BATCH)])
    with pytest.raises(MovedError, match="not heard"):
        list(fetched(connections, uri, [held[0].key], 10))
    for request in (GetState(), Verify(held), PutSlot("log/1", b"token", 1)):
        with pytest.raises(MovedError, match="not heard"):
            connections.ask(uri, request, object)
    with pytest.raises(MovedError, match="not heard"):
        list(connections.answers(uri, ListEntries("", {0: 0}), Listed))
    connections.close()
    restless.controls[member.id].is_silent = False
    until(lambda: may_act(member), "another lease", 30)
    put(restless, member, [(Part(0, "b", 1), BATCH)])


def test_a_member_that_has_slept_in_the_middle_of_a_call_takes_no_more_of_it(restless: Grid) -> None:
    member = primary(restless)
    connections = Connections(restless.access)
    sending = Sending(connections, member.address.uri, Put("", 60.0), ROWS)
    sending.send(Part(0, "a", 1), [BATCH])
    until(lambda: member.entries.get(Key(0, "a")) is not None, "the first entry", 30)
    restless.controls[member.id].is_silent = True
    until(lambda: not may_act(member), "the end of the lease", 30)
    sending.send(Part(0, "b", 1), [BATCH])
    sending.finish()
    with pytest.raises(MovedError, match="not heard of its control plane"):
        sending.answer.result(60)
    assert member.entries.get(Key(0, "b")) is None
    connections.close()


def may_act(member: Member) -> bool:
    try:
        member.view.check()
    except MovedError:
        return False
    return True


def test_a_member_that_was_taken_out_ends(grid: Grid) -> None:
    member = primary(grid)
    grid.cluster.change(lambda state: left(state, [member.id]))
    assert member.wait() == "the cluster goes on without it."
    with pytest.raises(QuorumLostError, match="the cluster goes on without it"):
        put(grid, member, [(Part(0, "a", 1), BATCH)])


def test_a_backup_that_is_gone_holds_nobody_up_once_it_has_left(grid: Grid) -> None:
    one, gone = primary(grid), backup(grid)
    grid.kill(gone)
    assert put(grid, one, [(Part(0, "a", 1), BATCH)])[0].key == Key(0, "a")
    assert gone.id not in {member.id for member in grid.cluster.now().members}
    grid.settle()
    until(lambda: backup(grid).entries.get(Key(0, "a")) is not None, "the copy", 30)


def test_a_backup_without_memory_is_named_and_nothing_is_acknowledged(grid: Grid) -> None:
    backup(grid).entries.limit = 100
    with pytest.raises(GridFullError, match="--max-memory"):
        put(grid, primary(grid), [(Part(0, "a", 1), BATCH)])
    assert backup(grid).entries.get(Key(0, "a")) is None
    assert backup(grid).entries.used == 0


def test_what_is_refused_half_way_gives_its_memory_back(grid: Grid) -> None:
    member = primary(grid)
    with pytest.raises(MalformedError, match='entry "a" is not complete when "b" begins'):
        put(grid, member, [(Part(0, "a", 2), BATCH), (Part(0, "b", 1), BATCH)])
    with pytest.raises(MalformedError, match='entry "c" is not complete'):
        put(grid, member, [(Part(0, "c", 2), BATCH)])
    assert member.entries.used == 0
    put(grid, member, [(Part(0, "d", 1), BATCH)])
    with pytest.raises(DifferentContentError):
        put(grid, member, [(Part(0, "d", 1), rows_of(4))])
    assert member.entries.listed() == [(Key(0, "d"), member.entries.get(Key(0, "d")))]
    until(lambda: member.entries.used == member.entries.listed()[0][1].size, "the memory of what was refused", 10)


def test_a_schema_that_is_not_held_is_refused(grid: Grid) -> None:
    schema = pa.schema([("a", pa.dictionary(pa.int32(), pa.string()))])
    connections = Connections(grid.access)
    sending = Sending(connections, primary(grid).address.uri, Put("", 10.0), schema)
    sending.finish()
    with pytest.raises(MalformedError, match="column 'a' has the type"):
        sending.answer.result(30)
    connections.close()


def test_a_member_that_is_not_there_is_unreachable(grid: Grid) -> None:
    member = outsider(grid)
    grid.kill(member)
    with pytest.raises(UnreachableError, match="does not answer"):
        put(grid, member, [(Part(0, "a", 1), BATCH)])
