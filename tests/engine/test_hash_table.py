"""The hash table for partial aggregation is large where there are many groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sparkjet.engine.context import configure
from sparkjet.engine.hash_table import CAPACITY, LARGE, MANY, USUAL, make_room

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.spark
@pytest.mark.parametrize(("groups", "capacity"), [(None, USUAL), (0, USUAL), (MANY, USUAL), (MANY + 1, LARGE)])
def test_many_groups_get_the_large_table(spark: SparkSession, groups: int | None, capacity: str) -> None:
    session = spark.newSession()
    configure(session, 2)
    make_room(session, groups)
    assert session.conf.get(CAPACITY) == capacity


@pytest.mark.spark
def test_the_large_table_is_kept(spark: SparkSession) -> None:
    session = spark.newSession()
    configure(session, 2)
    make_room(session, MANY + 1)
    make_room(session, 1)
    assert session.conf.get(CAPACITY) == LARGE
