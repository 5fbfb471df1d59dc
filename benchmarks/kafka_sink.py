"""KW: the cost of the Kafka sink, against bare transactions with the same Arrow columns by as many producers.

``python -m benchmarks.kafka_sink``. A million records (a key, a value of 100 bytes) in two partitions of a warm
driver, into a topic of two partitions; the broker runs on the same machine. The bare produce sends the same batches
from two processes whose producers are ready, and commits; the sink's time is prepare and commit, with its producers'
start and Spark's part.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import confluent_kafka
from pyspark.sql import functions as F

from benchmarks.beside import arrow_files, batches_of, in_turns, seconds_of, through_sink
from benchmarks.local import local_session
from benchmarks.ratio import Ratio
from benchmarks.studies import main
from benchmarks.work import Goal
from sparkjet.connectors.kafka.producer_settings import KafkaSettings
from sparkjet.connectors.kafka.sink import KafkaSink
from sparkjet.connectors.kafka.staged import StagedKafkaSink
from sparkjet.connectors.kafka.staged_settings import StagedSettings
from sparkjet.options import Options
from sparkjet.sinks.protocol import TransactionId
from tests.servers.kafka import KafkaServer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = 1_000_000
PRODUCERS = 2
WARM_UP = 5
"""Java compiles Spark's part in the first ones: with one, each measured round was faster than the one before."""
ROUNDS = 5
QUEUE = 200_000
GOALS = {
    "staged": Goal("bare transactional produce", 0.85),
    "prepared": Goal("bare transactional produce, commit=prepared", 0.85),
}


def records(session: SparkSession) -> DataFrame:
    """Records like a query's, persisted in memory so that computing them costs neither side."""
    rows = session.range(ROWS, numPartitions=PRODUCERS).select(
        F.concat(F.lit("symbol-"), F.col("id") % 500).alias("key"),
        F.rpad(F.concat(F.lit('{"n":'), F.col("id"), F.lit("}")), 100, " ").alias("value"),
    )
    held = rows.cache()
    held.count()
    return held


def bare(servers: str, topic: str, name: str, path: str, ready: Any, go: Any) -> None:
    """One producer's transaction, in a separate process, like Spark's workers."""
    batches = batches_of(path)
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": servers,
            "transactional.id": name,
            "linger.ms": 20,
            "partitioner": "murmur2_random",
            "queue.buffering.max.messages": 10_000_000,
            "queue.buffering.max.kbytes": 2_147_483_647,
            "delivery.report.only.error": True,
        }
    )
    producer.init_transactions(60)
    ready.release()
    go.wait()
    producer.begin_transaction()
    for batch in batches:
        keys, values = (batch.column(n).to_pylist() for n in range(2))
        producer.produce_batch(topic, [{"key": k, "value": v} for k, v in zip(keys, values, strict=True)])
        while len(producer) > QUEUE:
            producer.poll(0.01)
    producer.commit_transaction(60)


@contextmanager
def new_topic(server: KafkaServer) -> Iterator[str]:
    """A new topic each time: existing records would be additional work for the broker."""
    topic = server.topic(partitions=PRODUCERS)
    yield topic
    server.drop(topic)


def study() -> list[Ratio]:
    """A ratio for each way into Kafka, paired by round."""
    session = local_session()
    rows = records(session)
    with tempfile.TemporaryDirectory() as home, KafkaServer() as server:
        columns = (F.col(name).cast("binary") for name in ("key", "value"))
        files = arrow_files(rows.select(*columns).toArrow(), PRODUCERS, Path(home))

        def ours(way: str, round_: int) -> float:
            with new_topic(server) as topic:
                options = {"kafka.bootstrap.servers": server.bootstrap, "topic": topic, "numPartitions": str(PRODUCERS)}
                if way == "prepared":
                    prepared = KafkaSink(KafkaSettings.of(Options(options)))
                    prepared.check(rows.schema)
                    return through_sink(prepared, rows, round_)
                # A new one each time, too: the sink keeps its producers, and asks where readers are in all topics.
                staged = StagedKafkaSink(StagedSettings.of(Options({**options, "progressTopic": f"{topic}-progress"})))
                staged.check(rows.schema)
                staged.attach(Path(home) / "outbox", session)
                staged.published_after(TransactionId("benchmark", "results", 0, 0, 0), None)
                staged.create()
                return through_sink(staged, rows, round_)

        def theirs(round_: int) -> float:
            with new_topic(server) as topic:
                each = [(server.bootstrap, topic, f"bare-{round_}-{n}", file) for n, file in enumerate(files)]
                return seconds_of(bare, each)

        ways = {way: partial(ours, way) for way in ("staged", "prepared")}
        seconds = in_turns({**ways, "bare": theirs}, ROUNDS, WARM_UP)
    session.stop()
    titles = {"staged": "rows into Kafka, exactly once", "prepared": "rows into Kafka, exactly once, commit=prepared"}
    return [Ratio.of_seconds("KW", titles[way], GOALS[way], seconds[way], seconds["bare"], ROWS) for way in ways]


if __name__ == "__main__":
    main(study)
