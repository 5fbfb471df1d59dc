"""Rows that travel with their tasks."""

from __future__ import annotations

import pickle

import pyarrow as pa
import pytest

from sparkjet.sources.acknowledging.task_rows import TASK, TaskRows, tasks


def batches(count: int, size: int) -> list[pa.RecordBatch]:
    """Rows that have arrived one by one."""
    return [pa.record_batch({"body": [f"{number:0{size}}"]}) for number in range(count)]


@pytest.mark.parametrize(("count", "size", "wanted"), [(0, 1, 0), (1, 10, 1), (300, 10, 1), (40, TASK // 10, 4)])
def test_tasks_have_a_sensible_size_whatever_has_arrived_together(count: int, size: int, wanted: int) -> None:
    made = tasks(batches(count, size))
    assert len(made) == wanted
    reader = pickle.loads(pickle.dumps(TaskRows()))  # noqa: S301 - as Spark does
    found = [body for each in made for batch in reader.read(each) for body in batch.column("body").to_pylist()]
    assert found == [f"{number:0{size}}" for number in range(count)]


def test_a_task_is_not_larger_because_its_messages_differ() -> None:
    sizes = [50] * 5000 + [4 * TASK] * 8 + [50] * 5000
    made = tasks([pa.record_batch({"body": [b"x" * size for size in sizes]})])
    assert max(len(each.value) for each in made) < 5 * TASK
    found = [len(body) for each in made for batch in TaskRows().read(each) for body in batch.column("body").to_pylist()]
    assert found == sizes


def test_executors_plan_nothing() -> None:
    with pytest.raises(NotImplementedError):
        TaskRows().initialOffset()
    with pytest.raises(NotImplementedError):
        TaskRows().partitions({}, {})
