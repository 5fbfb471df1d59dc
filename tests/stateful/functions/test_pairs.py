"""Jet's own example of what at-least-once does to state: pairing A with B around a barrier.

Page 000 of the manual: in at-least-once a processor may see B, emit the pair and forget both before its snapshot, which
is of a moment before B; after a restart B comes again without A, and the pair is stuck or emitted twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

from sparkjet import EpochPhase
from sparkjet.testing import StreamDriver
from tests.parameters import mostly_crash
from tests.ported.both import Both

SCHEMA = "pair string, item string"


def matched(key: Any, frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    """Emits a pair when its second item has come, and forgets it."""
    items = {*state.get} if state.exists else set()
    for frame in frames:
        items |= {*frame["item"]}
    if items == {"A", "B"}:
        state.remove()
        yield pd.DataFrame({"pair": [key[0]]})
    else:
        (item,) = items
        state.update((item,))


def pairs(items: Any) -> Any:
    return items.groupBy("pair").applyInPandasWithState(
        matched, "pair string", "item string", "append", GroupStateTimeout.NoTimeout
    )


@pytest.mark.parametrize(
    ("first", "phase"),
    mostly_crash(
        [(first, phase) for first in "AB" for phase in EpochPhase if phase is not EpochPhase.COMMITTING],
        quick=(),
        crash={
            ("A", EpochPhase.ADVANCE),
            ("B", EpochPhase.COMMIT),
        },
    ),
)
def test_a_pair_around_a_barrier_is_emitted_once(spark: SparkSession, first: str, phase: EpochPhase) -> None:
    second = "B" if first == "A" else "A"
    driver = StreamDriver(spark, pairs, SCHEMA)
    driver.process([("1", first), ("2", "A"), ("2", "B")])
    with driver.crash(at=phase):
        driver.process([("1", second), ("3", first)])
    driver.restart()
    driver.process([("3", second)])
    assert sorted(row.pair for row in driver.results()) == ["1", "2", "3"]
    assert driver.plan.stages[0].name in driver.engine.record.stages
    (stage,) = driver.engine.state.stages.values()
    assert stage.operator.open_until is None
    driver.stop()


@pytest.mark.long
def test_sparks_own_query_emits_it_twice(spark: SparkSession, tmp_path: Path) -> None:
    both = Both(spark, tmp_path, SCHEMA).arrive([{"pair": "1", "item": "A"}], [{"pair": "1", "item": "B"}])
    emitted: list[str] = []
    crashes = iter([True])

    def deliver(rows: DataFrame, batch: int) -> None:
        emitted.extend(row.pair for row in rows.collect())
        if batch == 1 and next(crashes, False):
            raise RuntimeError("crashed after the sink had the rows, before Spark's commit")

    def run() -> None:
        writer = pairs(both.source()).writeStream.foreachBatch(deliver).trigger(availableNow=True)
        writer.option("checkpointLocation", str(tmp_path / "_checkpoint")).start().awaitTermination()

    with pytest.raises(StreamingQueryException, match="FOREACH_BATCH_USER_FUNCTION_ERROR"):
        run()
    run()
    assert emitted == ["1", "1"]
