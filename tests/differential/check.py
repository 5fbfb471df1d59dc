"""Runs a case and compares: the same rows, schema and number of late rows, or the difference."""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from sparkjet.errors import AnalysisError
from tests.differential import early
from tests.differential.cases import Case
from tests.differential.oracle import Expected, Oracle
from tests.differential.outlets import Found
from tests.differential.running import RUNS
from tests.differential.texts import Row, plain, wrong_columns
from tests.differential.thresholds import lowered
from tests.interpreting import copying

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Difference:
    """The differences from the expected result."""

    kind: str
    """The same after shrinking: ``rows``, ``schema``, ``late``, or an error and its message's beginning."""
    text: str


class Skipped(Exception):  # noqa: N818 - no error: Spark's batch refuses the query too
    """Spark's batch fails on the case, so there is nothing to compare with."""


def difference(spark: SparkSession, case: Case) -> Difference | None:
    """How the query differs from Spark's batch, None if it does not.

    Raises:
        Skipped: Spark's batch fails.
    """
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", case.zone)
    try:
        # KNOWN: only where it matters, as it takes longer.
        with copying(spark) if any("collate" in ddl for ddl in case.types()) else nullcontext():
            return _difference(spark, case)
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(zone))


def _difference(spark: SparkSession, case: Case) -> Difference | None:
    made: dict[str, Any] = {}
    exec(case.definitions(), made)  # noqa: S102 - what the printed script runs is what is tested
    oracle = Oracle(spark, case, made["batch"])
    try:
        wanted = oracle.expected()
    except PySparkException as error:
        raise Skipped(_first_line(error)) from error
    except Py4JJavaError as error:
        # A bug of Spark's, which its planner does not report as an error.
        raise Skipped(str(error.java_exception)) from error
    try:
        with lowered() if case.many else nullcontext():
            outcome = RUNS[case.through](spark, case, made["query"], oracle)
    except AnalysisError as error:
        return Difference(f"refused: {_first_line(error)[:80]}", str(error))
    except Exception as error:  # noqa: BLE001 - whatever it fails with is a difference
        return Difference(f"{type(error).__name__}: {_first_line(error)[:40]}", str(error)[:3000])
    for number, (found, each) in enumerate(zip(outcome.results, wanted, strict=True)):
        if found is not None and (differs := _compared(case, found, each, number)):
            return differs
    late = [each.late for each in wanted if each.late is not None]
    if outcome.late is not None and len(late) == len(wanted):
        counts = tuple(map(sum, zip(*late, strict=True)))
        if outcome.late != counts:
            text = f"late rows and rows without event time: {outcome.late} are counted, not {counts}"
            return Difference("late", text)
    return Difference("moments", "\n".join(outcome.moments)) if outcome.moments else None


def _compared(case: Case, sink: Found, wanted: Expected, number: int) -> Difference | None:
    marked = bool(dict(case.options).get("isEarly")) and wanted.keys is not None
    schema = sink.schema
    if schema is not None and (wrong := wrong_columns(schema[:-1] if marked else schema, wanted.schema)):
        return Difference("schema", "\n".join([f"result {number}", *wrong]))
    if wanted.keys is not None:
        lines = early.differences(sink.epochs, wanted, wanted.keys, marked=marked)
        return Difference("early", "\n".join([f"result {number}", *lines])) if lines else None
    found = [Counter(plain(row, wanted.schema) for row in rows) for rows in sink.epochs if rows]
    if case.mode == "append" and found:
        found = [sum(found, Counter[Row]())]
    if found == wanted.rows:
        return None
    lines = [f"result {number}"]
    for epoch in range(max(len(found), len(wanted.rows))):
        left = found[epoch] if epoch < len(found) else Counter[Row]()
        right = wanted.rows[epoch] if epoch < len(wanted.rows) else Counter[Row]()
        lines += [f"  epoch {epoch} only sparkjet {row}" for row in (left - right).elements()]
        lines += [f"  epoch {epoch} only Spark    {row}" for row in (right - left).elements()]
    return Difference("rows", "\n".join(lines))


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [""])[0]
