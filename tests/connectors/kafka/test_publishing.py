"""Publishing parts to a real broker, without Spark: crashes and zombies at every step, timeouts, a killed broker."""

from __future__ import annotations

import json
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyarrow import parquet

from sparkjet.connectors.kafka.access import Access
from sparkjet.connectors.kafka.cluster import Cluster
from sparkjet.connectors.kafka.lost_ends import write_lost_ends
from sparkjet.connectors.kafka.parts import COMMIT, MARK, SEND, ForeignMarkerError, Marker, Part, PublishError, publish
from sparkjet.connectors.kafka.producing import SLICE_BYTES
from sparkjet.connectors.kafka.progress_topic import COMPLETE, ProgressTopic, key_of, topic_setting
from sparkjet.connectors.kafka.publishing import KafkaBrokers, Place, rows_of, run
from sparkjet.connectors.kafka.staged_settings import StagedSettings
from sparkjet.options import Options
from tests.protocol.kafka.checks import committed, held_back

if TYPE_CHECKING:
    from tests.servers.kafka import KafkaServer

FILES, ROWS = 3, 5
"""Each file is read in one piece, so that it is a transaction where none may last."""
ALL = FILES * ROWS


def files(directory: Path) -> list[Path]:
    for number in range(FILES):
        numbers = range(number * ROWS, number * ROWS + ROWS)
        table = pa.table({"key": [b"%d" % (n % 2) for n in numbers], "value": [b"%d" % n for n in numbers]})
        parquet.write_table(table, directory / f"{number}.parquet")
    return [directory / f"{number}.parquet" for number in range(FILES)]


@dataclass
class Destination:
    """A topic with the markers of one query."""

    server: KafkaServer
    directory: Path
    timeout: str = "60000"
    longest: float = 0.0
    patience: float = 60.0
    query: str = field(default_factory=lambda: uuid.uuid4().hex)
    run: str = "aa"

    def __post_init__(self) -> None:
        self.files = files(self.directory)
        self.topic = self.server.topic(partitions=2)
        client = {f"kafka.{name}": value for name, value in self.server.client().items()}
        self.settings = StagedSettings.of(
            Options({**client, "kafka.transaction.timeout.ms": self.timeout, "kafka.log_level": "0"})
        )
        self.progress = self.newest()
        self.progress.create(1, 1)
        self.server.wait(lambda: self.progress.partitions() == 2, "the progress topic")

    def newest(self) -> ProgressTopic:
        name = self.settings.progress_topic(self.query, "results")
        return ProgressTopic(self.settings.client, name, self.query, "results", 30)

    def part(self, epoch: int = 1) -> Part:
        return Part(epoch, f"000000-{epoch:09d}-0-{self.run}", self.run, 0, ALL)

    def brokers(self, rows: Callable[[int], Iterator[pa.RecordBatch]] | None = None) -> tuple[KafkaBrokers, Place]:
        place = Place(
            self.settings.producer,
            self.settings.client,
            f"sparkjet/{self.query}/results/000000.0-{self.run}/0",
            self.progress.name,
            ((1, key_of(self.query, "results", 0)), (COMPLETE, key_of(self.query, "results"))),
            ALL,
            self.topic,
            ((self.topic, ""),),
            1_700_000_000_000_000,
            (0, 0),
            None,
            False,
            self.longest,
            self.patience,
        )
        return KafkaBrokers(place, rows or partial(rows_of, self.files)), place

    def steps(self, epoch: int = 1, *, again: bool = True) -> Iterator[str]:
        brokers, place = self.brokers()
        return publish(
            self.part(epoch), brokers, time.monotonic, longest=place.longest, patience=place.patience, again=again
        )

    def write_lost_ends(self) -> None:
        numbers = [*((self.topic, n) for n in range(2)), *((self.progress.name, n) for n in range(2))]
        with Cluster(Access.of(self.server.client())) as cluster:
            write_lost_ends(cluster, numbers, f"sparkjet/{self.query}/results/", self.patience)

    def finish(self, epoch: int = 1) -> None:
        """Publish as the driver does after a crash."""
        self.write_lost_ends()
        brokers, place = self.brokers()
        run(self.part(epoch), brokers, place, again=True)

    def wait_for_markers(self) -> None:
        """The brokers answer a commit before readers have its end."""

        def is_there() -> bool:
            self.progress.catch_up()
            return self.progress.complete is not None

        self.server.wait(is_there, "the marker of the epoch")

    def seen(self) -> list[int]:
        return sorted(int(message.value()) for message in committed(self.server, self.topic))

    def opened(self) -> list[str]:
        with Cluster(Access.of(self.server.client())) as cluster:
            return cluster.open_transactions(f"sparkjet/{self.query}/")


@pytest.fixture
def destination(kafka: KafkaServer, tmp_path: Path) -> Destination:
    return Destination(kafka, tmp_path)


def count_of(steps: Iterator[str]) -> int:
    return sum(1 for _ in steps)


EVERY = pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.long)])


@pytest.mark.crash
@EVERY
def test_a_publisher_that_ends_at_any_step_is_followed_by_one_that_publishes_the_rest(
    destination: Destination, every: int
) -> None:
    whole = count_of(destination.steps(again=False))
    for epoch, done in enumerate(range(1, whole + 1, every), 2):
        steps = destination.steps(epoch, again=False)
        for _ in range(done):
            next(steps, None)
        destination.finish(epoch)
        assert destination.seen() == sorted([*range(ALL)] * epoch), f"step {done}"
    assert (destination.opened(), held_back(destination.server, destination.topic)) == ([], 0)


@pytest.mark.crash
@EVERY
def test_a_zombie_that_goes_on_at_any_step_repeats_nothing_and_nobody_fails(
    destination: Destination, every: int
) -> None:
    whole = count_of(destination.steps())
    for epoch, done in enumerate(range(1, whole + 1, every), 2):
        zombie, successor = destination.steps(epoch, again=False), destination.steps(epoch)
        for _ in range(done):
            next(zombie, None)
        # In the middle of it the zombie takes a few more steps, and fences it.
        for _ in range(3 * (done + 1) % whole):
            next(successor, None)
        for _ in range(3):
            next(zombie, None)
        count_of(successor)
        count_of(zombie)
        assert destination.seen() == sorted([*range(ALL)] * epoch), f"step {done}"


@pytest.mark.crash
@pytest.mark.parametrize("last", [MARK, COMMIT])
def test_of_two_copies_that_publish_one_epoch_at_the_same_moment_one_does(destination: Destination, last: str) -> None:
    one = replace(destination, longest=60.0)
    other = copy(one)
    other.run = "bb"
    first, second = one.steps(again=False), other.steps(again=False)
    assert [next(each for each in steps if each == MARK) for steps in (first, second)] == [MARK, MARK]
    if last == COMMIT:
        assert next(first) == COMMIT
    else:
        assert [*first] == [COMMIT]
    # Each has written its rows, and has found no marker.
    with pytest.raises(PublishError, match=rf"another publisher has written to {one.progress.name}-1 at the same time"):
        next(second)
    assert last == MARK or [*first] == []
    assert one.seen() == list(range(ALL))
    with pytest.raises(ForeignMarkerError):
        other.finish()
    one.finish()
    assert one.seen() == list(range(ALL))


@pytest.mark.crash
def test_what_stood_open_beyond_the_brokers_timeout_is_published_by_the_next(
    kafka: KafkaServer, tmp_path: Path
) -> None:
    hasty = Destination(kafka, tmp_path, timeout="1000")
    steps = hasty.steps()
    for step in steps:
        if step == COMMIT:
            break
    deadline, pause = time.monotonic() + 60, threading.Event()
    while hasty.opened():
        assert time.monotonic() < deadline
        pause.wait(0.1)
    # Neither the one that comes later nor the one that stood still loses anything.
    assert count_of(steps)
    assert hasty.seen() == list(range(ALL))
    hasty.finish()
    assert hasty.seen() == list(range(ALL))


@pytest.mark.crash
def test_a_part_that_takes_longer_than_the_brokers_allow_is_several_transactions(
    kafka: KafkaServer, tmp_path: Path
) -> None:
    slow = Destination(kafka, tmp_path, timeout="1500", longest=0.2)
    pause = threading.Event()

    def slowly(start: int) -> Iterator[pa.RecordBatch]:
        for batch in rows_of(slow.files, start):
            pause.wait(0.8)
            yield batch

    brokers, place = slow.brokers(slowly)
    run(slow.part(), brokers, place, again=False)
    assert slow.seen() == list(range(ALL))
    slow.wait_for_markers()
    assert slow.progress.complete == Marker(1, slow.part().name, "aa", ALL)


@pytest.mark.crash
def test_an_open_transaction_among_the_markers_is_waited_for_and_then_named(destination: Destination) -> None:
    other = replace(destination, patience=5.0)
    brokers, place = other.brokers()
    held = KafkaBrokers(replace(place, name=f"{place.name}-held"), None)
    held.init()
    held.begin()
    held.mark(Marker(1, "x", "", 1))
    held._producer.flush(10)
    with pytest.raises(PublishError, match=rf"a transaction is open in {place.markers}-1, .*find-hanging"):
        run(other.part(), brokers, place, again=True)
    assert other.seen() == []
    held._producer.abort_transaction(10)
    other.finish()
    assert other.seen() == list(range(ALL))


def killed_after_commits(server: KafkaServer, directory: Path, rounds: int) -> None:
    """The broker dies as soon as it has answered a commit; the rest is published, also where an end was lost."""
    for _ in range(rounds):
        destination = Destination(server, directory, patience=20.0)
        steps = destination.steps(again=False)
        commits = 0
        for step in steps:
            commits += step == COMMIT
            if commits == 2 and step != COMMIT:
                break
        server.restart()
        destination.finish()
        assert destination.seen() == list(range(ALL))
        assert held_back(server, destination.topic) == 0


@pytest.mark.crash
@pytest.mark.parametrize("rounds", [1, pytest.param(50, marks=[pytest.mark.long, pytest.mark.timeout(3600)])])
def test_a_broker_that_answers_a_commit_and_dies_loses_and_repeats_nothing(
    kafka: KafkaServer, tmp_path: Path, caplog: pytest.LogCaptureFixture, rounds: int
) -> None:
    killed_after_commits(kafka, tmp_path, rounds)
    print(f"\n{caplog.text.count('held readers back; wrote it')} lost ends in {rounds} rounds")  # noqa: T201


def test_the_marker_says_how_far_and_where_topic_and_watermark_are(destination: Destination) -> None:
    one = replace(destination, longest=60.0)
    steps = list(one.steps(again=False))
    assert steps.count(SEND) == FILES
    assert steps.count(COMMIT) == 1
    (complete,) = (m for m in committed(one.server, one.progress.name) if m.partition() == COMPLETE)
    assert b'"version": 1, "epoch": 1, "name": "000000-000000001-0-aa", "run": "aa", "rows": 15' in complete.value()
    ends = json.loads(complete.value())["ends"]
    # Behind the rows of both partitions; the end of the transaction comes after that.
    assert ([*ends], sum(ends[one.topic])) == ([one.topic], ALL)
    assert b'"watermark": 1700000000000000}' in complete.value()
    made = one.server.admin().list_topics(one.progress.name, timeout=30).topics[one.progress.name].partitions
    assert [len(each.replicas) for each in made.values()] == [1, 1]
    assert topic_setting(one.server.admin(), one.progress.name, "cleanup.policy", 30) == "compact"


def test_large_rows_are_not_read_by_the_thousands(tmp_path: Path) -> None:
    table = pa.table({"value": [b"x" * 1_000_000] * 40})
    parquet.write_table(table, tmp_path / "0.parquet", row_group_size=8, use_dictionary=False)
    read = [batch.num_rows for batch in rows_of([tmp_path / "0.parquet"], 3)]
    assert sum(read) == 37
    assert max(read) * 1_000_000 <= SLICE_BYTES
