"""A window's length or slide changed between two runs: what was emitted stays, what follows has the new shape."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from tests.crash.conftest import HALF, WHOLE
from tests.crash.feeds import SECOND
from tests.crash.jobs import JOBS, Place
from tests.crash.readers import late_rows, listed, recorded_batches, result_rows, strays
from tests.crash.replay import Row, batch_result, replay

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SUMS = JOBS["sums"]


@pytest.mark.parametrize(
    ("size", "step"),
    # What each change of shape gives is in `windows/test_sliding.py`.
    [(120, 20), *(pytest.param(*each, marks=pytest.mark.long) for each in ((40, 20), (60, 60)))],
    ids=str,
)
def test_a_changed_window_goes_on_with_the_first_windows_that_are_whole(
    spark: SparkSession, half_done: Place, size: int, step: int
) -> None:
    old, changed = SUMS.rules, SUMS.with_window(size, step)
    new = changed.rules
    changed.run(spark, half_done)

    batches = recorded_batches(half_done, old)
    first = replay(batches[:HALF], old, ())
    whole = replay(batches[HALF:], new, [WHOLE - HALF], first)
    closed = first.watermark
    assert closed is not None
    expected: Counter[Row] = Counter(row for row in batch_result(first.accepted, old) if row[1] <= closed)
    # Rows that no window of the old length needed were gone when the length changed.
    new_rows = (row for row in batch_result(whole.accepted, new) if row[1] > closed // new.step * new.step)
    expected.update(row for row in new_rows if row[0] >= closed + old.step - old.size)

    assert {row[1] - row[0] for row in expected} == {60 * SECOND, size * SECOND}
    assert result_rows(listed(half_done.out), new) == expected
    assert late_rows(listed(half_done.late), new) == whole.late
    assert strays(half_done) == []
