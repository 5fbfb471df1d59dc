"""Rows in a grid: tasks write them as Parquet files into its memory, and read them from there."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
from pyarrow import parquet
from pyspark import TaskContext
from pyspark.sql.types import StructType

from sparkjet.storage.grid_location import GridLocation
from sparkjet.storage.shipping import ship
from sparkjet_grid.files import read_files, write_files
from sparkjet_grid.known_types import known
from sparkjet_grid.messages import Held

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SCHEMA = b"org.apache.spark.sql.parquet.row.metadata"
"""Where Spark keeps its own types in a Parquet file."""
_TASK_BYTES = 64 << 20
"""Bytes of files that a task reads, unless one has more."""


def write_rows(rows: DataFrame, location: GridLocation, directory: str) -> list[tuple[Held, int]]:
    """Write one file for each partition with rows; returns how each is held, and its number of rows.

    An attempt of a task writes under a name of its own; what no successful one has named goes with its directory.
    """
    ship(rows.sparkSession)
    task = partial(_written, location, directory, rows.schema.json())
    found = rows.mapInArrow(task, "held binary, count long").collect()
    return [(msgspec.msgpack.decode(row["held"], type=known(Held)), row["count"]) for row in found]


def read_rows(session: SparkSession, location: GridLocation, files: Sequence[Held]) -> DataFrame:
    """The rows of files that :func:`write_rows` has written."""
    tasks = [msgspec.msgpack.encode(group) for group in _grouped(files)]
    [first] = read_files(location.client, files[:1]).values()
    ship(session)
    schema = StructType.fromJson(json.loads(parquet.read_schema(pa.BufferReader(first)).metadata[_SCHEMA]))
    return session.range(0, len(tasks), 1, len(tasks)).mapInArrow(partial(_read, location, tasks), schema)


def _written(
    location: GridLocation, directory: str, schema: str, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """In a task: its rows as one file."""
    sink, writer, count = pa.BufferOutputStream(), None, 0
    for batch in batches:
        if batch.num_rows:
            count += batch.num_rows
            # Arrow has fewer types than Spark.
            writer = writer or parquet.ParquetWriter(
                sink, batch.schema.with_metadata({_SCHEMA: schema}), compression="lz4"
            )
            writer.write_batch(batch)
    if writer is None:
        return
    writer.close()
    context = TaskContext.get()
    assert context is not None  # noqa: S101 - in a task there is one
    name = f"{directory}/part-{context.partitionId():05d}-{uuid.uuid4().hex}.parquet"
    [held] = write_files(location.client, {name: sink.getvalue()})
    yield pa.record_batch({"held": pa.array([msgspec.msgpack.encode(held)], pa.binary()), "count": pa.array([count])})


def _read(
    location: GridLocation, tasks: Sequence[bytes], numbers: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """In a task: the rows of its files."""
    for batch in numbers:
        for number in batch.column(0).to_pylist():
            files = msgspec.msgpack.decode(tasks[number], type=known(list[Held]))
            contents = read_files(location.client, files)
            for held in files:
                yield from parquet.ParquetFile(pa.BufferReader(contents[held.name])).iter_batches()


def _grouped(files: Sequence[Held]) -> Iterator[list[Held]]:
    """Files in their order, in groups for tasks."""
    group: list[Held] = []
    for held in files:
        if group and sum(each.rows for each in group) + held.rows > _TASK_BYTES:
            yield group
            group = []
        group.append(held)
    yield group
