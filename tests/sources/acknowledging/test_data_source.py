"""The base of acknowledging data sources: what a user's own one gets, and what executors do not."""

from __future__ import annotations

import pickle
import re
from pathlib import Path

import pytest
from pyspark.sql.types import StringType, StructField, StructType

from sparkjet.errors import AnalysisError
from sparkjet.sources.acknowledging.task_rows import TaskRows
from tests.sources.acknowledging.directory_queue import DirectoryQueueSource

COLUMNS = StructType([StructField(name, StringType()) for name in ("body", "id", "queue")])


def source(tmp_path: Path, **options: str) -> DirectoryQueueSource:
    return DirectoryQueueSource({"paths": str(tmp_path), **options})


def test_it_has_the_columns_of_its_messages(tmp_path: Path) -> None:
    assert source(tmp_path).schema() == COLUMNS


def test_options_are_checked_by_load(tmp_path: Path) -> None:
    with pytest.raises(
        AnalysisError, match='maxSpoolBytes must be a number of bytes, such as 1048576, 512m or 4g, not "much"'
    ):
        source(tmp_path, maxSpoolBytes="much").schema()
    with pytest.raises(KeyError):
        DirectoryQueueSource({}).schema()


def test_another_schema_is_refused(tmp_path: Path) -> None:
    message = 'format("directories") has a fixed schema: leave schema(…) out'
    with pytest.raises(AnalysisError, match=re.escape(message)):
        source(tmp_path).streamReader(StructType(COLUMNS.fields[:1]))


def test_tasks_do_not_get_the_reader(tmp_path: Path) -> None:
    reader = source(tmp_path, password="s3cret").streamReader(COLUMNS)
    packed = pickle.dumps(reader)
    assert b"s3cret" not in packed
    assert type(pickle.loads(packed)) is TaskRows  # noqa: S301 - as Spark does
