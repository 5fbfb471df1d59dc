"""The contract of sources finds what breaks it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from sparkjet.testing.source_contract import SourceContract, SourceUnderTest
from tests.contracts import broken


class Journal(DataSourceStreamReader):
    """A source of a user's: numbers in a list. The classes below it get one thing wrong each."""

    def __init__(self, numbers: list[int]) -> None:
        self.numbers = numbers

    def initialOffset(self) -> dict[str, int]:
        return {"next": 0}

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:
        return {"next": len(self.numbers)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return [InputPartition((start["next"], end["next"]))]

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        first, last = partition.value
        return ((number,) for number in self.numbers[first:last])

    def commit(self, end: dict[str, int]) -> None:
        """Everything is kept."""


class Newest(Journal):
    """A batch is read up to what is there by then."""

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        return ((number,) for number in self.numbers[partition.value[0] :])


class Overlapping(Journal):
    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return super().partitions({"next": max(0, start["next"] - 1)}, end)


class StartingAtTheEnd(Journal):
    def initialOffset(self) -> dict[str, int]:
        return {"next": len(self.numbers)}


class NeverIdle(Journal):
    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:
        return {"next": start["next"] + 1}


class Deleting(Journal):
    """Deletes what is behind the commit as well."""

    def commit(self, end: dict[str, int]) -> None:
        self.numbers.clear()


class Buffering(Journal):
    """Has what it has planned in its own memory."""

    def __init__(self, numbers: list[int]) -> None:
        super().__init__(numbers)
        self.buffer: dict[str, list[int]] = {}

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:
        end = super().latestOffset(start, limit)
        self.buffer.setdefault(str(start["next"]), self.numbers[start["next"] : end["next"]])
        return end

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        return ((number,) for number in self.buffer.get(str(partition.value[0]), []))


def found(kind: Callable[[list[int]], DataSourceStreamReader]) -> set[str]:
    def source() -> SourceUnderTest:
        numbers: list[int] = []

        def add(count: int) -> None:
            numbers.extend(range(len(numbers), len(numbers) + count))

        return SourceUnderTest(lambda: kind(numbers), add)

    return broken(SourceContract, lambda: {"source": source()})


def test_a_source_of_a_users_own_keeps_it() -> None:
    assert found(Journal) == set()


@pytest.mark.parametrize(
    ("kind", "test"),
    [
        (Newest, "test_a_batch_has_the_same_rows_after_a_restart"),
        (Buffering, "test_a_batch_has_the_same_rows_after_a_restart"),
        (Overlapping, "test_batches_have_every_row_once"),
        (StartingAtTheEnd, "test_a_new_reader_begins_where_the_first_one_did"),
        (NeverIdle, "test_without_new_rows_no_batch_is_planned"),
        (Deleting, "test_a_batch_that_is_not_committed_can_be_read_when_those_before_are"),
    ],
)
def test_violations_are_found(kind: type[Journal], test: str) -> None:
    assert test in found(kind)
