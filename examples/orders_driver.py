"""The driver of the orders job: the query to copy, in a process that can be killed.

    python -m examples.orders_driver <port of RabbitMQ> <connection string of PostgreSQL> <directory>

It prints the number of each epoch that is committed; `orders.py` reads it.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

import sparkjet as sj
from examples.orders_feed import CUSTOMERS, GAP
from examples.session import local_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparkjet.api.writer import StreamWriter

TABLE = "baskets"


def baskets(spark: SparkSession, port: int, database: str, checkpoint: Path) -> StreamWriter:
    """What each customer ordered without a pause of half an hour, from the queues into the table."""
    sj.register_sources(spark)
    source = spark.readStream.format("sparkjet-rabbitmq").option("host", "127.0.0.1").option("port", port)
    source = source.option("queues", ",".join(CUSTOMERS)).option("maxMessagesPerTrigger", 200)
    order = F.from_json(F.col("body").cast("string"), "customer string, cents long, at timestamp")
    given = source.load().select(order.alias("order"), "queue").select("order.*", "queue")
    return (
        sj.stream(given)
        .withWatermark("at", "1 minute")
        .groupBy(sj.session_window("at", GAP), "customer")
        .agg(F.max("at").alias("last_item"), F.count("*").alias("items"), F.sum("cents").alias("cents"))
        .select("customer", F.col("session_window.start").alias("first_item"), "last_item", "items", "cents")
        .writeStream.format("postgres")
        .option("dsn", database)
        .option("dbtable", TABLE)
        .option("checkpointLocation", checkpoint)
        .option("closeWindowsAtEnd", True)
        .trigger(availableNow=True)
    )


def report(phase: sj.EpochPhase, epoch: int) -> None:
    """Tell the process that has started this one."""
    if phase is sj.EpochPhase.COMMIT:
        print(epoch, flush=True)


def main(port: int, database: str, root: Path) -> None:
    """Run the query until the queues are empty; what an earlier driver has left undone is continued."""
    spark = local_session(root, "orders")
    baskets(spark, port, database, root / "checkpoint").onEpochPhase(report).start().awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))
