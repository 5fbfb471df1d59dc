from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

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


def test_a_column_for_a_gap_is_refused_with_the_way_out(spark: SparkSession) -> None:
    from pyspark.sql import functions as F

    with pytest.raises(AnalysisError, match=r"not the column.*gap_of_user.*one query per gap, or use the longest gap"):
        sj.session_window("ts", F.col("gap_of_user"))
