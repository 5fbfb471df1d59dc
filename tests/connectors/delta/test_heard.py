"""Progress of writers in a Delta table's log, as its readers receive it; without Spark, written by delta-rs."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from sparkjet.connectors.delta.format import SOURCE
from sparkjet.connectors.delta.heard import DeltaWriters
from sparkjet.connectors.delta.log import file_of, metadata
from sparkjet.connectors.format import Followed
from sparkjet.errors import SourceError
from sparkjet.storage.posix_directory import PosixDirectory
from sparkjet.time import MIN, Heard

OTHER = "WRITE by delta-rs"


@dataclass
class Table:
    """A table, and the watermark that each version tells, by its writer."""

    path: Path
    told: list[dict[str, int | None]] = field(default_factory=list)
    epochs: dict[str, int] = field(default_factory=dict)

    def write(self, writer: str | None = None, watermark: int | None = None, **how: Any) -> None:
        """A version with a row: of a writer of ours, or of others."""
        given = None
        if writer is not None:
            query, output = writer.split("/")
            epoch = self.epochs[writer] = self.epochs.get(writer, 0) + 1
            numbers = [Transaction(f"sparkjet/{writer}", epoch)]
            if watermark is not None and watermark != MIN:
                numbers.append(Transaction(f"sparkjet/{writer}/watermark", watermark))
            text = metadata({"query": query, "output": output, "epoch": epoch, "watermark": watermark})
            given = CommitProperties({"userMetadata": text}, app_transactions=numbers)
        rows = pa.table({"n": [len(self.told)]})
        write_deltalake(self.path, rows, **{"mode": "append", **how}, commit_properties=given)
        self.told.append({} if writer is None else {writer: watermark})

    def compact(self) -> None:
        """A version that moves rows, if there are several files."""
        DeltaTable(self.path).optimize.compact()
        self.told += [{}] * (DeltaTable(self.path).version() + 1 - len(self.told))

    def forget(self) -> None:
        """A checkpoint, and nothing of the log before it."""
        table = DeltaTable(self.path)
        table.create_checkpoint()
        for version in range(table.version()):
            (self.path / "_delta_log" / file_of(version)).unlink(missing_ok=True)

    @property
    def writers(self) -> DeltaWriters:
        """A new stream's."""
        return DeltaWriters(PosixDirectory(self.path / "_delta_log"))

    def at(self, version: int) -> dict[str, int | None]:
        """The newest that each writer had told up to a version."""
        return {writer: mark for told in self.told[: version + 1] for writer, mark in told.items()}


def end(version: int, index: int = -1, table: str = "t", **more: Any) -> dict[str, Any]:
    return {"sourceVersion": 1, "reservoirId": table, "reservoirVersion": version, "index": index, **more}


def test_a_version_counts_when_all_its_rows_are_read(tmp_path: Path) -> None:
    table = Table(tmp_path)
    for watermark in (MIN, 10, 20):
        table.write("q/a", watermark)
    writers = table.writers
    assert writers.heard(end(2, 0, isStartingVersion=True), None) is None
    found = [writers.heard(end(*each), None) for each in [(0,), (1,), (1, 0), (2, 5), (3,)]]
    assert [each and each.writers for each in found] == [{"q/a": each} for each in (MIN, MIN, MIN, 10, 20)]
    table.write("r/later", 5)
    assert writers.heard(end(3), None) == Heard(table="t", version=2, writers={"r/later": MIN, "q/a": 20})
    # The same after what was heard before; and a table that was made anew begins anew.
    assert writers.heard(end(3), found[1]) == found[4]
    assert writers.heard(end(2, table="other"), found[4]) == Heard(
        table="other", version=1, writers={"r/later": MIN, "q/a": 10}
    )


def test_others_count_once_their_rows_may_be_late(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    table = Table(tmp_path)
    table.write()
    table.write("q/a", 10)
    table.compact()
    first = table.writers.heard(end(3), None)
    assert first == Heard(table="t", version=2, writers={"q/a": 10})
    DeltaTable(tmp_path).delete("n = 0")
    DeltaTable(tmp_path).update(predicate="n = 1", new_values={"n": 5})
    second = table.writers.heard(end(5), first)
    # A stream that has rows of changed files does get them; others skip them, or end.
    assert second is not None
    assert (second.others, caplog.text) == ([], "")
    rereads = DeltaWriters(PosixDirectory(tmp_path / "_delta_log"), rereads=True).heard(end(5), first)
    assert rereads is not None
    assert [each.split(" ")[0] for each in rereads.others] == ["DELETE", "UPDATE"]
    caplog.clear()
    table.write()
    third = table.writers.heard(end(6), second)
    assert third is not None
    assert [each.partition(":")[0] for each in third.others] == [OTHER]
    assert f"_delta_log has rows of other writers ({third.others[0]})" in caplog.text
    assert f"carried(without=['{third.others[0]}'])" in caplog.text
    # Only a feed of changes has the rows of files that are removed.
    DeltaTable(tmp_path).delete(f"n = {len(table.told) - 1}")
    log = PosixDirectory(tmp_path / "_delta_log")
    for how, expected in (({"rereads": True}, 1), ({"changes": True}, 2)):
        fourth = DeltaWriters(log, **how).heard(end(7), third)
        assert fourth is not None
        assert len(fourth.others) == expected


def test_the_options_of_the_connector_say_which_rows_a_stream_gets(tmp_path: Path) -> None:
    table = Table(tmp_path / "t")
    table.write()
    table.write("q/a", 10)
    first = table.writers.heard(end(2), None)
    table.write(mode="overwrite")
    # As Hadoop takes it, which decodes nothing; no session is needed.
    place = f"file://{table.path.rename(tmp_path / 'a%20b')}"
    no_session: Any = None
    for option, expected in (
        ("ignoreDeletes", 0),
        ("ignoreChanges", 1),
        ("ignoreFileDeletion", 1),
        ("readChangeFeed", 1),
    ):
        hearing = SOURCE.hearing
        assert hearing is not None
        found = hearing(Followed(no_session, place, {option.lower(): "True"})).heard(end(3), first)
        assert found is not None
        assert len(found.others) == expected, option


def test_what_the_log_has_lost_is_in_its_checkpoint_or_waited_for(tmp_path: Path) -> None:
    table = Table(tmp_path)
    table.write("q/a", 10)
    table.write("q/b", 5)
    table.write("q/late", None)
    before = table.writers.heard(end(1), None)
    table.write("q/a", 20)
    table.forget()
    # The commit of version 3 is there: what q/a had told before is not known.
    assert table.writers.heard(end(3), None) == Heard(
        table="t", version=2, writers={"q/a": MIN, "q/b": 5, "q/late": MIN}
    )
    assert table.writers.heard(end(4), None) == Heard(
        table="t", version=3, writers={"q/a": 20, "q/b": 5, "q/late": MIN}
    )
    # A stream that goes on behind what was lost.
    assert before is not None
    assert table.writers.heard(end(4), before) == table.writers.heard(end(4), None)
    for version in (4, 5):
        table.write("q/a", 10 * version)
        assert version == DeltaTable(tmp_path).version()
    (tmp_path / "_delta_log" / file_of(4)).unlink()
    with pytest.raises(SourceError, match=r"neither all commits up to version 5 nor a checkpoint"):
        table.writers.heard(end(6), before)


@pytest.mark.parametrize("seed", [*range(3), *(pytest.param(seed, marks=pytest.mark.long) for seed in range(3, 40))])
def test_whatever_the_log_keeps_a_stream_hears_what_was_told(tmp_path: Path, seed: int) -> None:
    chance, table = random.Random(seed), Table(tmp_path)
    marks = dict.fromkeys(("q/a", "q/b", "r/a"), MIN)
    heard: Heard | None = None
    read = -1
    for _ in range(20):
        writer = chance.choice([*marks, *marks, "forget", "compact"])
        if writer == "compact" and table.told:
            table.compact()
        elif writer == "forget" and read >= 0:
            # What a stream has not read yet is not forgotten.
            before = {version: (tmp_path / "_delta_log" / file_of(version)) for version in range(len(table.told))}
            kept = {version: path.read_bytes() for version, path in before.items() if version > read and path.exists()}
            table.forget()
            for version, content in kept.items():
                before[version].write_bytes(content)
        elif writer in marks:
            marks[writer] = chance.choice([marks[writer], len(table.told), len(table.told) + 1])
            table.write(writer, marks[writer])
        if table.told and chance.random() < 0.5:
            read = chance.randint(read, len(table.told) - 1)
            offset = end(read + 1, chance.choice([-1, 0]))
            heard = table.writers.heard(offset, heard)
            assert heard is not None
            # From the record of another process.
            heard = msgspec.json.decode(msgspec.json.encode(heard), type=Heard)
            # Who was there when it began, with rows that come later, is waited for.
            assert (heard.version, heard.others) == (read, [])
            assert heard.writers == dict.fromkeys(heard.writers, MIN) | table.at(read)
            # A stream that begins there waits for who has told more since; and hears of all others the same.
            begun = table.writers.heard(offset, None)
            assert begun is not None
            for name, mark in table.at(read).items():
                assert begun.writers[name] in {mark, MIN}
                assert begun.writers[name] == mark or any(name in each for each in table.told[read + 1 :])
            assert begun.others == []
