from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F

import sparkjet as sj
from sparkjet.errors import AnalysisError
from sparkjet.windows import SessionWindow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_durations_and_names() -> None:
    window = sj.session_window("ts", "10 minutes")
    assert window == SessionWindow("ts", 600_000_000, None, "session_window")
    assert window.alias("visit").name == "visit"
    limited = sj.session_window(timeColumn="ts", gapDuration=timedelta(seconds=5), maxDuration="1 second")
    assert (limited.gap, limited.max_duration) == (5_000_000, 1_000_000)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("ts", 0), "gapDuration = 0: it must not be less than 1 microsecond"),
        (("ts", "5 mintes"), "gapDuration = '5 mintes': unknown unit"),
        (("ts", "1 month"), "a month has no fixed length"),
        (("ts", None), "gapDuration = None: a duration is"),
        (("ts", "5 minutes", "0 seconds"), "maxDuration = '0 seconds'"),
        (("ts", "5 minutes", 1.5), "maxDuration = 1.5"),
        ((5, "5 minutes"), "timeColumn must be the event-time column or its name, not int"),
    ],
)
def test_what_is_refused(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(AnalysisError, match=message):
        sj.session_window(*arguments)


def test_a_gap_may_be_a_column(spark: SparkSession) -> None:
    gap = F.col("gap_of_user")
    window = sj.session_window("ts", gap, "1 hour")
    assert window.gap is gap
    assert (window.max_duration, window.alias("visit").gap) == (3_600_000_000, gap)
