"""Rows that travel with their tasks."""

from __future__ import annotations

import pickle
import random

import pyarrow as pa
import pytest

from sparkjet.sources.acknowledging.task_rows import TASK, TaskRows, tasks


def body(number: int, size: int) -> bytes:
    """Text that cannot be compressed."""
    return random.Random(number).randbytes(size)


def batches(count: int, size: int) -> list[pa.RecordBatch]:
    """Rows that have arrived one by one."""
    return [pa.record_batch({"body": [body(number, size)]}) for number in range(count)]


@pytest.mark.parametrize(("count", "size", "wanted"), [(0, 1, 0), (1, 10, 1), (300, 10, 1), (40, TASK // 10, 4)])
def test_tasks_have_a_sensible_size_whatever_has_arrived_together(count: int, size: int, wanted: int) -> None:
    made = tasks(batches(count, size))
    assert len(made) == wanted
    reader = pickle.loads(pickle.dumps(TaskRows()))  # noqa: S301 - as Spark does
    found = [body for each in made for batch in reader.read(each) for body in batch.column("body").to_pylist()]
    assert found == [body(number, size) for number in range(count)]


def test_rows_that_are_alike_are_in_few_tasks_though_not_in_one() -> None:
    rows = pa.record_batch(
        {"body": [b"{}"] * 90_000, "queue": ["orders"] * 90_000, "routing_key": ["x" * 100] * 90_000}
    )
    made = tasks([rows])
    assert len(made) == 5
    read = pa.Table.from_batches([batch for each in made for batch in TaskRows().read(each)])
    assert read.equals(pa.Table.from_batches([rows]))


def test_a_task_is_not_larger_because_its_messages_differ() -> None:
    sizes = [50] * 5000 + [4 * TASK] * 8 + [50] * 5000
    made = tasks([pa.record_batch({"body": [body(number, size) for number, size in enumerate(sizes)]})])
    assert max(len(each.value) for each in made) < 5 * TASK
    found = [len(body) for each in made for batch in TaskRows().read(each) for body in batch.column("body").to_pylist()]
    assert found == sizes


def test_executors_plan_nothing() -> None:
    with pytest.raises(NotImplementedError):
        TaskRows().initialOffset()
    with pytest.raises(NotImplementedError):
        TaskRows().partitions({}, {})
