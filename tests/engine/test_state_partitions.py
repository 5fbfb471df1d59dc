"""Another number of partitions in another run: the state is redistributed, and the results stay the same."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from sparkjet.testing import CollectingSink, StreamDriver
from tests.engine.test_lost_state import ALONE, OTHERS, SCHEMA, batch

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

CHANGED, CONSTANT = (2, 5, 2), (2, 2, 2)


def run(spark: SparkSession, home: Path, name: str, runs: tuple[int, ...], *, ends: bool = True) -> CollectingSink:
    """One run after the other, each with its number of partitions and one batch."""
    inputs, query = ALONE[name]
    sink = CollectingSink()
    for number, each in enumerate(runs):
        driver = StreamDriver(
            spark,
            query,
            [SCHEMA, OTHERS][:inputs],
            sinks=[sink],
            directory=home,
            outputMode="update" if name == "rolling" else "append",
            statePartitions=each,
        )
        assert driver.engine.state.partitions == each
        driver.process(*batch(number)[:inputs])
        if number < len(runs) - 1:
            driver.stop()
    if ends:
        driver.close_windows()
    return sink


@pytest.mark.crash
def test_counts_go_on_in_more_partitions_and_in_fewer(spark: SparkSession, tmp_path: Path) -> None:
    found = run(spark, tmp_path, "rolling", CHANGED, ends=False).committed
    seen: Counter[str] = Counter()
    for number in range(len(CHANGED)):
        keys = [key for _, _, key, _ in batch(number)[0]]
        seen.update(keys)
        assert {row["key"]: row["n"] for row in found[number + 1]} == {key: seen[key] for key in keys}


@pytest.mark.long
@pytest.mark.parametrize("name", ALONE)
def test_the_number_of_partitions_changes_no_result(spark: SparkSession, tmp_path: Path, name: str) -> None:
    def sorted_rows(home: str, partitions: tuple[int, ...]) -> dict[int, list[Any]]:
        committed = run(spark, tmp_path / home, name, partitions).committed
        return {epoch: sorted(map(repr, rows)) for epoch, rows in committed.items()}

    found = sorted_rows("changed", CHANGED)
    assert found == sorted_rows("constant", CONSTANT)
    assert sum(map(len, found.values())) > len(CHANGED)
