"""Classes and functions that are given a DataFrame, as those of libraries are: what they do with it stays as it is."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import functions as F

from tests.ported.port import Port


def heavy_hives(hives):
    """A filter on columns that the frame itself names."""
    return hives.filter(hives.keeper.isNotNull() & (hives.kilos > 40))


def labelled(ticks):
    """Every row with a new name, a constant and a value of another type."""
    return ticks.select(
        F.concat(F.lit("hive "), F.col("value").cast("string")).alias("hive"),
        F.lit("linden").alias("honey"),
        (F.col("value") * 1.5).cast("double").alias("kilos"),
    )


def named(ticks):
    """Constants beside a column that is read as text."""
    constants = [F.lit("Rue").alias("keeper"), F.lit("keepers@example.com").alias("mail")]
    return ticks.select(F.col("value").cast("string").alias("hive"), *constants)


@dataclass(frozen=True)
class JsonMessages:
    """Messages of a queue, whose values are JSON."""

    schema: str

    def rows(self, messages):
        texts = messages.selectExpr("CAST(value AS STRING) AS text")
        return texts.select(F.from_json(F.col("text"), self.schema).alias("message")).select("message.*")


def print_all(rows, place):
    return rows.writeStream.format("console").start()


def print_what_is_there(rows, place):
    return rows.writeStream.format("console").trigger(availableNow=True).start()


@dataclass(frozen=True)
class ConfiguredWriter:
    """A writer built from settings, of which some are missing."""

    format: str
    mode: str
    checkpoint: str | None = None
    each_batch: Callable[[Any, int], None] | None = None
    trigger: Mapping[str, Any] = field(default_factory=lambda: {"availableNow": True})

    def start(self, rows):
        writer = rows.writeStream.outputMode(self.mode).format(self.format)
        if self.checkpoint is not None:
            writer = writer.option("checkpointLocation", self.checkpoint)
        if self.each_batch is not None:
            writer = writer.foreachBatch(self.each_batch)
        return writer.trigger(**self.trigger).start()


@dataclass(frozen=True)
class Archive:
    """Files to which a frame is appended batch by batch."""

    place: Any
    settings: Mapping[str, Any] = field(default_factory=dict)

    def append(self, batch, format, mode, **options):
        batch.write.save(str(self.place / "out"), format, mode, **options)

    def follow(self, rows, interval="0 seconds"):
        if not rows.isStreaming:
            raise TypeError("There is nothing to follow in a frame that is complete.")
        writer = rows.writeStream.outputMode("append").trigger(processingTime=interval)
        writer = writer.option("checkpointLocation", str(self.place / "followed"))
        return writer.foreachBatch(lambda batch, _: self.append(batch, "parquet", "append", **self.settings)).start()

    def read_out(self, rows):
        def store(batch, _):
            self.append(batch, "parquet", "append")

        options = {"checkpointLocation": str(self.place / "read-out")}
        query = rows.writeStream.foreachBatch(store).options(**options).trigger(availableNow=True).start()
        query.awaitTermination()
        return query


def configured(rows, place):
    archive = Archive(place)
    writer = ConfiguredWriter(
        "parquet", "append", str(place / "cp"), lambda batch, _: archive.append(batch, "parquet", "append")
    )
    return writer.start(rows)


def shown(rows, place):
    writer = rows.writeStream.format("memory").outputMode("append").queryName("hives_shown")
    return writer.trigger(availableNow=True).start()


def view(rows, place, name="hives_view"):
    """A view of a frame, whichever it is."""
    if rows.isStreaming:
        return rows.writeStream.queryName(name).format("memory").start()
    return rows.createOrReplaceTempView(name)


def archived(spark, place):
    """The rows that were appended."""
    return spark.read.parquet(str(place / "out"))


def of(write, delivered=None):
    """A port that is nothing but its sink."""
    return Port(lambda rows: rows, HIVE, HIVES, write=write, delivered=delivered)


HIVE = "seen timestamp, hive string, keeper string, kilos double"
HIVES = [
    [("2026-05-01 07:00:00", "h1", "Ida", 41.5), ("2026-05-01 07:00:00", "h2", None, 52.0)],
    [("2026-05-01 07:10:00", "h1", "Ida", 39.5), ("2026-05-01 07:10:00", "h3", "Tom", None)],
]
RATE = "timestamp timestamp, value long"
TICKS = [[("2026-05-01 07:00:01", 1), ("2026-05-01 07:00:02", 2)], [("2026-05-01 07:00:03", 3)]]
# Spark's JSON reader takes binary columns as Base64.
MESSAGES = [
    [(b64encode(b'{"hive": 1, "weighed_at": "2026-05-01 07:00:00", "kilos": 41.5}').decode(),)],
    [(b64encode(b'{"hive": 2}').decode(),), (b64encode(b"buzz").decode(),), (None,)],
]

PORTS = {
    "filter": Port(heavy_hives, HIVE, HIVES),
    "print-available": of(print_what_is_there),
    "print": of(print_all),
    "select": Port(labelled, RATE, TICKS),
    "select-constants": Port(named, RATE, TICKS),
    "json": Port(JsonMessages("hive bigint, weighed_at timestamp, kilos double").rows, "value binary", MESSAGES),
    "configured": of(configured, archived),
    "memory": of(shown, lambda spark, place: spark.table("hives_shown")),
    "read-out": of(lambda rows, place: Archive(place).read_out(rows), archived),
    "follow": of(lambda rows, place: Archive(place, {"compression": "gzip"}).follow(rows), archived),
    "view": of(view, lambda spark, place: spark.table("hives_view")),
}
