"""The source ``sparkjet-grid-journal`` as Spark calls it, without Spark: on members on loopback."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows

from sparkjet.connectors.grid.journal_source import GridJournalDataSource, JournalStreamReader
from sparkjet.connectors.grid.journal_source_settings import EARLIEST, LATEST, JournalSettings, open_journal
from sparkjet.connectors.grid.location import Location
from sparkjet.connectors.grid.unregistered import UNREGISTERED
from sparkjet.errors import AnalysisError, SourceError, SparkjetError
from sparkjet.options import Options
from sparkjet.sources.alignment import file_of, place, write
from sparkjet.testing.source_contract import SourceContract, SourceUnderTest, through_json
from sparkjet.time import MIN
from sparkjet_grid.access import create_token
from sparkjet_grid.journal_version import Position, Retention
from sparkjet_grid.places import Writer
from sparkjet_grid.reader_leases import LEASE
from tests.grid.grids import Grid
from tests.grid.journals import PARTITIONS, JournalWriter

NAMES = ["n", "_partition", "_offset", "_epoch"]
ALL = range(PARTITIONS)


@dataclass
class Setting:
    """A journal, who writes it, and readers of it."""

    grid: Grid
    name: str
    readers: list[JournalStreamReader] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.writer = JournalWriter(self.grid.client(), self.name)
        self.epoch = 0

    def location(self) -> Location:
        members = ",".join(member.address.uri.partition("//")[2] for member in self.grid.members)
        return Location(f"grid://{members}", self.name, str(self.grid.access.token_file))

    def reader(self, **settings: Any) -> JournalStreamReader:
        made = JournalStreamReader(JournalSettings(self.location(), **settings), NAMES)
        self.readers.append(made)
        return made

    def write(self, rows: dict[int, int], *, clock: int = 0) -> None:
        """An epoch with some rows of some partitions, no two of them equal."""
        self.epoch += 1
        self.writer.write(
            self.epoch,
            {each: [self.epoch * 1000 + 100 * each + n for n in range(rows[each])] for each in rows},
            clock=clock,
        )


@pytest.fixture
def setting(grid: Grid, request: pytest.FixtureRequest) -> Iterator[Setting]:
    made = Setting(grid, request.node.name)
    yield made
    for reader in made.readers:
        reader._journal.close()


def latest(reader: JournalStreamReader, start: Any, limit: ReadLimit | None = None) -> Any:
    return through_json(reader.latestOffset(through_json(start), limit or ReadAllAvailable()))


def rows_of(reader: JournalStreamReader, start: Any, end: Any) -> list[tuple[int, int]]:
    """Partition and offset of the rows of a batch."""
    found = [row for part in reader.partitions(start, end) for batch in reader.read(part) for row in batch.to_pylist()]
    assert all(set(row) == set(NAMES) for row in found)
    return sorted((row["_partition"], row["_offset"]) for row in found)


class TestGridJournal(SourceContract):
    @pytest.fixture
    def source(self, setting: Setting) -> SourceUnderTest:
        # Of a writer that has just begun; its watermark alone would make a batch.
        setting.writer.watermark = lambda epoch: MIN if epoch == 1 else epoch
        setting.write({})
        return SourceUnderTest(
            reader=setting.reader, add=lambda rows: setting.write({0: rows // 2, 2: rows - rows // 2})
        )


def test_each_partition_has_the_watermark_of_the_last_epoch_that_is_read_there(setting: Setting) -> None:
    setting.write({0: 2, 1: 1})
    setting.write({0: 4, 1: 0})
    reader = setting.reader()
    start = through_json(reader.initialOffset())
    assert start["offsets"] == {"0": 0, "1": 0, "2": 0, "3": 0}
    # 4 of 7 rows: in partition 0 that is in the middle of the second epoch, the others have read all of it.
    middle = latest(reader, start, ReadMaxRows(4))
    assert middle["offsets"] == {"0": 4, "1": 1, "2": 0, "3": 0}
    assert middle["watermarks"] == {"0": 1000, "1": 2000, "2": 2000, "3": 2000}
    end = latest(reader, middle)
    assert set(end["watermarks"].values()) == {2000}
    both = rows_of(reader, start, middle) + rows_of(reader, middle, end)
    assert sorted(both) == rows_of(setting.reader(), start, end)


def test_a_watermark_that_moves_without_rows_makes_a_batch(setting: Setting) -> None:
    setting.write({0: 2})
    reader = setting.reader()
    end = latest(reader, reader.initialOffset())
    assert latest(reader, end) == end
    setting.write({})
    moved = latest(reader, end)
    assert moved["offsets"] == end["offsets"]
    assert set(moved["watermarks"].values()) == {2000}
    assert rows_of(reader, end, moved) == []
    # It has been read to its end all the same.
    assert reader.reportLatestOffset()["offsets"] == moved["offsets"]


def test_a_partition_that_is_too_far_ahead_is_held_back(setting: Setting) -> None:
    setting.write({0: 6, 1: 6})
    reader = JournalStreamReader(JournalSettings(setting.location(), max_offsets=4, max_drift=300), NAMES, place())
    setting.readers.append(reader)
    limit = reader.getDefaultReadLimit()
    first = latest(reader, reader.initialOffset(), limit)
    assert first["offsets"] == {"0": 2, "1": 2, "2": 0, "3": 0}
    # As the engine says it after the batch.
    write(file_of(first), {"0": 400, "1": 0})
    second = latest(reader, first, limit)
    assert second["offsets"] == {"0": 2, "1": 6, "2": 0, "3": 0}
    assert second["alignment"] == {**first["alignment"], "held": {"0": 400}, "slowest": "1"}
    write(file_of(second), {"0": 400, "1": 0})
    # Who has been read to its end holds nobody.
    last = latest(reader, second, limit)
    assert last["offsets"] == {"0": 6, "1": 6, "2": 0, "3": 0}
    assert last["alignment"] == {**first["alignment"], "held": {}, "slowest": ""}
    write(file_of(last), {})
    assert latest(reader, last, limit) == last
    # Without the option, the offset no longer mentions it.
    assert "alignment" not in latest(setting.reader(), last)


def test_rows_that_are_gone_while_they_are_held_back_are_counted_once(setting: Setting) -> None:
    setting.writer.retention = Retention(age=1)
    setting.write({0: 4, 1: 4}, clock=1)

    def aligned() -> JournalStreamReader:
        given = JournalSettings(setting.location(), max_offsets=4, max_drift=300, fail_on_data_loss=False)
        setting.readers.append(JournalStreamReader(given, NAMES, place()))
        return setting.readers[-1]

    reader = aligned()
    limit = reader.getDefaultReadLimit()
    first = latest(reader, reader.initialOffset(), limit)
    assert first["offsets"] == {"0": 2, "1": 2, "2": 0, "3": 0}
    # The query is away for longer than rows are kept for it, and goes on.
    reader._journal.close()
    setting.writer.now += 2 * LEASE
    setting.write({0: 2, 1: 6}, clock=10)
    setting.write({1: 1}, clock=11)
    reader = aligned()
    write(file_of(first), {"0": 400, "1": 0})
    second = latest(reader, first, limit)
    assert (second["lost"], second["alignment"]["held"]) == ({"0": 2, "1": 2}, {"0": 400})
    assert second["offsets"] == {"0": 4, "1": 8, "2": 0, "3": 0}
    assert rows_of(reader, first, second) == [(1, each) for each in range(4, 8)]
    write(file_of(second), {"0": 400, "1": 0})
    last = latest(reader, second, limit)
    # The slow one has three rows, and the rest of the batch is for the other.
    assert (last["lost"], last["offsets"]) == ({"0": 2, "1": 2}, {"0": 5, "1": 11, "2": 0, "3": 0})
    assert rows_of(reader, second, last) == [(0, 4), *((1, each) for each in range(8, 11))]


def test_available_now_ends_at_the_epoch_that_was_the_newest(setting: Setting) -> None:
    setting.write({0: 2})
    reader = setting.reader()
    reader.prepareForTriggerAvailableNow()
    start = through_json(reader.initialOffset())
    setting.write({0: 2})
    setting.write({})
    end = latest(reader, start)
    assert (end["offsets"]["0"], set(end["watermarks"].values())) == (2, {1000})
    assert latest(reader, end) == end


def test_a_query_may_start_at_the_end_which_moves(setting: Setting) -> None:
    setting.write({0: 2})
    reader = setting.reader(starting=LATEST)
    start = through_json(reader.initialOffset())
    setting.write({0: 2, 1: 1})
    # If the first batch were run again, it would start later: it has no rows.
    first = latest(reader, start)
    assert first["offsets"] == start["offsets"] == {"0": 2, "1": 0, "2": 0, "3": 0}
    again = through_json(setting.reader(starting=LATEST).initialOffset())
    assert rows_of(setting.reader(), again, first) == []
    assert rows_of(reader, first, latest(reader, first)) == [(0, 2), (0, 3), (1, 0)]


def test_a_query_may_start_at_offsets(setting: Setting) -> None:
    setting.write({0: 4, 1: 2})
    starting = {0: 3, 1: EARLIEST, 2: LATEST, 3: 0}
    reader = setting.reader(starting=starting)
    start = through_json(reader.initialOffset())
    assert start["offsets"] == {"0": 3, "1": 0, "2": 0, "3": 0}
    assert rows_of(reader, start, latest(reader, start)) == [(0, 3), (1, 0), (1, 1)]
    for wrong, said in [
        ({0: 5, 1: 0, 2: 0, 3: 0}, "has 5 for partition 0, which has 0 to 4"),
        ({0: 0, 1: 0, 2: 0}, "lacks partition 3"),
        ({**dict.fromkeys(ALL, 0), 7: 0}, "names partition 7, which does not exist"),
    ]:
        with pytest.raises(AnalysisError, match=said):
            setting.reader(starting=wrong).initialOffset()


def test_rows_stay_until_they_are_committed(setting: Setting) -> None:
    setting.writer.retention = Retention(age=1)
    setting.write({0: 2}, clock=1)
    reader = setting.reader()
    start = through_json(reader.initialOffset())
    end = latest(reader, start)
    assert end["reader"].startswith("reader-")
    for clock in (10, 20):
        setting.write({0: 2}, clock=clock)
    assert rows_of(reader, start, end) == [(0, 0), (0, 1)]
    # A driver that starts in its place goes by the same name, whatever it is called.
    again = setting.reader()
    assert rows_of(again, start, end) == [(0, 0), (0, 1)]
    assert latest(again, end)["reader"] == end["reader"]
    assert len(setting.writer.store.readers(setting.writer.book)) == 1
    again.commit(end)
    setting.write({0: 2}, clock=30)
    assert setting.writer.store.newest().base(0) > 0  # type: ignore[union-attr]


def test_a_fork_reads_without_a_reader_and_is_told_what_is_gone(setting: Setting) -> None:
    setting.writer.retention = Retention(age=1)
    setting.write({0: 2}, clock=1)
    reader = setting.reader()
    start = through_json(reader.initialOffset())
    end = latest(reader, start)
    reader._journal.close()
    # As it has them from the record of the query, whatever its code says.
    forked = [{**each, "reader": UNREGISTERED} for each in (start, end)]
    fork = setting.reader(reader="b")
    assert rows_of(fork, *forked) == [(0, 0), (0, 1)]
    assert latest(fork, forked[0]) == forked[1] == latest(fork, forked[1])
    fork.commit(forked[1])
    assert setting.writer.client.entries(setting.writer.store.place.leases()) == []
    setting.writer.now += 2 * LEASE
    for clock in (10, 20):
        setting.write({0: 2}, clock=clock)
    fork.commit(forked[1])
    for late in (fork, setting.reader()):
        with pytest.raises(SourceError, match=r"4 rows are gone.*partition 0, offsets 0 to 3.*Nothing was skipped"):
            latest(late, forked[0])
        with pytest.raises(SourceError, match="rows are gone"):
            rows_of(late, *forked)


def test_a_reader_that_is_gone_holds_nothing_and_what_is_lost_is_named(setting: Setting) -> None:
    setting.writer.retention = Retention(age=1)
    setting.write({0: 2, 1: 1}, clock=1)
    reader = setting.reader(reader="b")
    start = through_json(reader.initialOffset())
    end = latest(reader, start)
    reader._journal.close()
    setting.writer.now += 2 * LEASE
    setting.write({0: 3, 1: 1}, clock=10)
    setting.write({0: 1}, clock=11)
    with pytest.raises(SourceError, match=r"3 rows are gone.*partition 0, offsets 0 to 1.*Nothing was skipped.*false"):
        latest(setting.reader(), start)
    tolerant = setting.reader(fail_on_data_loss=False)
    later = latest(tolerant, start)
    assert later["lost"] == {"0": 2, "1": 1}
    found = rows_of(tolerant, start, later)
    assert found == [(0, 2), (0, 3), (0, 4), (0, 5), (1, 1)]
    # Run again, the batch has the same rows, and what it lacks is counted once.
    assert rows_of(setting.reader(fail_on_data_loss=False), start, later) == found
    setting.write({0: 1}, clock=11)
    assert latest(tolerant, later)["lost"] == {"0": 2, "1": 1}
    # A batch that was planned before: what is left of it.
    with pytest.raises(SourceError, match="rows are gone"):
        rows_of(setting.reader(), start, end)
    assert rows_of(setting.reader(fail_on_data_loss=False), start, end) == []


def test_another_journal_of_the_same_name_is_refused(setting: Setting) -> None:
    setting.write({0: 2})
    reader = setting.reader()
    end = latest(reader, reader.initialOffset())
    another = {**end, "writer": "another query"}
    for begun in (reader, setting.reader()):
        with pytest.raises(SourceError, match=r"is written by query q, and was by another query when.*begun again"):
            latest(begun, another)


def test_tasks_take_nothing_of_one_journal_for_another_of_its_name(setting: Setting) -> None:
    setting.writer.retention = Retention(age=1)
    for clock in (1, 10, 20):
        setting.write({0: 9}, clock=clock)
    reader = setting.reader()
    start = through_json(reader.initialOffset())
    end = latest(reader, start)
    assert rows_of(reader, start, end)[0] == (0, start["offsets"]["0"]) != (0, 0)
    setting.writer.store.remove()
    setting.writer, setting.epoch = JournalWriter(setting.grid.client(), setting.name, query="another"), 0
    setting.write({0: 2})
    # In a worker that has read the first one, where these offsets are gone.
    other = setting.reader(fail_on_data_loss=False)
    begin = through_json(other.initialOffset())
    assert rows_of(other, begin, latest(other, begin)) == [(0, 0), (0, 1)]
    for _ in range(3):
        setting.write({0: 9})
    # Planned before it was removed; by what is remembered of it first, and then by what is there.
    for _ in range(2):
        with pytest.raises(SparkjetError, match="is written by query another"):
            rows_of(reader, start, end)


def test_options_are_checked_and_a_journal_must_be_there(setting: Setting) -> None:
    path = {"path": "grid://127.0.0.1:1/orders"}
    found = JournalSettings.of(Options({**path, "startingOffsets": '{"0": 5, "1": -1}', "maxOffsetsPerTrigger": "7"}))
    assert (found.starting, found.max_offsets, found.moving) == ({0: 5, 1: -1}, 7, True)
    for wrong, said in [
        ({"path": "grid://127.0.0.1:1"}, "needs load"),
        ({"startingOffsets": "first"}, 'startingOffsets="first" is neither JSON nor a word'),
        ({"startingOffsets": '{"0": -3}'}, "has no offset for each partition"),
        ({"startingOffsets": '{"t": {"0": 5}}'}, "has no offset for each partition"),
        ({"startingOffsets": "{"}, "has no offset for each partition"),
        ({"startingOffsets": '{"0": 1, "00": 5}'}, "has no offset for each partition"),
        ({"maxOffsetsPerTrigger": "0"}, "positive whole number"),
        ({"reader": "a/b"}, 'reader: "a/b" is not a name'),
        ({"offsets": "1"}, '"offsets" is not an option of format'),
    ]:
        with pytest.raises(AnalysisError, match=said):
            JournalSettings.of(Options({**path, **wrong}))
    location = replace(setting.location(), name="nowhere")
    options = {"path": f"{location.uri}/nowhere", "tokenFile": str(location.token_file)}
    with pytest.raises(AnalysisError, match='no journal "nowhere"'):
        GridJournalDataSource(options).schema()


class FakeJournal:
    """A journal of one partition with ten rows, as the source asks one; another one has its name from some call on."""

    def __init__(self) -> None:
        self.newest = ("q", 10)
        self.seen = self.newest
        self.registered: dict[str, dict[int, int]] = {}

    @property
    def writer(self) -> Writer:
        return Writer(self.seen[0], "results")

    def latest(self) -> Position:
        self.seen = self.newest
        return Position(self.seen[1], None, {0: self.seen[1]})

    def progress(self, after_epoch: int = 0) -> list[Position]:
        return [self.latest()]

    def earliest(self) -> dict[int, int]:
        return {0: 0}

    def check(self, offsets: dict[int, int]) -> None:
        """Everything is there."""
        self.latest()

    def register(self, reader: str, offsets: dict[int, int]) -> None:
        self.registered[reader] = dict(offsets)
        self.check(offsets)

    def renew(self, reader: str, offsets: dict[int, int]) -> None:
        self.registered[reader] = dict(offsets)


@pytest.fixture
def fake() -> tuple[FakeJournal, JournalStreamReader]:
    journal, reader = FakeJournal(), JournalStreamReader(JournalSettings(Location("grid://", "j"), reader="r"), NAMES)
    reader.__dict__["_journal"] = journal
    return journal, reader


def test_rows_go_when_spark_asks_what_comes_after_them(fake: tuple[FakeJournal, JournalStreamReader]) -> None:
    journal, reader = fake
    end = latest(reader, reader.initialOffset())
    assert journal.registered == {"r": {0: 0}}
    # Its batch has ended. Spark commits it with the next one, which a writer that waits for room never writes.
    assert latest(reader, end) == end
    assert journal.registered == {"r": {0: 10}}


def test_a_journal_that_was_begun_again_during_a_batch_is_refused(
    fake: tuple[FakeJournal, JournalStreamReader],
) -> None:
    journal, reader = fake
    end = latest(reader, reader.initialOffset())
    journal.newest = ("another", 25)
    with pytest.raises(SourceError, match="is written by query another, and was by q when"):
        latest(reader, end)


def test_a_name_has_all_that_is_in_its_path(tmp_path: Path) -> None:
    for name in ("orders#2", "orders?of=today", "a b.ü"):
        found = JournalSettings.of(Options({"path": f"grid://[::1]:5710,h:1/{name}"})).location
        assert (found.uri, found.name) == ("grid://[::1]:5710,h:1", name)
    unclosed = JournalSettings.of(Options({"path": "grid://[::1:5710/orders"})).location
    create_token(tmp_path / "token")
    with pytest.raises(AnalysisError, match=r'"\[::1:5710" is not host:port'):
        open_journal(replace(unclosed, token_file=str(tmp_path / "token")))
