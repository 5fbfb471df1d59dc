"""Progress of writers in an Iceberg table's snapshots, as its readers receive it; without Iceberg."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from sparkjet.connectors.iceberg.heard import IcebergWriters, Snapshot, Snapshots, told_by
from sparkjet.time import MIN, Heard

SECOND = 1_000_000
CONNECT = "Kafka Connect control.orders"


@dataclass
class Table:
    """A table, with what each snapshot tells by its writer."""

    snapshots: list[Snapshot] = field(default_factory=list)
    told: list[dict[str, int | None]] = field(default_factory=list)
    properties: dict[str, str] = field(default_factory=dict)
    expired: int = 0
    """Number of snapshots that are gone."""

    def add(self, told: dict[str, int | None], operation: str = "append", files: int = 1, **summary: str) -> None:
        number = len(self.snapshots)
        self.told.append(told)
        summary["added-data-files"] = str(files)
        self.snapshots.append(Snapshot(number, number - 1 if number else None, operation, summary))

    def write(self, writer: str, watermark: int | None, files: int = 1) -> None:
        """A snapshot of ours."""
        query, output = writer.split("/")
        self.properties[f"sparkjet/{writer}"] = json.dumps({"epoch": len(self.told), "watermark": watermark})
        text = json.dumps({"query": query, "output": output, "watermark": watermark})
        self.add({writer: watermark}, files=files, sparkjet=text)

    def connect(self, seconds: int | None) -> None:
        """A snapshot of Kafka Connect; without a time, not all tasks have answered."""
        until = {} if seconds is None else {"kafka.connect.valid-through-ts": f"1970-01-01T00:00:{seconds:02}Z"}
        told: dict[str, int | None] = {} if seconds is None else {CONNECT: seconds * SECOND}
        summary = {"kafka.connect.commit-id": "c", "kafka.connect.offsets.control.orders": "{}", **until}
        self.add(told if CONNECT in self.at(len(self.told)) else {CONNECT: MIN, **told}, **summary)

    def at(self, number: int) -> dict[str, int | None]:
        """The newest that each writer had told up to a snapshot."""
        return {writer: mark for told in self.told[: number + 1] for writer, mark in told.items()}

    @property
    def writers(self) -> IcebergWriters:
        """A new stream's."""

        def look_up(number: int) -> Snapshot | None:
            return self.snapshots[number] if self.expired <= number < len(self.snapshots) else None

        newest = len(self.snapshots) - 1 if self.snapshots else None
        return IcebergWriters(lambda: Snapshots("t", newest, self.properties, look_up))


def end(snapshot: int, position: int, **more: Any) -> dict[str, Any]:
    return {"version": 1, "snapshot_id": snapshot, "position": position, **more}


def test_a_snapshot_counts_when_all_its_files_are_read(caplog: pytest.LogCaptureFixture) -> None:
    table = Table()
    table.write("q/a", 10)
    table.connect(None)
    table.write("q/a", 20, files=3)
    table.connect(3)
    table.write("q/a", 30, files=0)
    table.connect(None)
    writers = table.writers
    assert writers.heard(end(-1, -1), None) is None
    found = None
    marks = []
    for place in [(0, 0), (0, 1), (1, 1), (2, 2), (2, 3), (3, 1), (4, 0), (5, 1)]:
        found = writers.heard(end(*place), found)
        marks.append(found and [found.writers.get("q/a"), found.writers.get(CONNECT)])
    connect = 3 * SECOND
    expected = [[10, None], [10, MIN], [10, MIN], [20, MIN], [20, connect], [30, connect], [30, connect]]
    assert marks == [None, *expected]
    # The first snapshot of a stream may have the files of all before.
    table.snapshots[2].summary["total-data-files"] = "5"  # type: ignore[index]
    assert writers.heard(end(2, 4, scan_all_files=True), None) is None
    assert writers.heard(end(2, 5, scan_all_files=True), None) == Heard(
        table="t", version=2, writers={"q/a": 20, CONNECT: MIN}
    )
    table.add({}, "replace")
    table.add({}, "overwrite")
    table.add({}, **{"engine-name": "spark"})
    found = writers.heard(end(7, 1), found)
    assert found is not None
    assert (found.others, caplog.text) == ([], "")
    found = table.writers.heard(end(8, 1), found)
    assert found is not None
    assert found.others == ["append by spark"]
    assert "carried(without=['append by spark'])" in caplog.text


def test_a_writer_into_another_branch_is_not_waited_for() -> None:
    table = Table()
    table.write("q/a", 10)
    table.properties["sparkjet/r/audit"] = json.dumps({"epoch": 4, "watermark": 5, "branch": "audit"})
    assert table.writers.heard(end(0, 1), None) == Heard(table="t", version=0, writers={"q/a": 10})
    # Its branch becomes the main one.
    table.write("r/audit", 20)
    table.properties["sparkjet/r/audit"] = json.dumps({"epoch": 5, "watermark": 20, "branch": "audit"})
    assert table.writers.heard(end(0, 1), None) == Heard(table="t", version=0, writers={"q/a": 10, "r/audit": MIN})
    assert table.writers.heard(end(1, 1), None) == Heard(table="t", version=1, writers={"q/a": 10, "r/audit": 20})


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("+56000-01-01T00:00:00Z", 253_402_300_799),
        ("-0044-03-15T12:00Z", -62_135_596_800),
        ("99999999999999999999", 253_402_300_799),
        ("-5000", -5),
        ("1970-01-01T01:00:07.123456789+01:00", 7),
        ("1970-01-01T00:00:07", None),
        ("soon", None),
    ],
)
def test_connect_tells_any_time_that_records_have(text: str, seconds: int | None) -> None:
    told, _ = told_by(Snapshot(1, None, "append", {"kafka.connect.valid-through-ts": text}))
    assert {name: mark and mark != MIN and mark // SECOND for name, mark in told.items()} == {
        "Kafka Connect": seconds if seconds is not None else False
    }


@pytest.mark.parametrize("seed", range(20))
def test_whatever_has_expired_a_stream_hears_what_was_told(seed: int) -> None:
    chance, table = random.Random(seed), Table()
    heard: Heard | None = None
    read = -1
    for second in range(40):
        which = chance.choice(["q/a", "q/b", "r/a", "connect", "replace"])
        if which == "connect":
            table.connect(chance.choice([None, second]))
        elif which == "replace":
            table.add({}, "replace")
        else:
            table.write(which, chance.choice([second, second, None]))
        if chance.random() < 0.4:
            read = chance.randint(max(read, 0), len(table.snapshots) - 1)
            heard = table.writers.heard(end(read, 1), heard)
            assert heard is not None
            heard = msgspec.json.decode(msgspec.json.encode(heard), type=Heard)
            # Who was there when it began, with rows that come later, is waited for.
            assert (heard.version, heard.writers) == (read, dict.fromkeys(heard.writers, MIN) | table.at(read))
            # A stream that begins there waits for who has told more since, and hears of ours the same.
            begun = table.writers.heard(end(read, 1), None)
            assert begun is not None
            for name, mark in table.at(read).items():
                if name != CONNECT:
                    assert begun.writers[name] == mark or (
                        begun.writers[name] == MIN and any(name in each for each in table.told[read + 1 :])
                    )
        if chance.random() < 0.2:
            table.expired = max(table.expired, read)
