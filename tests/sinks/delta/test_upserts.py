"""Upserts into Delta tables: which rows are replaced, and that no other is lost, whoever else writes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from sparkjet.errors import AnalysisError, LostTransactionError, SinkError
from sparkjet.sinks.delta.kernel import DeltaTable as DeltaKernelTable
from sparkjet.sinks.delta.sink import DeltaSink
from sparkjet.storage.posix_directory import PosixDirectory
from sparkjet.testing.sink_contract import RUN, SinkContract, SinkUnderTest, transaction
from tests.sinks.delta.reading import rows_of
from tests.sinks.delta.test_delta import table_with, under_test

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sparkjet.sinks.protocol import Handle

ROWS = "k string, d date, n long, v string"


def sink_of(spark: SparkSession, path: Path, rows: DataFrame, by: Sequence[str] = (), keys: str = "k") -> DeltaSink:
    sink = DeltaSink(PosixDirectory(path), spark, tuple(by), keys=tuple(keys.split(",")))
    sink.check(rows.schema)
    sink.create()
    return sink


def prepared(sink: DeltaSink, rows: DataFrame, epoch: int) -> Handle:
    handle = sink.prepare(rows, transaction(epoch, run=RUN))
    assert handle is not None
    # As from the record of another process.
    found: Handle = json.loads(json.dumps(handle))
    return found


def rows_in(path: Path, *columns: str) -> list[tuple[Any, ...]]:
    return sorted((tuple(row[each] for each in columns) for row in rows_of(path)), key=repr)
