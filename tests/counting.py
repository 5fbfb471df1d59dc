"""A source in Python that counts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import DataSource, SimpleDataSourceStreamReader


def counting(ends: list[int]) -> type[DataSource]:
    """A Python source of the numbers before these ends, each of which ends a batch; workers get it by value."""

    class Reader(SimpleDataSourceStreamReader):
        def initialOffset(self) -> dict[str, int]:
            return {"n": 0}

        def read(self, start: dict[str, int]) -> tuple[Iterator[tuple[int]], dict[str, int]]:
            end = {"n": next((end for end in ends if end > start["n"]), start["n"])}
            return self.readBetweenOffsets(start, end), end

        def readBetweenOffsets(self, start: dict[str, int], end: dict[str, int]) -> Iterator[tuple[int]]:
            return iter([(n,) for n in range(start["n"], end["n"])])

    class Counting(DataSource):
        @classmethod
        def name(cls) -> str:
            return "counting"

        def schema(self) -> str:
            return "id long"

        def simpleStreamReader(self, schema: Any) -> SimpleDataSourceStreamReader:
            return Reader()

    return Counting
