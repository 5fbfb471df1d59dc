"""A client of a grid of several members: what is put is on all replicas, and is got while one of them is left."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest

from sparkjet_grid.access import Access, create_token
from sparkjet_grid.background import in_background
from sparkjet_grid.client import GridClient
from sparkjet_grid.cluster_state import ClusterState, Row, left, reformed
from sparkjet_grid.cluster_state import Member as Address
from sparkjet_grid.contents import Content
from sparkjet_grid.entries import Key
from sparkjet_grid.errors import (
    AnalysisError,
    DifferentContentError,
    GridError,
    GridFullError,
    MissingEntriesError,
    UnreachableError,
)
from sparkjet_grid.member import Member
from sparkjet_grid.messages import GetState, Held, Listed, Unheld, Verify
from sparkjet_grid.putting import NewEntry
from tests.faults.waiting import until
from tests.grid.batches import FILE, ROWS, file_of, rows_of
from tests.grid.grids import Grid, grid_of


@pytest.fixture
def grid(tmp_path: Path) -> Iterator[Grid]:
    with grid_of(tmp_path) as grid:
        yield grid


def entries_of(client: GridClient, count: int, name: str = "home/state") -> list[NewEntry]:
    return [client.entry(f"{name}/{number}", ROWS, [rows_of(20, number), rows_of(5)]) for number in range(count)]


def got(client: GridClient, manifest: list[Held]) -> dict[str, list[list[dict[str, object]]]]:
    return {entry.key.name: [batch.to_pylist() for batch in entry.batches] for entry in client.get(manifest)}


def copies(grid: Grid, key: Key) -> set[str]:
    return {member.id for member in grid.members if member.entries.get(key) is not None}


def test_what_is_put_is_on_all_replicas_and_nowhere_else(grid: Grid) -> None:
    client = grid.client()
    entries = entries_of(client, 50)
    manifest = client.put(entries)
    assert [held.key for held in manifest] == [entry.key for entry in entries]
    assert [held.rows for held in manifest] == [25] * 50
    for held in manifest:
        assert copies(grid, held.key) == set(grid.cluster.now().rows[held.partition].replicas)
    assert client.unheld(manifest) == {}
    expected = {entry.key.name: [batch.to_pylist() for batch in entry.batches] for entry in entries}
    assert got(client, manifest) == expected


def test_entries_of_several_schemas_and_without_rows_are_put_and_got_in_one_call(grid: Grid) -> None:
    client = grid.client()
    entries = [
        client.entry("rows", ROWS, [rows_of(3)]),
        client.entry("file", FILE, [file_of(b"content")]),
        client.entry("no rows", ROWS, [rows_of(0)]),
        client.entry("no batches", FILE, []),
        client.entry("chunk", ROWS, [rows_of(1)], partition=7),
    ]
    manifest = client.put(entries)
    assert manifest[-1].key == Key(7, "chunk")
    found = {entry.key.name: entry for entry in client.get(manifest)}
    assert found["file"].batches[0].to_pylist() == [{"content": b"content"}]
    assert found["no batches"].schema == FILE
    assert sum(batch.num_rows for batch in found["no batches"].batches) == 0
    assert len(found) == 5


def test_the_same_content_again_changes_nothing_and_another_is_refused(grid: Grid) -> None:
    client = grid.client()
    manifest = client.put(entries_of(client, 5))
    used = [member.entries.used for member in grid.members]
    assert client.put(entries_of(client, 5)) == manifest
    assert [member.entries.used for member in grid.members] == used
    with pytest.raises(DifferentContentError, match="home/state/3"):
        client.put([client.entry("home/state/3", ROWS, [rows_of(1)])])
    assert [member.entries.used for member in grid.members] == used


def test_entries_are_read_on_the_own_host_first(grid: Grid) -> None:
    client = grid.client(host="host-1")
    manifest = client.put(entries_of(client, 60))
    got(client, manifest)
    here = grid.members[1].id
    expected = sum(here in grid.cluster.now().rows[held.partition].replicas for held in manifest)
    assert 0 < expected < 60
    assert (client.counters.entries_here, client.counters.entries_elsewhere) == (expected, 60 - expected)
    assert client.counters.bytes_here == sum(
        held.size for held in manifest if here in grid.cluster.now().rows[held.partition].replicas
    )


def test_entries_are_listed_and_removed_by_prefix_and_by_name(grid: Grid) -> None:
    client = grid.client()
    first = client.put(entries_of(client, 20, "home/1"))
    second = client.put(entries_of(client, 20, "home/2"))
    assert client.entries("home/1/") == sorted(first, key=lambda held: held.name)
    client.remove(prefix="home/1/")
    assert client.entries("home/") == sorted(second, key=lambda held: held.name)
    client.remove([held.key for held in second])
    assert client.entries() == []
    assert [member.entries.used for member in grid.members] == [0, 0, 0]


def test_a_slot_has_one_winner_and_is_written_only_with_all_entries(grid: Grid) -> None:
    client = grid.client()
    manifest = client.put(entries_of(client, 10))
    assert client.put_slot("log/1", b"mine", manifest)
    assert client.put_slot("log/1", b"mine", manifest)
    assert not client.put_slot("log/1", b"theirs", manifest)
    grid.members[0].entries.remove([manifest[0].key, manifest[1].key, manifest[2].key])
    with pytest.raises(MissingEntriesError):
        client.put_slot("log/2", b"mine", manifest)
    assert client.slots("log") == ["log/1"]
    assert client.slot("log/1") == b"mine"
    assert client.slot("log/2") is None
    assert client.slots() == ["log/1"]
    assert client.last_slot("log") == ("log/1", b"mine")
    client.remove_slots(["log/1", "log/2"])
    assert client.slots("log") == []
    assert client.last_slot("log") is None


def test_a_member_that_is_killed_loses_nothing_and_its_share_is_copied_again(grid: Grid) -> None:
    client = grid.client()
    entries = entries_of(client, 60)
    manifest = client.put(entries)
    grid.kill(grid.members[2])
    expected = {entry.key.name: [batch.to_pylist() for batch in entry.batches] for entry in entries}
    assert got(client, manifest) == expected
    until(lambda: len(grid.cluster.now().members) == 2, "the others to find out", 30)
    grid.settle()
    for held in manifest:
        assert copies(grid, held.key) == {member.id for member in grid.members}
    grid.kill(grid.members[1])
    assert got(client, manifest) == expected
    client.check(manifest)


@pytest.mark.crash
def test_what_is_put_while_members_come_and_go_is_on_all_replicas(grid: Grid) -> None:
    client = grid.client()
    manifest = client.put(entries_of(client, 40, "before"))
    grid.start("host-3")
    manifest += client.put(entries_of(client, 40, "joining"))
    grid.kill(grid.members[1])
    manifest += client.put(entries_of(client, 40, "leaving"))
    grid.settle()
    assert client.put_slot("log/1", b"all", manifest)
    for held in manifest:
        assert copies(grid, held.key) == set(grid.cluster.now().rows[held.partition].replicas)


def test_lost_entries_are_counted_with_their_partitions_and_last_holders(tmp_path: Path) -> None:
    with grid_of(tmp_path, backup_count=0) as grid:
        client = grid.client()
        manifest = client.put(entries_of(client, 60))
        gone = grid.members[2].id
        lost = [held for held in manifest if grid.cluster.now().rows[held.partition].replicas == (gone,)]
        grid.kill(grid.members[2])
        until(lambda: len(grid.cluster.now().members) == 2, "the others to find out", 30)
        partitions = len({held.partition for held in lost})
        told = rf"{len(lost)} entries are missing, of {partitions} partitions .*Members {gone} held them last"
        with pytest.raises(MissingEntriesError, match=told):
            client.check(manifest)
        with pytest.raises(MissingEntriesError, match=gone):
            got(client, manifest)
        client.check([held for held in manifest if held not in lost])


def test_a_grid_that_is_full_refuses_and_keeps_what_it_has(tmp_path: Path) -> None:
    with grid_of(tmp_path, memory=200_000) as grid:
        client = grid.client()
        manifest = client.put(entries_of(client, 20))
        with pytest.raises(GridFullError, match="--max-memory"):
            client.put([client.entry("large", FILE, [file_of(bytes(300_000))])])
        client.check(manifest)
        assert client.put_slot("log/1", b"mine", manifest)
        assert all(member.entries.used < 200_000 for member in grid.members)


@pytest.mark.parametrize("lost", [1, 5])
def test_a_slot_whose_answer_was_lost_tells_who_has_won(grid: Grid, lost: int) -> None:
    client = grid.client()
    manifest = client.put(entries_of(client, 3))
    for control in grid.controls.values():
        control.loses_answers = lost
    assert client.put_slot("log/1", b"mine", manifest)
    assert not client.put_slot("log/1", b"theirs", manifest)
    assert grid.cluster.slots == {"log/1": b"mine"}


def test_a_slot_that_is_written_stays_even_if_its_replicas_are_lost_before_the_answer(grid: Grid) -> None:
    client = grid.client()
    manifest = client.put(entries_of(client, 3))
    for control in grid.controls.values():
        control.loses_answers = 1

    def forget() -> None:
        for member in grid.members:
            member.entries.remove_below("home/")

    grid.cluster.before_slot = forget
    assert client.put_slot("log/1", b"mine", manifest)
    assert grid.cluster.slots == {"log/1": b"mine"}


def test_what_is_removed_while_a_member_joins_is_removed_there_too(grid: Grid) -> None:
    client = grid.client(host="host-0")
    [held] = client.put(entries_of(client, 1))
    content = next(found for member in grid.members if (found := member.entries.get(held.key)) is not None)
    with ThreadPoolExecutor(1) as pool:
        with grid.members[1].view.changes:
            # It waits for this member, and knows of no fourth one.
            removal = pool.submit(client.remove, [held.key])
            until(lambda: grid.members[0].entries.get(held.key) is None, "the first removal", 30)
            new = grid.start("host-3")
            with new.entries.reserve() as room:
                room.take(content.size)
                room.store(held.key, content)
        removal.result(60)
    assert new.entries.get(held.key) is None


def test_a_slot_is_verified_again_when_the_cluster_has_changed(grid: Grid) -> None:
    client = grid.client()
    manifest = client.put(entries_of(client, 30))
    asked: list[int] = []

    def disturb() -> None:
        # Between the look at the replicas and the slot.
        asked.append(1)
        if len(asked) == 1:
            grid.cluster.change(lambda state: msgspec.structs.replace(state, version=state.version + 1))

    grid.cluster.before_slot = disturb
    assert client.put_slot("log/1", b"mine", manifest)
    assert len(asked) == 2


def test_members_that_are_cut_off_are_passed_over(tmp_path: Path) -> None:
    with grid_of(tmp_path, lease=2.0) as grid:
        client = grid.client()
        manifest = client.put(entries_of(client, 30))
        cut_off = grid.controls[grid.members[0].id]
        cut_off.is_cut_off = True
        until(lambda: not is_served(grid.members[0]), "its knowledge of that", 60)
        # Its replicas are elsewhere too, and others take it out before long.
        grid.cluster.change(lambda state: left(state, [grid.members[0].id]))
        assert len(got(client, manifest)) == 30
        more = client.put(entries_of(client, 30, "more"))
        assert client.put_slot("log/1", b"token", [*manifest, *more])
        assert client.slots("log") == ["log/1"]


def test_a_client_that_knows_nothing_yet_waits_for_members_that_are_cut_off(tmp_path: Path) -> None:
    """A leader was elected just when a Python worker began, and its query failed."""
    with grid_of(tmp_path, 1, lease=2.0) as grid:
        client, [member] = grid.client(), grid.members
        grid.controls[member.id].is_cut_off = True
        until(lambda: not is_served(member), "its knowledge of that", 60)
        answer = in_background(lambda: client.key("a"), "grid-put_0")
        until(lambda: bool(client._contact._suspected), "its refusal")
        grid.controls[member.id].is_cut_off = False
        assert answer.result(60).name == "a"


def is_served(member: Member) -> bool:
    try:
        member.view.check()
    except GridError:
        return False
    return True


def test_what_is_not_what_the_manifest_says_is_not_returned(grid: Grid) -> None:
    client = grid.client()
    manifest = client.put(entries_of(client, 3))
    forged = [msgspec.structs.replace(manifest[0], digest="xxh3-64:0"), *manifest[1:]]
    with pytest.raises(GridError, match=r'"home/state/0" of member .* has another content than the record says'):
        got(client, forged)
    assert list(client.unheld(forged)) == [manifest[0].key]
    with pytest.raises(MissingEntriesError):
        client.put_slot("log/1", b"token", forged)


def test_a_cluster_that_was_re_formed_is_another_one(grid: Grid) -> None:
    client = grid.client()
    client.put(entries_of(client, 3))
    survivors = [member.id for member in grid.members]
    grid.cluster.change(lambda state: reformed(state, survivors, "another"))
    with pytest.raises(GridError, match=f"re-formed: the members that answer are no longer cluster {grid.cluster.id}"):
        client.state()
    grid.client().put(entries_of(client, 3))


def test_a_partition_that_does_not_exist_is_refused(grid: Grid) -> None:
    with pytest.raises(GridError, match='partition 12 of "a" does not exist: the grid has 12, from 0'):
        grid.client().entry("a", ROWS, [], partition=12)


def test_a_batch_that_is_too_large_for_a_message_is_refused_at_once(grid: Grid, tmp_path: Path) -> None:
    size = (512 << 20) + 1
    # Without a byte on the disk or in memory.
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(size)
    with pa.memory_map(str(tmp_path / "sparse")) as mapped:
        column = pa.Array.from_buffers(pa.int8(), size, [None, mapped.read_buffer(size)])
        batch = pa.RecordBatch.from_arrays([column], names=["a"])
        with pytest.raises(GridError, match='a batch of "large" has 536870913 bytes'):
            grid.client().entry("large", batch.schema, [batch])


def test_a_grid_that_is_away_is_given_up(grid: Grid) -> None:
    patient, client = grid.client(), grid.client(patience=0.2)
    manifest = patient.put(entries_of(patient, 3))
    for member in [*grid.members]:
        grid.kill(member)
    with pytest.raises(UnreachableError):
        client.put(entries_of(client, 3))
    with pytest.raises(UnreachableError):
        got(client, manifest)
    with pytest.raises(UnreachableError):
        client.slots("log")


def test_a_replica_whose_memory_has_changed_is_not_believed(grid: Grid, caplog: pytest.LogCaptureFixture) -> None:
    client = grid.client()
    [held] = client.put(entries_of(client, 1))
    broken = grid.member(grid.cluster.now().rows[held.partition].replicas[0])
    broken.entries.remove([held.key])
    other = Content.of(ROWS, [rows_of(7)])
    with broken.entries.reserve() as room:
        room.take(other.size)
        room.store(held.key, other)
    [entry] = client.get([held])
    assert sum(batch.num_rows for batch in entry.batches) == 25
    assert f"of member {broken.id} has another content" in caplog.text


def test_a_member_that_alone_cannot_reach_another_does_not_take_it_out(grid: Grid) -> None:
    one, other, witness = grid.members
    # As behind a firewall of its own machine.
    one._report(other.address)
    assert len(grid.cluster.now().members) == 3
    grid.kill(other)
    until(lambda: len(grid.cluster.now().members) == 2, "the report of one, which the other confirms", 30)
    # Nobody is left who could confirm it.
    one._report(witness.address)
    assert [member.id for member in grid.cluster.now().members] == [one.id]


def test_a_member_that_refuses_connections_and_holds_last_replicas_is_waited_for(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with grid_of(tmp_path, backup_count=0, grace=600.0) as grid:
        client = grid.client()
        manifest = client.put(entries_of(client, 60))
        *others, refusing = grid.members
        # As behind a firewall that rejects: it lives, and others can not connect to it.
        refusing._server.shutdown()
        until(lambda: f"member {refusing.id} holds last replicas" in caplog.text, "others to notice", 30)
        assert len(grid.cluster.now().members) == 3
        assert not grid.cluster.now().lost
        others[0]._report(refusing.address, 599.0)
        assert len(grid.cluster.now().members) == 3
        others[0]._report(refusing.address, 600.0)
        assert len(grid.cluster.now().members) == 2
        assert len(grid.cluster.now().lost) == 4
        with pytest.raises(MissingEntriesError, match=f"Members {refusing.id} held them last"):
            client.check(manifest)


def test_of_two_that_refuse_connections_one_is_waited_for(tmp_path: Path) -> None:
    with grid_of(tmp_path, 4, grace=600.0) as grid:
        one, other = grid.members[2:]
        one._server.shutdown()
        other._server.shutdown()
        until(lambda: len(grid.cluster.now().members) == 3, "the first report", 30)
        grid.members[0]._report(one.address)
        grid.members[0]._report(other.address)
        assert len(grid.cluster.now().members) == 3
        assert not grid.cluster.now().lost


def test_members_of_two_grids_are_refused_whoever_answers_first(grid: Grid, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    with grid_of(tmp_path / "other", 1, access=grid.access) as other:
        addresses = [each.members[0].address.uri.partition("//")[2] for each in (grid, other)]
        client = GridClient(addresses, grid.access)
        calls: list[Callable[[], object]] = [
            client.state,
            client.slots,
            client.status,
            client.contacts,
            lambda: client.put_slot("log/1", b"token", []),
            lambda: client.put([client.entry("a", ROWS, [rows_of(1)])]),
        ]
        for call in calls:
            with pytest.raises(AnalysisError, match=f"{addresses[0]}, {addresses[1]} are members of different grids"):
                call()
        # Who knows which one it is goes on with that one, and asks no other one.
        for each in (grid, other):
            chosen = GridClient(addresses, grid.access, cluster=each.cluster.id)
            assert chosen.put_slot("log/1", each.cluster.id.encode(), [])
            assert each.cluster.slots["log/1"] == each.cluster.id.encode()
            chosen.close()
        client.close()


@pytest.mark.parametrize("is_behind", [True, False])
def test_what_a_member_has_dropped_by_a_newer_state_is_not_missing(tmp_path: Path, is_behind: bool) -> None:
    """A rolling restart: who asked by the state of a member that was behind was told that entries were lost."""
    token = tmp_path / "token"
    create_token(token)
    old = ClusterState("c", 7, tuple(Address(each, each, each) for each in "abc"), 3, 1, (Row(("a", "b"), ("c",), 4),))
    new = msgspec.structs.replace(old, version=8, rows=(Row(("c",), ("c",), 5),))
    states = {"a": new, "b": new, "c": old if is_behind else new}
    asked: list[tuple[str, type]] = []

    def ask(uri: str, request: object, answer: type, seconds: float = 0.0) -> object:
        del answer, seconds
        asked.append((uri, type(request)))
        if isinstance(request, GetState):
            return states[uri]
        if isinstance(request, Verify):
            return Unheld([] if uri == "c" else [held.key for held in request.held])
        return True

    client = GridClient(["c:1"], Access(token_file=str(token)), host="c", patience=20.0, cluster="c")
    client._contact._state = old
    client._contact.connections.ask = ask  # type: ignore[method-assign, assignment]
    manifest = [Held(0, "layer", 1, 1, "d")]
    client.check(manifest)
    assert client.unheld(manifest) == {}
    assert client.put_slot("versions/1", b"mine", manifest)
    # Not by the state that was replaced.
    assert is_behind == (("a", Verify) in asked)


def test_a_primary_that_has_not_heard_of_its_successor_does_not_list_for_it(tmp_path: Path) -> None:
    """A lease that was put after the change was not seen, and what it held was removed."""
    token = tmp_path / "token"
    create_token(token)
    old = ClusterState("c", 7, tuple(Address(each, each, each) for each in "ab"), 2, 0, (Row(("a",), ("b",), 4),))
    new = msgspec.structs.replace(old, version=8, rows=(Row(("b",), ("b",), 5),))
    lease = Held(0, "lease", 1, 1, "d")

    def ask(uri: str, request: object, answer: type, seconds: float = 0.0) -> ClusterState:
        del request, answer, seconds
        return old if uri == "a" else new

    def answers(uri: str, request: object, answer: type) -> Iterator[Listed]:
        del request, answer
        yield Listed([lease] if uri == "b" else [])

    client = GridClient(["a:1"], Access(token_file=str(token)), host="a", patience=20.0, cluster="c")
    client._contact._state = old
    client._contact.connections.ask = ask  # type: ignore[method-assign, assignment]
    client._contact.connections.answers = answers  # type: ignore[method-assign, assignment]
    assert client.entries("lease") == [lease]
