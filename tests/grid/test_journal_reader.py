"""Reading a journal of members on loopback: each row once, by its offset, whatever is written, trimmed and lost."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from sparkjet_grid.errors import AnalysisError, FallenBehindError, LostRowsError, ReleasedError
from sparkjet_grid.journal_reader import Journal
from sparkjet_grid.journal_version import FullError, Retention
from sparkjet_grid.reader_leases import LEASE
from tests.grid.grids import Grid, grid_of
from tests.grid.journals import PARTITIONS, JournalWriter, read
from tests.grid.test_journal_version import EMPTY

# A capability as a whole, with the matrices.
pytestmark = [pytest.mark.crash, pytest.mark.interpreted]


@pytest.fixture(scope="module")
def grid(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Grid]:
    with grid_of(tmp_path_factory.mktemp("grid"), 2) as grid:
        yield grid


@pytest.fixture
def writer(grid: Grid, request: pytest.FixtureRequest) -> JournalWriter:
    return JournalWriter(grid.client(), request.node.name)


@pytest.fixture
def journal(grid: Grid, writer: JournalWriter) -> Journal:
    return Journal("", writer.name, client=grid.client())


def written(writer: JournalWriter, epochs: range) -> None:
    for epoch in epochs:
        writer.write(epoch, {epoch % PARTITIONS: [10 * epoch, 10 * epoch + 1], 0: [epoch]}, clock=epoch)


def all_of(journal: Journal, since: dict[int, int] | None = None) -> dict[int, list[tuple[int, int]]]:
    """Numbers and epochs by partition, and their offsets must be those that follow."""
    ends, found = journal.latest().ends, {}
    for partition, start in (since or journal.earliest()).items():
        rows = read(journal, partition, start, ends[partition])
        assert [offset for _, offset, _ in rows] == [*range(start, ends[partition])]
        found[partition] = [(n, epoch) for n, _, epoch in rows]
    return found


def test_rows_are_read_by_offset_with_their_epochs(writer: JournalWriter, journal: Journal) -> None:
    written(writer, range(1, 31))
    assert all_of(journal) == dict(enumerate(writer.expected))
    assert (journal.partitions, journal.schema.names) == (PARTITIONS, ["n", "_partition", "_offset", "_epoch"])
    some = read(journal, 0, 5, 9)
    assert some == [(n, 5 + place, epoch) for place, (n, epoch) in enumerate(writer.expected[0][5:9])]
    assert read(journal, 0, 3, 3) == []
    # A tenth of as many chunks as there were epochs.
    version = writer.store.newest()
    assert version is not None
    assert len(version.chunks[0]) < 12
    assert {held.name for held in writer.client.entries(writer.store.place.layers())} == {
        held.name
        for held in [*version.held(), *writer.store.at(version.number - 1).held()]  # type: ignore[union-attr]
    }


def test_nothing_is_seen_before_the_slot_is_put(writer: JournalWriter, journal: Journal) -> None:
    manifest = writer.prepare(1, {0: [1]})
    with pytest.raises(AnalysisError, match="has no journal"):
        journal.latest()
    writer.publish(manifest)
    assert journal.latest().ends == {0: 1, 1: 0, 2: 0, 3: 0}


def test_a_reader_of_an_epoch_knows_its_watermark_in_partitions_without_rows(
    writer: JournalWriter, journal: Journal
) -> None:
    for epoch in range(1, 20):
        writer.write(epoch, {1: [epoch]} if epoch % 3 == 0 else {})
    found = {each.epoch: (each.watermark, each.ends[1]) for each in journal.progress()}
    assert all(found[epoch] == (1000 * epoch, epoch // 3) for epoch in found)
    # Of epochs without rows the last one at least; none before the first row.
    assert {epoch // 3 for epoch in found} == set(range(1, 7))
    assert max(found) == 19
    assert [each.epoch for each in journal.progress(17)] == [18, 19]
    assert journal.progress(19) == []
    latest = journal.latest()
    assert (latest.epoch, latest.watermark) == (19, 19_000)


def test_a_reader_goes_on_while_chunks_are_merged(writer: JournalWriter, journal: Journal) -> None:
    written(writer, range(1, 4))
    before = journal.latest()
    found = all_of(journal)
    for epoch in range(4, 40):
        writer.write(epoch, {0: [epoch]}, clock=epoch)
        # By the version that it saw last, whose chunks may be gone.
        assert journal.partitions == PARTITIONS
    # What it has seen is gone, and the rows are where they were.
    assert read(journal, 0, 0, before.ends[0]) == [(n, at, epoch) for at, (n, epoch) in enumerate(found[0])]
    assert all_of(journal) == dict(enumerate(writer.expected))


def test_a_reader_that_has_fallen_behind_is_told_of_rows_epochs_and_partitions(
    writer: JournalWriter, journal: Journal
) -> None:
    writer.retention = Retention(1, None, 1 << 20)
    written(writer, range(1, 5))
    offsets = journal.latest().ends
    written(writer, range(5, 30))
    first = journal.earliest()
    behind = {each: offset for each, offset in offsets.items() if offset < first[each]}
    rows = sum(first[each] - offset for each, offset in behind.items())
    said = rf"{rows} rows are gone, of epochs up to 29: partition 0, offsets {offsets[0]} to {first[0] - 1}; partition"
    with pytest.raises(FallenBehindError, match=said) as caught:
        journal.check(offsets)
    assert (caught.value.rows, caught.value.asked) == (rows, behind)
    with pytest.raises(FallenBehindError):
        read(journal, 0, offsets[0], offsets[0] + 1)
    with pytest.raises(FallenBehindError):
        journal.register("late", offsets)
    assert writer.store.readers() == {}


def test_rows_go_by_age(writer: JournalWriter, journal: Journal) -> None:
    writer.retention = Retention(1 << 20, 5, 1 << 20)
    written(writer, range(1, 21))
    assert 0 < journal.earliest()[0] <= writer.expected[0].index((15, 15))


def test_a_reader_holds_what_it_needs_until_its_registration_ends(grid: Grid, writer: JournalWriter) -> None:
    writer.retention = Retention(1, None, 1 << 20)
    written(writer, range(1, 5))
    journal = Journal("", writer.name, client=grid.client())
    journal.register("slow", journal.earliest())
    offsets = journal.earliest()
    written(writer, range(5, 30))
    assert journal.earliest() == offsets
    # A process that sleeps: nothing is renewed, and the writer counts a minute by its own clock.
    journal._leases["slow"].leave()
    writer.now = LEASE
    writer.write(30, {0: [30]})
    assert journal.earliest()[0] == offsets[0]
    writer.now = LEASE + 1
    writer.write(31, {0: [31]})
    assert journal.earliest()[0] > offsets[0]
    assert writer.client.entries(writer.store.place.leases()) == []


def test_a_reader_lets_rows_go_as_it_goes_on(writer: JournalWriter, journal: Journal) -> None:
    writer.retention = Retention(1, None, 1 << 20)
    written(writer, range(1, 5))
    offsets = journal.latest().ends
    first = journal.earliest()
    journal.register("one", first)
    journal.register("two", first)
    for epoch in range(5, 12):
        journal.renew("one", journal.latest().ends)
        written(writer, range(epoch, epoch + 1))
    assert journal.earliest() == first
    assert set(writer.store.readers()) == {"one", "two"}
    journal.renew("two", offsets)
    written(writer, range(12, 13))
    # In chunks: one that has more goes later.
    assert journal.earliest() == {**offsets, 0: first[0]}
    for reader in ("one", "two", "two"):
        journal.release(reader)
    written(writer, range(13, 22))
    assert journal.earliest()[0] > offsets[0]


def test_a_reader_is_not_overlooked_while_its_registration_is_renewed(
    writer: JournalWriter, journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer.write(1, {0: [1]})
    journal.register("one", {0: 0})
    entries = writer.client.entries
    renewed = iter([True, True, False])

    def then_renewed(prefix: str) -> object:
        found = entries(prefix)
        if next(renewed, False):
            journal.renew("one", {0: 1})
        return found

    monkeypatch.setattr(writer.client, "entries", then_renewed)
    assert writer.store.readers() == {"one": {0: 1}}
    [before] = entries(writer.store.place.leases())
    journal.renew("one", {0: 1})
    [after] = entries(writer.store.place.leases())
    assert (before.name != after.name, before.partition) == (True, after.partition)
    journal.release("one")


def test_a_full_journal_waits_for_readers_or_lets_go(writer: JournalWriter, journal: Journal) -> None:
    writer.retention = Retention(1, None, 20_000)
    written(writer, range(1, 3))
    journal.register("slow", journal.earliest())
    with pytest.raises(FullError) as caught:
        written(writer, range(3, 60))
    version = writer.store.newest()
    assert version is not None
    assert (caught.value.size > 20_000, [*caught.value.readers]) == (True, ["slow"])
    writer.retention = Retention(1, None, 20_000, waits=False)
    written(writer, range(version.epoch + 1, version.epoch + 40))
    newest = writer.store.newest()
    assert newest is not None
    assert newest.size <= 20_000
    with pytest.raises(FallenBehindError):
        journal.check(dict.fromkeys(range(PARTITIONS), 0))
    journal.release("slow")


def test_what_is_another_journal_is_not_read_from_old_offsets(writer: JournalWriter, journal: Journal) -> None:
    writer.write(1, {0: [1]})
    with pytest.raises(AnalysisError, match="has partition 0 up to 1, and 7 is asked for: it is another journal"):
        journal.check({0: 7})
    with pytest.raises(AnalysisError, match="has no partition 9: there are 4, from 0"):
        journal.check({9: 0})
    with pytest.raises(AnalysisError, match="has no offset -1 in partition 0: they begin with 0"):
        read(journal, 0, -1, 1)
    with pytest.raises(AnalysisError, match="has partition 0 up to 1, not 5"):
        read(journal, 0, 0, 5)
    with pytest.raises(AnalysisError, match="is not a name of a journal"):
        journal.register("a/b", {0: 0})


def test_rows_of_another_journal_do_not_follow_those_of_one_that_was_removed(
    grid: Grid, writer: JournalWriter, journal: Journal
) -> None:
    for epoch in (1, 2):
        writer.write(epoch, {0: [epoch]})
    batches = journal.read(0, 0, 2)
    assert next(batches).column(0).to_pylist() == [1]
    writer.store.remove()
    again = JournalWriter(grid.client(), writer.name, query="another")
    for epoch in (1, 2, 3):
        again.write(epoch, {0: [10 * epoch]})
    with pytest.raises(ReleasedError, match="of which epoch 2 was read, was removed, and is written by query another"):
        next(batches)
    assert read(Journal("", writer.name, client=grid.client()), 0, 1, 2) == [(20, 1, 2)]


@pytest.mark.parametrize("offsets", [{"0": 1}, {0: 1.0}, {0: None}, {0: True}, {0: -1}, {0: 1 << 63}])
def test_what_is_not_an_offset_does_not_reach_the_writer(
    writer: JournalWriter, journal: Journal, offsets: dict[int, int]
) -> None:
    writer.write(1, {0: [1]})
    with pytest.raises(AnalysisError, match=r"reader: \"board\" is not registered"):
        journal.renew("board", {0: 1})
    journal.register("board", {0: 1})
    for tell in (journal.renew, journal.register):
        with pytest.raises(AnalysisError, match=r"offsets: .* is not a partition with the offset of its next row"):
            tell("board", offsets)
    assert writer.store.readers() == {"board": {0: 1}}


def test_what_is_lost_is_named_with_partition_offsets_and_epochs(grid: Grid, writer: JournalWriter) -> None:
    for epoch in (1, 2, 3):
        writer.write(epoch, {1: [epoch], 2: [epoch] * 4})
    version = writer.store.newest()
    assert version is not None
    lost = version.chunks[2][1]
    for member in grid.members:
        member.entries.remove([lost.entry.key])
    journal = Journal("", writer.name, client=grid.client(patience=3.0))
    said = r"of the grid, with 4 rows of its partition 2, offsets 4 to 7, of epochs 2 to 2 \(its newest epoch is 3\)"
    with pytest.raises(LostRowsError, match=said):
        read(journal, 2, 0, 12)
    assert read(journal, 1, 0, 3) == [(1, 0, 1), (2, 1, 2), (3, 2, 3)]
    with pytest.raises(LostRowsError, match=said):
        writer.store.check(version)


def test_a_process_without_pyspark_reads(grid: Grid, writer: JournalWriter) -> None:
    writer.write(1, {0: [5]})
    address = grid.members[0].address.uri.partition("//")[2]
    program = (
        "import sys; sys.modules['pyspark'] = None\n"
        "from sparkjet_grid.journal_reader import Journal\n"
        f"with Journal('grid://{address}', {writer.name!r}, token_file={grid.access.token_file!r}) as journal:\n"
        "    print(next(journal.read(0, 0, 1)).to_pylist(), journal.latest().epoch)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout == "[{'n': 5, '_partition': 0, '_offset': 0, '_epoch': 1}] 1\n", done.stderr


def test_a_partition_that_does_not_exist_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    journal = Journal("", "orders", client=SimpleNamespace())  # type: ignore[arg-type]
    monkeypatch.setattr(journal._store, "newest", lambda: EMPTY)
    with pytest.raises(AnalysisError, match='journal "orders" has no partition 7: there are 3, from 0'):
        next(journal.read(7, 0, 1))
