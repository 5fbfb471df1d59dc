"""The memory that state takes is what docs/guide/cluster.md says, within a factor."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import sparkjet as sj
from tests.parameters import mostly_crash
from tests.persisted import persisted

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

logger = logging.getLogger("tests.engine")

START = 1_700_000_000
FRAME, SIZE = 10, 300
"""Seconds of a slide and of a window."""
LAG = 5
FACTOR = 1.5
"""How far from the formula the measured memory may be."""


def expected(keys: int, frames: int, columns: int, text: int, held: int) -> int:
    """The formula of the guide, in bytes.

    Args:
        keys: Number of keys.
        frames: Open frames of each.
        columns: Of the keys, and the fields of all accumulators.
        text: Bytes of what is text in the keys.
        held: How often a frame is held, by the path.
    """
    return keys * frames * held * (110 + 8 * columns + text)


QUERIES: dict[str, tuple[Callable[[Any], Any], int, int, int]] = {
    "counts": (lambda rows: windows(rows, "k").agg(F.count("*"), F.sum("v")), 4, 0, 1),
    "maximum": (lambda rows: windows(rows, "k").agg(F.max("v")), 2, 0, 2),
    "text": (lambda rows: windows(rows, "t", "k").agg(F.avg("v")), 4, 40, 1),
    "rolling": (lambda rows: rows.groupBy("k").agg(F.count("*"), F.max("v"), F.sum("v")), 5, 0, 1),
}
"""Each with columns, bytes of text, and how often a frame is held."""


def windows(rows: Any, *keys: str) -> Any:
    return rows.groupBy(sj.window("ts", f"{SIZE} seconds", f"{FRAME} seconds"), *keys)


def source(spark: SparkSession, place: Path, keys: int, frames: int) -> DataFrame:
    """Two batches: each key in each frame, and one key in the next frame."""
    every = spark.range(keys * frames).select(
        F.timestamp_seconds(F.lit(START) + F.floor(F.col("id") / keys) * FRAME).alias("ts"),
        (F.col("id") % keys).alias("k"),
    )
    last = spark.range(1).select(F.timestamp_seconds(F.lit(START + FRAME * frames)).alias("ts"), F.col("id").alias("k"))
    for number, rows in enumerate((every, last)):
        named = rows.select("*", F.rpad(F.col("k").cast("string"), 40, "x").alias("t"), F.col("k").alias("v"))
        named.coalesce(1).write.parquet(str(place / f"batch={number}"))
    schema = "ts timestamp, k long, t string, v long"
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(str(place / "batch=*"))


@pytest.mark.parametrize("name", mostly_crash(QUERIES, quick=(), crash={"counts"}))
def test_state_takes_the_memory_that_the_guide_says(spark: SparkSession, tmp_path: Path, name: str) -> None:
    keys, frames = 1_000, 20
    query, columns, text, held = QUERIES[name]
    foreign = persisted(spark)
    stream = sj.stream(source(spark, tmp_path / "in", keys, frames)).withWatermark("ts", f"{LAG} seconds")
    mode = "update" if name == "rolling" else "append"
    writer = query(stream).writeStream.format("noop").outputMode(mode)
    running = writer.option("checkpointLocation", tmp_path / "home").start()
    try:
        running.processAllAvailable()
        found = sum(
            info.memSize() + info.diskSize()
            for info in spark.sparkContext._jsc.sc().getRDDStorageInfo()
            if info.id() not in foreign
        )
        entries = running.lastProgress["snapshot"]["entries"]
    finally:
        running.stop()
    formula = expected(keys, 1 if name == "rolling" else frames, columns, text, held)
    logger.info(
        "%s: %d bytes, %d entries, %.0f bytes an entry, formula %d", name, found, entries, found / entries, formula
    )
    assert formula / FACTOR <= found <= formula * FACTOR
