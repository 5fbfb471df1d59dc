"""Up to when a place has all rows: by what its writers tell, and not at all where somebody does not tell."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import pytest

import sparkjet as sj
from sparkjet.connectors.jdbc.statements import Statements
from sparkjet.errors import AnalysisError
from sparkjet.sinks.files import FilesSink
from sparkjet.sinks.pace import Pace
from sparkjet.sinks.protocol import TransactionId
from sparkjet.time import MIN
from sparkjet.tools import complete_until

if TYPE_CHECKING:
    from pathlib import Path

SECOND = 1_000_000
ELEVEN = datetime(2026, 1, 1, 11, tzinfo=timezone.utc)
MICROS = int(ELEVEN.timestamp()) * SECOND


def told(query: str = "q", watermark: int | None = MICROS, epoch: int = 7) -> dict[str, Any]:
    return {"query": query, "output": "results", "epoch": epoch, "watermark": watermark}


def tell(path: Path, epoch: int, watermark: int | None, query: str = "q") -> None:
    """An epoch without rows that tells a watermark."""
    sink = FilesSink(path, pace=Pace(1))
    transaction = TransactionId(query, "results", 1, epoch, 0, clock=0, watermark=watermark)
    sink.commit(sink.tell(transaction), lambda: None)


def test_the_least_of_the_writers_counts_and_a_writer_without_progress_is_named(tmp_path: Path) -> None:
    assert sj.complete_until(tmp_path).why == "no query has written there yet"
    tell(tmp_path, 1, MICROS - SECOND)
    tell(tmp_path, 2, MICROS)
    found = complete_until(str(tmp_path))
    assert (found.until, found.why) == (ELEVEN, "complete until 2026-01-01 11:00:00+00:00, by q/results, epoch 2")
    assert [found.has(ELEVEN + timedelta(microseconds=more)) for more in (-1, 0, 1)] == [True, True, False]
    assert found.has(ELEVEN.astimezone(timezone(timedelta(hours=9))))
    tell(tmp_path, 1, MICROS - 5 * SECOND, query="p")
    found = complete_until(tmp_path)
    assert found.until == ELEVEN - timedelta(seconds=5)
    assert found.without("p").until == found.without("p/results").until == ELEVEN
    for silent in (None, MIN):
        tell(tmp_path, 2 if silent is None else 3, silent, query="p")
        found = complete_until(tmp_path)
        assert (found.until, found.has(ELEVEN)) == (None, False)
        assert found.why == "no watermark yet, or none at all: p/results"


def test_a_watermark_beyond_the_calendar_is_its_end(tmp_path: Path) -> None:
    last = datetime.max.replace(tzinfo=timezone.utc)
    tell(tmp_path, 1, int(last.timestamp()) * SECOND + 20 * SECOND)
    found = complete_until(f"file://{tmp_path}")
    assert found.until == last
    assert found.has(ELEVEN)


def test_files_of_others_are_named(tmp_path: Path) -> None:
    tell(tmp_path, 1, MICROS)
    # Of an epoch that is being published, and what readers do not read.
    for name in ("part-000000002-00000-q-results.parquet", "_SUCCESS", ".x.crc", "k=_a/part-000000002-00000-q-r.orc"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert complete_until(tmp_path).until == ELEVEN
    (tmp_path / "k=_a" / "part-0.parquet").touch()
    (tmp_path / "other.parquet").touch()
    found = complete_until(tmp_path)
    assert (found.until, found.why) == (
        None,
        "rows of other writers, which report no watermark: k=_a/part-0.parquet, 1 other files",
    )
    assert found.without(*found.others).until == ELEVEN


@dataclass
class Delta:
    """As `deltalake.DeltaTable`."""

    versions: list[dict[str, Any]]

    def history(self) -> list[dict[str, Any]]:
        return self.versions

    def transaction_version(self, _: str) -> None: ...


def test_delta_by_its_log() -> None:
    own = [{"operation": "STREAMING UPDATE", "userMetadata": json.dumps({"sparkjet": told(epoch=e)})} for e in (7, 6)]
    kept = ("OPTIMIZE", "ADD CONSTRAINT", "RENAME COLUMN", "DROP COLUMNS", "UPGRADE PROTOCOL", "UPDATE TABLE METADATA")
    assert complete_until(Delta([*({"operation": each} for each in kept), *own])).until == ELEVEN
    assert complete_until(Delta([*own, {"operation": "CREATE TABLE"}])).until == ELEVEN
    other = {"operation": "WRITE", "engineInfo": "Apache-Spark/4.0", "userMetadata": "a note"}
    found = complete_until(Delta([*own, other, other, {**other, "userMetadata": "[]"}]))
    assert (found.until, found.others) == (None, ("WRITE by Apache-Spark/4.0",))


@dataclass
class Summary:
    additional_properties: dict[str, str]
    operation: str = "append"


@dataclass
class Snapshot:
    summary: Summary | None
    snapshot_id: int = 0
    parent_snapshot_id: int | None = None
    timestamp_ms: int = 0


@dataclass
class Iceberg:
    """As a table of `pyiceberg`."""

    properties: dict[str, str]
    kept: list[Snapshot] = field(default_factory=list)

    def snapshots(self) -> list[Snapshot]:
        return self.kept

    def current_snapshot(self) -> Snapshot | None:
        return self.kept[-1] if self.kept else None


def test_iceberg_by_its_properties_and_kafka_connect_by_its_snapshots() -> None:
    table = Iceberg({"sparkjet/q/results": json.dumps({"epoch": 7, "watermark": MICROS}), "owner": "x"})
    table.kept += [Snapshot(Summary({"sparkjet": json.dumps(told())})), Snapshot(Summary({}, "replace"))]
    assert complete_until(table).until == ELEVEN
    commit = {"kafka.connect.commit-id": "c"}
    earlier = ELEVEN - timedelta(minutes=1)
    for text in ("2026-01-01T10:59:00Z", "2026-01-01T19:59+09:00", str(int(earlier.timestamp() * 1000))):
        connect = Snapshot(Summary({**commit, "kafka.connect.valid-through-ts": text}))
        assert complete_until(replace(table, kept=[*table.kept, connect])).until == earlier
    silent = complete_until(replace(table, kept=[*table.kept, Snapshot(Summary(commit))]))
    assert silent.why == "no watermark yet, or none at all: Kafka Connect"
    # Each connector is a writer, by its control topic and group.
    groups = [Snapshot(Summary({**commit, f"kafka.connect.offsets.control.{name}": "{}"})) for name in "ab"]
    both = complete_until(replace(table, kept=[*table.kept, *groups]))
    assert [each.name for each in both.writers] == ["q/results", "Kafka Connect control.a", "Kafka Connect control.b"]
    found = complete_until(replace(table, kept=[*table.kept, Snapshot(Summary({"engine-name": "trino"}, "delete"))]))
    assert (found.until, found.others) == (None, ("delete by trino",))


def snapshot(number: int, parent: int | None, epoch: int, query: str = "q") -> Snapshot:
    return Snapshot(Summary({"sparkjet": json.dumps(told(query, epoch=epoch))}), number, parent, 100 + number)


def test_epochs_that_an_iceberg_table_was_rolled_back_before_are_not_there() -> None:
    table = Iceberg({f"sparkjet/{each}/results": json.dumps({"epoch": 4, "watermark": MICROS}) for each in "qp"})
    table.kept = [snapshot(1, None, 1), snapshot(2, 1, 2), snapshot(3, 2, 3)]
    assert complete_until(table).until == ELEVEN
    # Epochs 2 and 3 have gone, and 4 has come since.
    for last in ([], [snapshot(4, 1, 4)]):
        found = complete_until(replace(table, kept=[*table.kept[1:], table.kept[0], *last]))
        assert found.until is None
        assert found.others == tuple(f"q/results, whose epoch {each} was rolled back" for each in (2, 3))
    # What an attempt has left that another one has made since, or that is not decided; and what expired in between.
    for left in ([snapshot(7, 1, 2)], [snapshot(7, 1, 5)], [snapshot(0, None, 1)]):
        kept = table.kept if left[0].snapshot_id else table.kept[1:]
        assert complete_until(replace(table, kept=[*left, *kept])).until == ELEVEN


def test_what_is_in_another_branch_of_an_iceberg_table_does_not_count() -> None:
    audit = {**told("p", epoch=2), "watermark": MICROS - 60_000_000, "branch": "audit"}
    table = Iceberg({"sparkjet/q/results": json.dumps(told(epoch=4)), "sparkjet/p/results": json.dumps(audit)})
    table.kept = [Snapshot(Summary({"sparkjet": json.dumps(audit)}), 2, 1, 102), snapshot(1, None, 1)]
    assert [each.name for each in complete_until(table).writers] == ["q/results"]
    assert complete_until(table).until == ELEVEN
    # The branch becomes the main one.
    found = complete_until(replace(table, kept=table.kept[::-1]))
    assert [each.name for each in found.writers] == ["q/results", "p/results"]
    assert found.until == ELEVEN - timedelta(minutes=1)


@pytest.mark.parametrize("quote", ['"', "`", ""])
def test_a_database_by_a_connection(quote: str) -> None:
    statements = Statements(lambda name: f"{quote}{name}{quote}", "", "main.orders", ())
    with closing(sqlite3.connect(":memory:")) as connection:
        with pytest.raises(AnalysisError, match="orders: the table sparkjet_epochs beside it cannot be read"):
            complete_until(connection, table="main.orders")
        connection.execute(statements.create_epochs())
        for query, watermark in (("q", MICROS), ("p", None)):
            connection.execute(statements.add_output(), (query, "results"))
            connection.execute(statements.set_published(), (7, "gid", watermark, query, "results"))
        connection.commit()
        connection.execute("BEGIN")
        found = complete_until(connection, table="main.orders")
        assert (found.until, found.why) == (None, "no watermark yet, or none at all: p/results")
        assert found.without("p").why == "complete until 2026-01-01 11:00:00+00:00, by q/results, epoch 7"
        # Rows by name, as hooks may be set up.
        connection.row_factory = lambda cursor, row: dict(
            zip([each[0] for each in cursor.description], row, strict=True)
        )
        assert complete_until(connection, table="main.orders") == found
        # Nothing is left open: the next answer would be the same forever.
        assert not connection.in_transaction
    with pytest.raises(AnalysisError, match=r"sparkjet_epochs beside it cannot be read: .* closed database"):
        complete_until(connection, table="main.orders")


def test_databases_and_topics_are_asked_without_pyspark() -> None:
    asking = ("kafka.completeness", "postgres.progress", "jdbc.progress")
    imports = "".join(f"import sparkjet.connectors.{each}\n" for each in asking)
    without = f"import sys\nsys.modules['pyspark'] = None\n{imports}"
    subprocess.run([sys.executable, "-c", without], check=True, timeout=60)


def test_what_is_not_a_place_is_named(tmp_path: Path) -> None:
    for place, options, message in (
        (tmp_path / "none", {}, "there is no directory .*none"),
        (
            7,
            {},
            "7 is not a directory, .* Journal or Map of a grid, dsn or connection with table=…, or kafka",
        ),
        ("kafka://h:9092/t", {}, r"progress_topics=\[\"…\"\] is missing"),
        ("kafka://h:9092/", {"progress_topics": ["p"]}, "is not kafka://host:9092/topic"),
        ("KAFKA://h:9092/", {"progress_topics": "p"}, "is not kafka://host:9092/topic"),
        # Not as a directory, with the password in the message.
        ("postgresql://me:secret@h/db", {}, "complete_until: postgresql:… is not a directory of this .* give table="),
        ("jdbc:mysql://h/db?password=secret", {}, "complete_until: jdbc:… is not a directory of this machine"),
        ("s3://lake/clicks", {}, "complete_until: s3:… is not a directory of this machine.* DeltaTable"),
    ):
        with pytest.raises(AnalysisError, match=message):
            complete_until(place, **options)
    for text in ("", "file://"):
        with pytest.raises(AnalysisError, match="the location is empty"):
            complete_until(text)
    day: Any = ELEVEN.date()
    with pytest.raises(AnalysisError, match="is not a datetime"):
        complete_until(tmp_path).has(day)
    with pytest.raises(AnalysisError, match=r"has no time zone.*replace\(tzinfo=timezone.utc\)"):
        complete_until(tmp_path).has(ELEVEN.replace(tzinfo=None))
