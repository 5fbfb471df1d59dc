"""A member copies what it is to hold, says so only for what it has whole, and drops what is not its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest

from sparkjet_grid import copying as copying_
from sparkjet_grid.cluster_state import ClusterState, Row
from sparkjet_grid.cluster_state import Member as Address
from sparkjet_grid.connections import Connections, Fetched
from sparkjet_grid.contents import Digest, size_of
from sparkjet_grid.copying import Copying
from sparkjet_grid.entries import Entries, Key
from sparkjet_grid.errors import MalformedError, MovedError
from sparkjet_grid.member import Member
from sparkjet_grid.messages import Held, Listed, ListEntries
from sparkjet_grid.view import View
from tests.faults.waiting import let_pass, until
from tests.grid.batches import FILE, ROWS, file_of, rows_of
from tests.grid.grids import Grid, grid_of


@pytest.fixture
def grid(tmp_path: Path) -> Iterator[Grid]:
    with grid_of(tmp_path, 2) as grid:
        yield grid


def fill(grid: Grid, count: int = 40, name: str = "home") -> list[Held]:
    client = grid.client()
    rows = [client.entry(f"{name}/rows/{number}", ROWS, [rows_of(20, number), rows_of(3)]) for number in range(count)]
    files = [client.entry(f"{name}/file/{number}", FILE, [file_of(b"%d" % number)]) for number in range(count)]
    return client.put([*rows, *files])


def holds(member: Member) -> set[Key]:
    return set(member.entries)


def share(grid: Grid, member: Member, manifest: list[Held]) -> set[Key]:
    rows = grid.cluster.now().rows
    return {held.key for held in manifest if member.id in rows[held.partition].replicas}


def test_a_new_member_gets_its_share_and_the_others_drop_it(grid: Grid) -> None:
    manifest = fill(grid)
    new = grid.start("host-2")
    grid.settle()
    assert len(holds(new)) > len(manifest) / 3
    for member in grid.members:
        until(lambda member=member: holds(member) == share(grid, member, manifest), "what is not its own", 10)  # type: ignore[misc]
    for held in manifest:
        contents = [found for member in grid.members if (found := member.entries.get(held.key)) is not None]
        assert [(each.digest, each.rows) for each in contents] == [(held.digest, held.rows)] * 2


def test_what_the_primary_has_removed_while_it_was_copied_stays_removed(grid: Grid) -> None:
    manifest = fill(grid)
    new = grid.start("host-2")
    grid.client().remove(prefix="home/rows/")
    grid.client().remove([held.key for held in manifest if held.name.endswith("/7")])
    grid.settle()
    left = {held.key for held in manifest if "/file/" in held.name and not held.name.endswith("/7")}
    assert holds(new) <= left
    assert holds(new) == share(grid, new, [held for held in manifest if held.key in left])


def test_an_entry_removed_here_is_not_pulled_from_a_member_that_still_has_it(grid: Grid) -> None:
    manifest = fill(grid, 5)
    copying = grid.members[0]._copying
    # As between the list of the primary and its entries.
    copying._under_way += 1
    copying.remove([manifest[0].key], "home/file/")
    assert copying._is_removed(manifest[0].key)
    assert copying._is_removed(Key(3, "home/file/9"))
    assert not copying._is_removed(manifest[1].key)
    grid.members[0].entries.remove_below("")
    copying._pull(grid.members[1].address.uri, manifest)
    assert holds(grid.members[0]) == {held.key for held in manifest[1:] if "/file/" not in held.name}
    copying._under_way -= 1


def test_a_member_that_has_left_out_what_was_removed_is_not_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    """A map was removed and began anew while another copy took long: its new entries were left out as well."""
    batch, digest = rows_of(3), Digest()
    digest.add(batch)
    key = Key(0, ".maps/board/layers/1")
    held = Held(*key, batch.num_rows, size_of(batch), str(digest))
    state = ClusterState("c", 1, (Address("p", "p", "h"),), 1, 1, (Row(("p",), ("p", "me"), 4),))
    view, entries, ready = View("me"), Entries(1 << 20), []
    view.changed(state)
    connections = SimpleNamespace(answers=lambda *_: iter([Listed([held])]))
    control = SimpleNamespace(propose=lambda change: ready.append(change(state).rows[0].replicas))
    monkeypatch.setattr(copying_, "fetched", lambda *_: iter([Fetched(key, batch.schema, [batch], digest)]))
    copying = Copying(entries, view, connections, control)  # type: ignore[arg-type]
    copying._under_way += 1
    copying.remove([], ".maps/board/")
    copying._copy("p", {0: 4})
    assert (ready, {*entries}) == ([], set())
    # The other copy has ended.
    copying._under_way -= 1
    copying._removed_below.clear()
    copying._copy("p", {0: 4})
    assert (ready, {*entries}) == ([("p", "me")], {key})


def test_what_comes_with_another_content_than_it_was_listed_with_is_not_kept(grid: Grid) -> None:
    manifest = fill(grid, 1)
    copying = grid.members[0]._copying
    grid.members[0].entries.remove_below("")
    forged = msgspec.structs.replace(manifest[0], digest="xxh3-64:0")
    with pytest.raises(MalformedError, match=r'entry "home/rows/0" is xxh3-64:\w+ here, and xxh3-64:0 there'):
        copying._pull(grid.members[1].address.uri, [forged])
    assert holds(grid.members[0]) == set()
    assert grid.members[0].entries.used == 0


def test_a_member_that_has_copied_for_an_older_row_is_not_ready(grid: Grid) -> None:
    manifest = fill(grid, 5)
    proposals: list[int] = []

    def disturb() -> None:
        # Between the copy and the proposal the rows change, as when another member comes.
        proposals.append(1)
        if len(proposals) == 1:
            grid.cluster.change(touched)
            # It has looked at the new rows before the copy for the old ones ends.
            let_pass(0.3)

    grid.cluster.before_proposal = disturb
    # Nothing fails: it begins again when it learns that this was not enough.
    new = grid.start("host-2", again=600.0)
    grid.settle()
    assert len(proposals) > 2
    assert holds(new) == share(grid, new, manifest)


def touched(state: ClusterState) -> ClusterState:
    rows = tuple(Row(row.replicas, row.target, row.version + 1) for row in state.rows)
    return msgspec.structs.replace(state, version=state.version + 1, rows=rows)


def test_only_the_primary_lists_and_not_before_it_knows_the_row(grid: Grid) -> None:
    manifest = fill(grid, 20)
    connections = Connections(grid.access)
    partition = manifest[0].partition
    row = grid.cluster.now().rows[partition]
    one, other = (grid.member(replica).address.uri for replica in row.replicas)
    of_partition = sorted(held.name for held in manifest if held.partition == partition)

    def listed(uri: str, version: int) -> list[str]:
        answers = connections.answers(uri, ListEntries("", {partition: version}), Listed)
        return [held.name for answer in answers for held in answer.held]

    assert listed(one, row.version) == of_partition
    with pytest.raises(MovedError, match="not the primary"):
        listed(other, row.version)
    with pytest.raises(MovedError, match="has not heard of versions"):
        listed(one, row.version + 1)
    connections.close()


def test_a_member_without_memory_copies_when_it_has_some(grid: Grid) -> None:
    manifest = fill(grid)
    new = grid.start("host-2", memory=1000)
    rows = grid.cluster.now().rows
    assert any(new.id in row.target and new.id not in row.replicas for row in rows)
    assert new.entries.used <= 1000
    # It is not ready, so the others keep everything.
    grid.client().check(manifest)
    new.entries.limit = 1 << 30
    grid.settle()
    assert holds(new) == share(grid, new, manifest)


def test_a_member_that_leaves_in_order_hands_everything_on_first(tmp_path: Path) -> None:
    with grid_of(tmp_path, 2, backup_count=0) as grid:
        manifest = fill(grid)
        going, staying = grid.members
        assert holds(going)
        going.leave()
        grid.members.remove(going)
        going.close()
        assert [member.id for member in grid.cluster.now().members] == [staying.id]
        assert holds(staying) == {held.key for held in manifest}
        assert grid.cluster.now().lost == {}
