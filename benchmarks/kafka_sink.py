"""What the Kafka sink costs beside a bare transactional produce of the same Arrow columns by as many producers.

Run by hand: ``python -m benchmarks.kafka_sink [ROUNDS]``. A million records (a key, a value of 100 bytes) in two
partitions of a warm driver, into a topic of two partitions; the broker runs on the same machine. The bare produce
sends the same batches from two processes whose producers are ready, and commits; the sink's time is prepare and
commit, with its producers' start and Spark's part.
"""

from __future__ import annotations

import multiprocessing
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import confluent_kafka
import pyarrow as pa
from pyspark.sql import functions as F

from benchmarks.local import local_session
from sparkjet.options import Options
from sparkjet.sinks.kafka.settings import KafkaSettings
from sparkjet.sinks.kafka.sink import KafkaSink
from sparkjet.sinks.protocol import TransactionId
from tests.servers.kafka import KafkaServer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = 1_000_000
PRODUCERS = 2
WARM_UP = 1
BATCH = 10_000
QUEUE = 200_000
GOAL = 0.7


def records(session: SparkSession) -> DataFrame:
    """Records as a query gives them, held in memory so that computing them is nobody's cost."""
    rows = session.range(ROWS, numPartitions=PRODUCERS).select(
        F.concat(F.lit("symbol-"), F.col("id") % 500).alias("key"),
        F.rpad(F.concat(F.lit('{"n":'), F.col("id"), F.lit("}")), 100, " ").alias("value"),
    )
    held = rows.cache()
    held.count()
    return held


def bare(servers: str, topic: str, name: str, path: str, ready: Any, go: Any) -> None:
    """One producer's transaction, in a process of its own, as each of Spark's workers is one."""
    with pa.ipc.open_file(path) as file:
        batches = [file.get_batch(n) for n in range(file.num_record_batches)]
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


def bare_produce(servers: str, topic: str, files: list[str], round_: int) -> float:
    """Seconds of all producers' transactions, their start not counted."""
    context = multiprocessing.get_context("spawn")
    ready, go = context.Semaphore(0), context.Event()
    processes = [
        context.Process(target=bare, args=(servers, topic, f"bare-{round_}-{n}", file, ready, go))
        for n, file in enumerate(files)
    ]
    for process in processes:
        process.start()
    for _ in processes:
        ready.acquire()
    started = time.perf_counter()
    go.set()
    for process in processes:
        process.join()
    if any(process.exitcode for process in processes):
        sys.exit("a bare producer failed")
    return time.perf_counter() - started


def through_sink(sink: KafkaSink, rows: DataFrame, round_: int) -> float:
    """Seconds of an epoch's rows through the sink."""
    started = time.perf_counter()
    handle = sink.prepare(rows, TransactionId("benchmark", "results", 0, round_, 0))
    if handle is None:
        sys.exit("nothing was prepared")
    sink.commit(handle, lambda: None)
    return time.perf_counter() - started


def split(rows: DataFrame, home: Path) -> list[str]:
    """The same columns as Arrow files, one for each producer, in batches as Spark hands them over."""
    table = rows.select(F.col("key").cast("binary"), F.col("value").cast("binary")).toArrow()
    size = len(table) // PRODUCERS
    paths = []
    for number in range(PRODUCERS):
        path = str(home / f"{number}.arrow")
        with pa.ipc.new_file(path, table.schema) as file:
            file.write_table(table.slice(number * size, size), max_chunksize=BATCH)
        paths.append(path)
    return paths


def main(rounds: int) -> None:
    """Measure in turns and print each round's ratio."""
    session = local_session()
    rows = records(session)
    ratios, ours, theirs = [], [], []
    with tempfile.TemporaryDirectory() as home, KafkaServer() as server:
        files = split(rows, Path(home))
        for round_ in range(WARM_UP + rounds):
            # A topic a round: what lies in one would be other work for the broker.
            topics = [server.topic(partitions=PRODUCERS) for _ in range(2)]
            options = {"kafka.bootstrap.servers": server.bootstrap, "topic": topics[0], "numPartitions": str(PRODUCERS)}
            sink = KafkaSink(KafkaSettings.of(Options(options)))
            sink.check(rows.schema)
            mine = through_sink(sink, rows, round_)
            plain = bare_produce(server.bootstrap, topics[1], files, round_)
            for topic in topics:
                server.drop(topic)
            if round_ >= WARM_UP:
                ours.append(mine)
                theirs.append(plain)
                ratios.append(plain / mine)
                print(f"round {round_}: sink {mine:.2f} s, bare {plain:.2f} s, {plain / mine:.2f} x")
    for name, taken in (("sink", ours), ("bare", theirs)):
        print(f"{name}: {ROWS / statistics.median(taken) / 1e6:.2f} M rows/s")
    print(f"median ratio {statistics.median(ratios):.2f} (goal {GOAL})")
    session.stop()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
