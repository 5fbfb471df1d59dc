"""KC: the Kafka sink with ``commit=staged`` beside ``commit=prepared``, in one driver with one broker.

``python -m benchmarks.kafka_commits [requests] [NUMBER…]``; the numbers are those of cases. Both ways take turns, so
that what else the machine does meets both alike. Each round is an epoch through the sink: *readable* is the time from
the rows to the moment when a read_committed consumer has all of them, *whole* the time until the sink's commit has
returned, *cpu* the processor seconds of driver, workers and broker. With ``requests`` the requests and bytes of an
epoch are counted instead.
"""

from __future__ import annotations

import os
import re
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confluent_kafka import Consumer, TopicPartition
from pyspark.sql import functions as F

from benchmarks.local import local_session
from sparkjet.connectors.kafka.producer_settings import KafkaSettings
from sparkjet.connectors.kafka.sink import KafkaSink
from sparkjet.connectors.kafka.staged import StagedKafkaSink
from sparkjet.connectors.kafka.staged_settings import StagedSettings
from sparkjet.options import Options
from sparkjet.sinks.protocol import TransactionId
from tests.servers.kafka import KafkaServer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

WARM = 2
"""Epochs before those that are counted."""
SMALL = 5_000
PREPARED, STAGED = "prepared", "staged"


@dataclass(frozen=True)
class Case:
    """Rows of an epoch.

    Attributes:
        name: What is printed.
        rows: How many.
        size: Bytes of a value; all of them compress.
        partitions: Of the topic, and of the rows.
        rounds: Measured rounds.
        warm_up: Rounds before.
    """

    name: str
    rows: int
    size: int
    partitions: int
    rounds: int
    warm_up: int


CASES = (
    Case("KW: 1,000,000 × 100 B, 2 partitions", 1_000_000, 100, 2, 5, 2),
    Case("1,000,000 × 100 B, 16 partitions", 1_000_000, 100, 16, 4, 1),
    Case("20,000 × 10 kB, 2 partitions", 20_000, 10_000, 2, 4, 1),
    Case("small: 100 × 100 B, 2 partitions", 100, 100, 2, 60, 10),
    Case("small: 5,000 × 100 B, 2 partitions", 5_000, 100, 2, 30, 5),
)


def records(session: SparkSession, case: Case) -> DataFrame:
    """Rows in memory: KW's own where they have its size, and a repeated digest where they are large."""
    value = F.rpad(F.concat(F.lit('{"n":'), F.col("id"), F.lit("}")), case.size, " ")
    if case.size > CASES[0].size:
        value = F.substring(F.repeat(F.sha2(F.col("id").cast("string"), 512), case.size // 128 + 1), 1, case.size)
    rows = session.range(case.rows, numPartitions=case.partitions)
    held = rows.select(F.concat(F.lit("symbol-"), F.col("id") % 500).alias("key"), value.alias("value")).cache()
    held.count()
    return held


def cpu() -> float:
    """Processor seconds of this process and all below it: driver, JVM, workers, broker."""
    parents, used = {}, {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(entry.name)] = int(fields[1])
            # With those of children that have ended.
            used[int(entry.name)] = sum(map(int, fields[11:15]))
    ours = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in ours} - ours:
        ours |= more
    return sum(used.get(pid, 0) for pid in ours) / os.sysconf("SC_CLK_TCK")


class Reader:
    """A read_committed consumer that is ready before the rows come."""

    def __init__(self, server: KafkaServer, topic: str, partitions: int) -> None:
        common = {**server.client(), "group.id": "bench", "enable.auto.commit": False, "fetch.wait.max.ms": 5}
        self._consumer = Consumer({**common, "isolation.level": "read_committed", "queued.min.messages": 1_000_000})
        self._consumer.assign([TopicPartition(topic, number, 0) for number in range(partitions)])
        self._consumer.consume(1, 0.2)

    def all_of(self, rows: int) -> float:
        """The moment when all rows of an epoch have come."""
        found = 0
        until = time.monotonic() + 120
        while found < rows:
            if time.monotonic() > until:
                sys.exit(f"{found} of {rows} rows came")
            found += sum(1 for each in self._consumer.consume(10_000, 0.05) if each.error() is None)
        if found > rows:
            sys.exit(f"{found} rows came instead of {rows}")
        return time.perf_counter()


@contextmanager
def sinks(session: SparkSession, server: KafkaServer, topics: dict[str, str], home: Path) -> Iterator[dict[str, Any]]:
    """Both sinks, ready."""
    given = {"kafka.bootstrap.servers": server.bootstrap}
    prepared = KafkaSink(KafkaSettings.of(Options({**given, "topic": topics[PREPARED]})))
    staged = StagedKafkaSink(StagedSettings.of(Options({**given, "topic": topics[STAGED]})))
    schema = session.createDataFrame([], "key string, value string").schema
    for sink in (prepared, staged):
        sink.check(schema)
    staged.attach(home, session)
    staged.published_after(TransactionId(f"bench-{topics[STAGED]}", "results", 0, 0, 0), None)
    staged.create()
    yield {PREPARED: prepared, STAGED: staged}


def measured(session: SparkSession, server: KafkaServer, case: Case, home: Path) -> dict[str, list[tuple[float, ...]]]:
    """Seconds to *visible* and *whole* of each round, by the way of committing."""
    rows = records(session, case)
    topics = {way: server.topic(partitions=case.partitions) for way in (PREPARED, STAGED)}
    readers = {way: Reader(server, topic, case.partitions) for way, topic in topics.items()}
    found: dict[str, list[tuple[float, ...]]] = {way: [] for way in topics}
    with sinks(session, server, topics, home) as both:
        for round_ in range(case.warm_up + case.rounds):
            for way in (PREPARED, STAGED) if round_ % 2 else (STAGED, PREPARED):
                sink, of = both[way], TransactionId(f"bench-{topics[way]}", "results", 0, round_ + 1, 0)
                spent, began = cpu(), time.perf_counter()
                handle = sink.prepare(rows, of)
                half = time.perf_counter() - began
                sink.commit(handle, lambda: None)
                whole = time.perf_counter() - began
                spent = cpu() - spent
                # A reader beside the sink would take its processor: what it waits for after the commit is what counts.
                seen = readers[way].all_of(case.rows) - began if case.rows <= CASES[2].rows else whole
                if round_ >= case.warm_up:
                    found[way].append((whole, seen, half, spent))
    rows.unpersist()
    return found


def counted(session: SparkSession, server: KafkaServer, case: Case, home: Path, epochs: int) -> None:
    """Print the requests to the broker, and the bytes that it and the outbox write, of an epoch of each way."""
    rows = records(session, case)
    topics = {way: server.topic(partitions=case.partitions) for way in (PREPARED, STAGED)}
    print(case.name)
    with sinks(session, server, topics, home) as both:
        for way, sink in both.items():
            found: Counter[str] = Counter()
            stored = written = 0
            for epoch in range(WARM + epochs):
                if epoch == WARM:
                    seen, written = len(server.log()), server.written()
                handle = sink.prepare(rows, TransactionId(f"bench-{topics[way]}", "results", 0, epoch + 1, 0))
                sink.commit(handle, lambda: None)
                if epoch >= WARM:
                    stored += sum(size for _, size, _ in handle.get("files", ()))
            found.update(re.findall(r'"requestApiKeyName":"(\w+)"', server.log()[seen:]))
            for chatter in ("BROKER_HEARTBEAT", "FETCH", "VOTE", "API_VERSIONS"):
                found.pop(chatter, None)
            each = ", ".join(f"{name} {count / epochs:.1f}" for name, count in found.most_common())
            kept = (server.written() - written) / epochs
            print(f"  {way:9} {sum(found.values()) / epochs:.1f} requests an epoch ({each}); "
                  f"bytes: broker {kept:,.0f}, outbox {stored / epochs:,.0f}", flush=True)  # fmt: skip
    rows.unpersist()


def report(case: Case, found: dict[str, list[tuple[float, ...]]]) -> None:
    """One line for each way, and the ratio of pairs."""
    print(case.name)
    for way, rounds in found.items():
        whole, seen, half, spent = zip(*rounds, strict=True)
        print(f"  {way:9} whole p50 {p(whole, 50):.3f} p99 {p(whole, 99):.3f}  readable p50 {p(seen, 50):.3f} "
              f"p99 {p(seen, 99):.3f}  of it prepare p50 {p(half, 50):.3f}  cpu p50 {p(spent, 50):.2f}")  # fmt: skip

    def ratio(which: int) -> list[float]:
        return sorted(s[which] / p[which] for p, s in zip(found[PREPARED], found[STAGED], strict=True))

    times = [statistics.median(ratio(which)) for which in (0, 1, 3)]
    pairs = f"pairs {ratio(0)[0]:.2f} to {ratio(0)[-1]:.2f}"
    print(f"  staged : prepared, median of pairs: whole {times[0]:.2f} (throughput {1 / times[0]:.2f}, {pairs}), "
          f"readable {times[1]:.2f}, cpu {times[2]:.2f}", flush=True)  # fmt: skip


def p(values: Any, percent: int) -> float:
    """A percentile, of the values that there are."""
    ordered = sorted(values)
    return float(ordered[min(len(ordered) - 1, len(ordered) * percent // 100)])


def main() -> None:
    """All cases, or those whose numbers are given."""
    session, counts = local_session(), sys.argv[1:2] == ["requests"]
    chosen = [CASES[int(each)] for each in sys.argv[1 + counts :]] or CASES
    with tempfile.TemporaryDirectory() as home, KafkaServer(logs_requests=counts) as server:
        for number, case in enumerate(chosen):
            if counts:
                counted(session, server, case, Path(home) / str(number), 2 if case.rows > SMALL else 20)
                continue
            report(case, measured(session, server, case, Path(home) / str(number)))
    session.stop()


if __name__ == "__main__":
    main()
