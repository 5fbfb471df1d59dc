"""The checks of topics and tables: they accept correct output and find every kind of damage."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from sparkjet.snapshots.record import EpochKind, Record, SparkPosition
from tests.crash import history
from tests.crash.delivered import check_table, check_topic
from tests.crash.jobs import Place
from tests.crash.topics import Topic
from tests.snapshots.records import NO_WATERMARKS
from tests.sources.feed import send, transaction

if TYPE_CHECKING:
    from tests.servers.kafka import KafkaServer
    from tests.servers.postgres import PostgresServer

ROWS = Counter({(0, 60_000_000, "x", 2, 3, 1.5): 1, (0, 60_000_000, None, 1, 7, 7.0): 1})


def record(place: Place, slot: int, batch: int | None = None, ends: dict[str, Any] | None = None) -> None:
    """Put a record into a query's log."""
    given = {f"offsets/{batch}": f"v1\n{{}}\n{json.dumps(ends)}"}
    position = None if batch is None else SparkPosition(batch, given, {})
    log = place.home / "snapshots" / "log"
    log.mkdir(parents=True, exist_ok=True)
    made = Record(EpochKind.BATCH, place.root.name, 0, "run", slot, {}, 0, NO_WATERMARKS, {}, {}, position, [])
    (log / f"{slot:012}.json").write_bytes(made.encode())


@pytest.fixture
def place(tmp_path: Path) -> Place:
    found = Place(tmp_path / f"q{uuid.uuid4().hex}", tmp_path / "feed")
    found.history.mkdir(parents=True)
    return found


def test_a_topic_has_each_row_once_and_nothing_open(kafka: KafkaServer, place: Place) -> None:
    topic = kafka.topic()
    (place.root / "kafka.json").write_text(json.dumps({"topic": topic}))
    record(place, 0)
    first, second = (json.dumps(dict(enumerate(row))).encode() for row in ROWS)
    send(kafka, topic, first)
    with pytest.raises(AssertionError, match="1 rows are missing, 0 too many"):
        check_topic(kafka, place, ROWS)
    send(kafka, topic, second)
    check_topic(kafka, place, ROWS)
    opened = transaction(kafka, f"sparkjet/{place.root.name}/out/0")
    opened.produce(topic, first)
    assert opened.flush(30) == 0
    with pytest.raises(AssertionError, match="transactions are left open"):
        check_topic(kafka, place, ROWS)
    opened.commit_transaction(30)
    with pytest.raises(AssertionError, match="0 rows are missing, 1 too many"):
        check_topic(kafka, place, ROWS)


def test_a_table_has_each_row_once_and_nothing_prepared(postgres: PostgresServer, dsn: str, place: Place) -> None:
    (place.root / "dsn").write_text(dsn)
    name = place.root.name
    with psycopg.connect(dsn, autocommit=True) as connection:

        def add(row: tuple[Any, ...]) -> None:
            times = "to_timestamp(%s / 1000000), to_timestamp(%s / 1000000)"
            connection.execute(f"INSERT INTO {name} VALUES ({times}, %s, %s, %s, %s)", row)  # type: ignore[arg-type]

        columns = 'start timestamptz, "end" timestamptz, key text, rows bigint, total bigint, mean float8'
        connection.execute(f"CREATE TABLE {name} ({columns})")  # type: ignore[arg-type]
        first, second = ROWS
        add(first)
        with pytest.raises(AssertionError, match="1 rows are missing, 0 too many"):
            check_table(postgres, place, ROWS)
        add(second)
        check_table(postgres, place, ROWS)
        connection.execute("BEGIN")
        add(first)
        connection.execute("PREPARE TRANSACTION 'left'")
        with pytest.raises(AssertionError, match="prepared transactions are left"):
            check_table(postgres, place, ROWS)
        connection.execute("COMMIT PREPARED 'left'")
        with pytest.raises(AssertionError, match="0 rows are missing, 1 too many"):
            check_table(postgres, place, ROWS)


def test_batches_of_a_topic_come_from_all_records(kafka: KafkaServer, place: Place) -> None:
    topic = Topic(kafka)
    topic.send({"id": number, "sub": "aab"[number % 3]} for number in range(6))
    topic.flush()
    record(place, 0)
    record(place, 1, 0, {topic.name: {"0": 3, "1": 0, "2": 0}})
    history.keep(place)
    (place.home / "snapshots" / "log" / "000000000001.json").unlink()
    record(place, 2, 1, {topic.name: {"0": 3, "1": 2, "2": 0}})
    with pytest.raises(AssertionError, match=f"{topic.name}/0 was not read up to 3"):
        topic.batches(place)
    record(place, 3, 2, {topic.name: {"0": 4, "1": 2, "2": 0}})
    batches = topic.batches(place)
    assert [sorted(event["id"] for event in batch) for batch in batches] == [[0, 1, 3], [2, 5], [4]]
    assert batches[1][0]["partition"] == f"{topic.name}/1"
    (place.history / "000000000002.json").unlink()
    (place.home / "snapshots" / "log" / "000000000002.json").unlink()
    with pytest.raises(AssertionError, match=r"records are missing: \[0, 2\]"):
        topic.batches(place)
