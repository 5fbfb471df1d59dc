"""Moments: what a plan must not freeze, listed from Spark's own functions; seeds and time of one epoch."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from sparkjet.catalyst.moments import Moment, changes
from sparkjet.spark_line import LINE

pytestmark = pytest.mark.spark

_EXPRESSIONS = "org.apache.spark.sql.catalyst.expressions."
_TRAITS = ("Nondeterministic", "ExpressionWithRandomSeed", "CurrentTimestampLike")
_PREFIXES = ("Current", "LocalTimestamp", "Now")
SEEDED = {
    "Rand": "rand()",
    "Randn": "randn()",
    "RandStr": "randstr(20)",
    "Shuffle": "shuffle(sequence(1, 50))",
    "Uniform": "uniform(0, 1000000000)",
    "Uuid": "uuid()",
}
TIMES = {
    "CurDateExpressionBuilder": "curdate()",
    "CurrentDate": "current_date()",
    **({"CurrentTime": "current_time(3)"} if LINE >= (4, 1) else {}),
    "CurrentTimestamp": "current_timestamp()",
    "CurrentTimestampExpressionBuilder": "current_timestamp()",
    "LocalTimestamp": "localtimestamp()",
    "LocalTimestampExpressionBuilder": "localtimestamp()",
    "Now": "now()",
    "NowExpressionBuilder": "now()",
}
OF_THE_SESSION = {
    "CurrentCatalog": "current_catalog()",
    "CurrentDatabase": "current_database()",
    **({"CurrentPath": "current_path()"} if LINE >= (4, 2) else {}),
    "CurrentTimeZone": "current_timezone()",
    "CurrentUser": "current_user()",
}
REFLECTIVE = {"CallMethodViaReflection": "reflect('java.util.UUID', 'randomUUID')"}
OF_A_TASK = {
    "InputFileBlockLength": "input_file_block_length()",
    "InputFileBlockStart": "input_file_block_start()",
    "InputFileName": "input_file_name()",
    "MonotonicallyIncreasingID": "monotonically_increasing_id()",
    "SparkPartitionID": "spark_partition_id()",
}
CHANGING = {**SEEDED, **TIMES, **OF_THE_SESSION, **REFLECTIVE}


def analyzed(session: SparkSession, sql: str) -> Any:
    return session.range(3).select(F.expr(sql))._jdf.queryExecution().analyzed()


def test_every_function_of_sparks_that_changes_is_known(session: SparkSession) -> None:
    """A new version of Spark may have more of them."""
    registry = session._jsparkSession.sessionState().functionRegistry()
    java: Any = session._jvm
    class_of = java.java.lang.Class.forName
    traits = [class_of(_EXPRESSIONS + name) for name in _TRAITS]
    functions = registry.listFunction()
    names = {registry.lookupFunction(functions.apply(i)).get().getClassName() for i in range(functions.size())}
    found = set()
    for name in names:
        simple = name.rpartition(".")[2]
        if name.startswith(_EXPRESSIONS) and (
            simple.startswith(_PREFIXES) or any(trait.isAssignableFrom(class_of(name)) for trait in traits)
        ):
            found.add(simple)
    assert found - CHANGING.keys() - OF_A_TASK.keys() == set()


@pytest.mark.parametrize("sql", [*CHANGING.values(), "(SELECT max(id) FROM range(3))", "upper(current_user())"])
def test_expressions_that_change_are_found(session: SparkSession, sql: str) -> None:
    assert changes(session, analyzed(session, sql))


@pytest.mark.parametrize("sql", [*OF_A_TASK.values(), "id + 1"])
def test_what_each_task_finds_out_for_itself_does_not_change_a_plan(session: SparkSession, sql: str) -> None:
    assert not changes(session, analyzed(session, sql))


def rows(frame: DataFrame) -> list[Any]:
    return [tuple(row) for row in frame.collect()]


def test_seeds_are_the_epochs_alone(session: SparkSession) -> None:
    frame = session.range(5).select(
        *(F.expr(sql).alias(name) for name, sql in SEEDED.items()), F.rand(7).alias("given")
    )
    once, again, other = (rows(Moment(epoch).of(frame, "rows")) for epoch in ("query/1", "query/1", "query/2"))
    assert once == again
    for number, name in enumerate(frame.columns):
        assert [row[number] for row in once] != [row[number] for row in other], name
    named = rows(Moment("query/1").of(frame, "other rows"))
    assert named[0][0] != once[0][0]
    assert rows(Moment(None).of(frame)) == rows(frame)


def test_equal_expressions_stay_equal_and_others_do_not_become_so(session: SparkSession) -> None:
    one, other = F.rand(), F.rand()
    frame = session.range(3).select(one.alias("a"), one.alias("b"), other.alias("c"))
    for first, second, third in rows(Moment("query/1").of(frame)):
        assert first == second != third


def test_persisted_rows_are_not_computed_again(session: SparkSession) -> None:
    moment = Moment("query/1")
    held = moment.of(session.range(5).withColumn("x", F.rand()), "held").persist()
    try:
        found = moment.of(held.withColumn("y", F.rand()), "read")
        assert "InMemoryTableScan" in found._jdf.queryExecution().executedPlan().toString()
        assert [x for _, x, _ in rows(found)] == [x for _, x in rows(held)]
    finally:
        held.unpersist()


def test_the_time_is_that_of_the_epoch(session: SparkSession) -> None:
    session.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    session.conf.set("spark.sql.timeType.enabled", "true")
    now = 1_700_000_000_123_456
    samples = [*dict.fromkeys(TIMES.values()), "unix_timestamp()"]
    frame = session.range(1).select(*(F.expr(f"cast({sql} AS string)").alias(sql) for sql in samples))
    (found,) = Moment("query/1", now).of(frame).collect()
    local = "2023-11-15 07:13:20.123456"
    assert found.asDict() == {
        "curdate()": "2023-11-15",
        "current_date()": "2023-11-15",
        **({"current_time(3)": "07:13:20.123"} if LINE >= (4, 1) else {}),
        "current_timestamp()": local,
        "localtimestamp()": local,
        "now()": local,
        "unix_timestamp()": "1700000000",
    }
