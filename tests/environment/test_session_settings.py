"""Whether every setting of the installed Spark is in a group, and has another value there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkjet.testing import StreamDriver
from tests.environment.session_settings import (
    ELSEWHERE,
    GROUPS,
    OTHERS,
    UNTOUCHED,
    changed,
    entries,
    group_of,
    other,
    session_with,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_new_setting_of_spark_is_given_another_value_or_said_to_be_elsewhere(spark: SparkSession) -> None:
    defaults = entries(spark)
    nowhere = [name for name in defaults if group_of(name) is None and not ELSEWHERE.match(name)]
    assert not nowhere, f"new settings of Spark: put them into a group or say that they are ELSEWHERE: {nowhere}"
    grouped = {name: default for name, default in defaults.items() if group_of(name) is not None}
    unknown = [name for name, value in grouped.items() if other(name, value) is None and not UNTOUCHED.match(name)]
    assert not unknown, f"new settings of Spark: give other values in OTHERS or say that they are UNTOUCHED: {unknown}"
    # A name that Spark has given up would be set for nothing.
    assert OTHERS.keys() <= grouped.keys()
    assert sum(len(changed(spark, group)) for group in GROUPS) > len(grouped) * 0.7


def test_what_the_engine_groups_by_keeps_its_keys(spark: SparkSession) -> None:
    """Where the user's own results would be refused, as Spark makes them without their keys."""
    session = session_with(spark, {"spark.sql.retainGroupColumns": "false"})
    driver = StreamDriver(session, lambda rows: rows.dropDuplicates(["k"]), "k string")
    driver.process([("a",), ("a",), ("b",)])
    driver.process([("b",), ("c",)])
    assert sorted(row.k for row in driver.results()) == ["a", "b", "c"]
