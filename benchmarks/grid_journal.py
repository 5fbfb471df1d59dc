"""GJ: two queries that follow each other by a journal of the grid, against the same two by Kafka.

``python -m benchmarks.grid_journal [--small]``. The first counts rows by second and key; the second reads its results,
adds them up over two seconds, and writes them to where a reader waits: journals of three members, each entry on two of
them, or topics of one broker without copies. Both are restarted for each round, and take turns. *throughput* is the
rows of the first one's input that the reader has counts of, in epochs of 20,000 results. *readable* is the time from
the end of a window of the second, which is that of its last events, to the moment when the reader has its rows, with
10,000 events a second by the wall clock. With Kafka the second query knows that a second is over when it sees a row of
the next one; with a journal it is told.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import threading
import time
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, TopicPartition
from pyspark.sql import functions as F

import sparkjet as sj
from benchmarks.beside import in_turns
from benchmarks.grid import members
from benchmarks.latency import WallClock, ninety_ninth
from benchmarks.local import local_session
from benchmarks.ratio import Ratio
from benchmarks.studies import main
from benchmarks.work import Goal
from sparkjet.errors import SparkjetError
from sparkjet_grid.client import GridClient
from sparkjet_grid.journal_reader import Journal
from tests.servers.kafka import KafkaServer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sparkjet import StreamingQuery

BATCH = 20_000
"""Results of an epoch of the first query, where throughput is measured: each row has its own key."""
KEYS = 100
"""Of the second one's results, and of both where latency is."""
PARTITIONS = 2
ROUNDS, WARM_UP, MEASURED = 3, 20.0, 30.0
SMALL = 1, 15.0, 15.0
"""Rounds, and seconds of each before and while it is measured."""
PATIENCE = 240.0
TRIGGER = 0.2
THROUGHPUT, LATENCY = Goal("Kafka", 1.5), Goal("Kafka", 2.0)


class Reader(threading.Thread):
    """Notes what comes out of the second query."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self._ended = threading.Event()
        self.found: list[tuple[float, float, int]] = []
        """When a row came, the seconds since its window ended, and its count."""

    def run(self) -> None:
        """Read until it is told to stop."""
        while not self._ended.is_set():
            rows = self._rows()
            now = time.time()
            self.found += [(now, now - ended / 1e6, count) for ended, count in rows]

    def stop(self) -> None:
        """Stop, and wait for it."""
        self._ended.set()
        self.join()

    @abstractmethod
    def _rows(self) -> list[tuple[int, int]]:
        """The next ends of windows in microseconds, and counts, within a fraction of a second."""


class JournalReader(Reader):
    """Looks at a journal fifty times a second."""

    def __init__(self, journal: Journal) -> None:
        super().__init__()
        self._journal, self._read = journal, dict.fromkeys(range(PARTITIONS), 0)

    def _rows(self) -> list[tuple[int, int]]:
        self._ended.wait(0.02)
        try:
            ends = self._journal.latest().ends
        except SparkjetError:
            # It has no epoch yet.
            return []
        found: list[tuple[int, int]] = []
        for partition, start in self._read.items():
            for batch in self._journal.read(partition, start, ends[partition]) if start < ends[partition] else ():
                found += zip(batch["ended"].to_pylist(), batch["n"].to_pylist(), strict=True)
        self._read = ends
        return found


class TopicReader(Reader):
    """A read_committed consumer."""

    def __init__(self, server: KafkaServer, topic: str) -> None:
        super().__init__()
        common = {**server.client(), "group.id": "bench", "enable.auto.commit": False, "fetch.wait.max.ms": 5}
        self._consumer = Consumer({**common, "isolation.level": "read_committed"})
        self._consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])

    def _rows(self) -> list[tuple[int, int]]:
        messages = [each.value() for each in self._consumer.consume(1000, 0.02) if each.error() is None]
        pairs = [(value or b"").split(b",") for value in messages]
        return [(int(ended), int(count)) for ended, count in pairs]

    def stop(self) -> None:
        """Stop, and leave."""
        super().stop()
        self._consumer.close()


class Way:
    """Where the rows are between the queries, and after them."""

    policy: Any

    @abstractmethod
    def written(self, counts: Any, name: str) -> Any:
        """A writer of ``ended``, ``k`` and ``n``."""

    @abstractmethod
    def rows(self, name: str) -> DataFrame:
        """A stream of them, once there is one."""

    @abstractmethod
    def reader(self, name: str) -> Reader:
        """Who waits for them."""


class ByJournal(Way):
    """Journals of a grid."""

    policy = sj.carried()

    def __init__(self, session: SparkSession, client: GridClient, token: Path) -> None:
        self._session, self._client, self._token = session, client, str(token)
        self._uri = f"grid://{','.join(member.uri.partition('//')[2] for member in client.state().members)}"
        session.conf.set("spark.sparkjet.grid.tokenFile", self._token)

    def written(self, counts: Any, name: str) -> Any:
        """See :class:`Way`."""
        options = {"path": f"{self._uri}/{name}", "numPartitions": PARTITIONS}
        return counts.writeStream.format("grid-journal").options(**options)

    def rows(self, name: str) -> DataFrame:
        """See :class:`Way`."""
        with Journal("", name, client=self._client) as journal:
            _until(lambda: _has_epoch(journal))
        source = self._session.readStream.format("sparkjet-grid-journal").option("tokenFile", self._token)
        return source.load(f"{self._uri}/{name}")

    def reader(self, name: str) -> Reader:
        """See :class:`Way`."""
        return JournalReader(Journal(self._uri, name, token_file=self._token))


class ByKafka(Way):
    """Topics of a broker."""

    policy = sj.limiting_lag("0 seconds")

    def __init__(self, session: SparkSession, server: KafkaServer) -> None:
        self._session, self._server = session, server
        self._topics: dict[str, str] = {}

    def written(self, counts: Any, name: str) -> Any:
        """See :class:`Way`."""
        value = F.concat_ws(",", F.col("ended").cast("string"), F.col("n").cast("string"))
        records = counts.select(F.col("k").cast("string").alias("key"), value.alias("value"))
        options = {"kafka.bootstrap.servers": self._server.bootstrap, "topic": self._topic(name)}
        return records.writeStream.format("kafka").options(**options)

    def rows(self, name: str) -> DataFrame:
        """See :class:`Way`."""
        options = {"subscribe": self._topic(name), "startingOffsets": "earliest"}
        source = self._session.readStream.format("sparkjet-kafka").options(
            **{"kafka.bootstrap.servers": self._server.bootstrap, **options}
        )
        parts = F.split(F.col("value").cast("string"), ",")
        ended, count = (parts[number].cast("long") for number in range(2))
        return source.load().select(
            ended.alias("ended"), F.col("key").cast("string").cast("long").alias("k"), count.alias("n")
        )

    def reader(self, name: str) -> Reader:
        """See :class:`Way`."""
        return TopicReader(self._server, self._topic(name))

    def _topic(self, name: str) -> str:
        if name not in self._topics:
            self._topics[name] = self._server.topic(partitions=PARTITIONS)
        return self._topics[name]


def first(source: DataFrame, keys: int) -> Any:
    """The query whose results the second reads."""
    rows = source.select("ts", (F.col("value") % keys).alias("k"))
    stream = sj.stream(rows).withWatermark("ts", sj.limiting_lag("0 seconds"))
    counted = stream.groupBy(sj.window("ts", "1 second"), "k").agg(F.count("*").alias("n"))
    return counted.select(F.unix_micros("window.end").alias("ended"), "k", "n")


def second(rows: DataFrame, policy: Any) -> Any:
    """The query over results, whose time is the last microsecond of their windows."""
    timed = rows.select(F.timestamp_micros(F.col("ended") - 1).alias("ts"), (F.col("k") % KEYS).alias("k"), "n")
    windows = sj.stream(timed).withWatermark("ts", policy).groupBy(sj.window("ts", "2 seconds"), "k")
    return windows.agg(F.sum("n").alias("n")).select(F.unix_micros("window.end").alias("ended"), "k", "n")


@contextmanager
def running(way: Way, source: DataFrame, keys: int, name: str, trigger: float) -> Iterator[Reader]:
    """Both queries, once there are rows of the second, and who reads them."""
    with tempfile.TemporaryDirectory(prefix="sparkjet-chained-") as folder:
        queries: list[StreamingQuery] = []

        def start(counts: Any, own: str) -> None:
            writer = way.written(counts, own).option("checkpointLocation", Path(folder) / own)
            queries.append(writer.trigger(processingTime=f"{trigger} seconds").start())

        def there() -> bool:
            check(queries)
            return bool(reader.found)

        reader = way.reader(f"{name}-second")
        try:
            start(first(source, keys), f"{name}-first")
            start(second(way.rows(f"{name}-first"), way.policy), f"{name}-second")
            reader.start()
            _until(there)
            yield reader
            check(queries)
        finally:
            for query in queries[::-1]:
                query.stop()
            if reader.is_alive():
                reader.stop()


def check(queries: list[StreamingQuery]) -> None:
    """Raise what a query has failed with."""
    for query in queries:
        if (failure := query.exception()) is not None:
            raise failure


def throughput(session: SparkSession, way: Way, warm_up: float, seconds: float, round_: int) -> float:
    """Seconds that a row takes."""
    options = {"rowsPerBatch": BATCH, "numPartitions": PARTITIONS, "startTimestamp": 0, "advanceMillisPerBatch": 1000}
    source = session.readStream.format("rate-micro-batch").options(**options).load()
    rows = source.withColumnRenamed("timestamp", "ts")
    with running(way, rows, BATCH, f"throughput-{round_}", 0) as reader:
        time.sleep(warm_up)
        since = time.time()
        time.sleep(seconds)
    taken = [(came, count) for came, _, count in reader.found if came >= since]
    began, ended = _ends([came for came, _ in taken], seconds)
    # What has come first was under way before.
    count = sum(count for came, count in taken if came > began)
    print(f"{type(way).__name__}: {count / (ended - began):,.0f} rows/s", file=sys.stderr, flush=True)
    return (ended - began) / count


def readable(session: SparkSession, way: Way, warm_up: float, seconds: float, round_: int) -> float:
    """The 99th percentile of the seconds from the end of a window to its rows."""
    source = session.readStream.format("wall-clock").load()
    with running(way, source, KEYS, f"readable-{round_}", TRIGGER) as reader:
        time.sleep(warm_up)
        since = time.time()
        time.sleep(seconds)
    late = [late for came, late, _ in reader.found if came >= since]
    _ends(late, seconds)
    p99 = ninety_ninth(late)
    shown = f"p50 {statistics.median(late):.2f} s, p99 {p99:.2f} s"
    print(f"{type(way).__name__}: {shown}", file=sys.stderr, flush=True)
    return p99


def study() -> list[Ratio]:
    """Two ratios: of throughputs, and of latencies."""
    rounds, warm_up, seconds = SMALL if "--small" in sys.argv else (ROUNDS, WARM_UP, MEASURED)
    session = local_session()
    session.dataSource.register(WallClock)
    sj.register_sources(session)
    with (
        tempfile.TemporaryDirectory() as folder,
        members(Path(folder)) as (client, _),
        KafkaServer() as server,
    ):
        ways: dict[str, Way] = {
            "journal": ByJournal(session, client, Path(folder) / "token"),
            "Kafka": ByKafka(session, server),
        }
        rows, latencies = (
            in_turns({name: partial(measured, session, way, warm_up, seconds) for name, way in ways.items()}, rounds, 0)
            for measured in (throughput, readable)
        )
    session.stop()
    p99 = {name: statistics.median(found) for name, found in latencies.items()}
    shown = f"from the end of a window to its rows, two queries later: p99 {p99['journal']:.2f} s"
    return [
        Ratio.of_seconds("GJ", "two queries that follow each other", THROUGHPUT, rows["journal"], rows["Kafka"]),
        Ratio.of_seconds("GJ-p99", shown, LATENCY, latencies["journal"], latencies["Kafka"]),
    ]


def _ends(found: list[float], seconds: float) -> tuple[float, float]:
    if len(set(found)) < 2:  # noqa: PLR2004 - a beginning and an end
        sys.exit(f"too few rows came in {seconds:.0f} s")
    return min(found), max(found)


def _has_epoch(journal: Journal) -> bool:
    try:
        journal.latest()
    except SparkjetError:
        return False
    return True


def _until(is_there: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE
    while not is_there():
        if time.monotonic() > until:
            sys.exit(f"nothing came in {PATIENCE:.0f} s")
        time.sleep(TRIGGER)


if __name__ == "__main__":
    main(study)
