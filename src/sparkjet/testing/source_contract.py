"""The contract of sources that a restart reads again, as a suite that every Python stream reader passes, yours too.

Exactly-once needs the same rows for the same offsets, from whichever process. Inherit :class:`SourceContract` in a
pytest test class and give it a fixture ``source``::

    class TestMySource(SourceContract):
        @pytest.fixture
        def source(self):
            return SourceUnderTest(reader=lambda: MyStreamReader(...), add=add_rows)
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pyspark import cloudpickle
from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import ReadAllAvailable

Offset = dict[str, Any]


@dataclass
class SourceUnderTest:
    """A source without rows that begins at its first one, and a way to add some."""

    reader: Callable[[], DataSourceStreamReader]
    """Creates a new reader, like a driver that starts."""
    add: Callable[[int], None]
    """Adds this many rows, all different; returns when they can be read."""


def through_json(offset: Offset) -> Offset:
    """An offset as it comes back from Spark's checkpoint."""
    found: Offset = json.loads(json.dumps(offset))
    return found


def latest(reader: DataSourceStreamReader, start: Offset) -> Offset:
    """The end of a batch that begins at ``start``."""
    return through_json(reader.latestOffset(start, ReadAllAvailable()))


def rows(source: SourceUnderTest, reader: DataSourceStreamReader, start: Offset, end: Offset) -> Counter[str]:
    """The rows of a batch: planned by one reader, read by another, which is sent to the executors as Spark does."""
    sent = cloudpickle.dumps((source.reader(), list(reader.partitions(start, end))))
    executor, partitions = cloudpickle.loads(sent)
    found: Counter[str] = Counter()
    for partition in partitions:
        for each in executor.read(partition):
            # Arrow batches, or one tuple or Row after another.
            found.update(map(repr, each.to_pylist() if hasattr(each, "to_pylist") else [tuple(each)]))
    return found


class SourceContract:
    """Tests that each source's test class inherits; it provides the fixture ``source``."""

    def test_without_new_rows_no_batch_is_planned(self, source: SourceUnderTest) -> None:
        reader = source.reader()
        start = through_json(reader.initialOffset())
        assert latest(reader, start) == start
        source.add(3)
        end = latest(reader, start)
        assert end != start
        assert latest(reader, end) == end
        assert rows(source, reader, end, end) == Counter()

    def test_a_new_reader_begins_where_the_first_one_did(self, source: SourceUnderTest) -> None:
        # Spark writes down where the first batch ends, and asks again where it began.
        start = source.reader().initialOffset()
        source.add(3)
        assert through_json(source.reader().initialOffset()) == through_json(start)

    def test_a_batch_has_the_same_rows_after_a_restart(self, source: SourceUnderTest) -> None:
        reader = source.reader()
        start = through_json(reader.initialOffset())
        source.add(5)
        end = latest(reader, start)
        first = rows(source, reader, start, end)
        assert first.total() == 5
        source.add(5)
        latest(reader, end)
        assert rows(source, reader, start, end) == first
        assert rows(source, source.reader(), start, end) == first

    def test_batches_have_every_row_once(self, source: SourceUnderTest) -> None:
        reader = source.reader()
        offsets = [through_json(reader.initialOffset())]
        batches = []
        for _ in range(3):
            source.add(4)
            offsets.append(latest(reader, offsets[-1]))
            batches.append(rows(source, reader, *offsets[-2:]))
        together = sum(batches, Counter())
        assert [batch.total() for batch in batches] == [4, 4, 4]
        assert set(together.values()) == {1}
        assert rows(source, source.reader(), offsets[0], offsets[-1]) == together

    def test_a_batch_that_is_not_committed_can_be_read_when_those_before_are(self, source: SourceUnderTest) -> None:
        reader = source.reader()
        start = through_json(reader.initialOffset())
        source.add(4)
        middle = latest(reader, start)
        source.add(4)
        end = latest(reader, middle)
        expected = rows(source, reader, middle, end)
        reader.commit(middle)
        assert expected.total() == 4
        assert rows(source, source.reader(), middle, end) == expected
