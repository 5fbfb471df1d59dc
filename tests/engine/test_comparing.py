"""Comparing a query with its record: what is free, what has to be agreed to, and what is refused."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

import sparkjet as sj
from sparkjet.engine.comparing import compared
from sparkjet.spark_line import LINE_NAME
from sparkjet.testing import CollectingSink, StreamDriver

pytestmark = pytest.mark.spark

Query = Callable[[Any], Any]
SCHEMA = "ts timestamp, shop string, town string, px long, note string"
ROWS = [("2026-01-01 12:00:01", "n", "a", 3, "x"), ("2026-01-01 12:00:04", "s", "a", 5, "y")]


def start(spark: SparkSession, home: Path, query: Query, schema: str = SCHEMA, **options: Any) -> StreamDriver:
    return StreamDriver(spark, query, schema, directory=home, **options)


def totals(stream: Any) -> Any:
    windows = stream.withWatermark("ts", "1 second").groupBy(sj.window("ts", "10 seconds"), "shop", "town")
    return windows.agg(F.sum("px").alias("px"), F.count("*").alias("n"))


@pytest.fixture(scope="module")
def home(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home of :func:`totals` with open windows; tests leave its records as they are, or take what they do back."""
    directory = tmp_path_factory.mktemp("home")
    driver = start(spark, directory, totals)
    driver.process(ROWS)
    driver.stop()
    driver.close()
    return directory


def keyed(*keys: str, **columns: str) -> Query:
    """The same with other keys, or with columns that are computed before."""

    def query(stream: Any) -> Any:
        windows = stream.withColumns({name: F.expr(text) for name, text in columns.items()}) if columns else stream
        grouped = windows.withWatermark("ts", "1 second").groupBy(sj.window("ts", "10 seconds"), *keys)
        return grouped.agg(F.sum("px").alias("px"), F.count("*").alias("n"))

    return query


def lagging(stream: Any) -> Any:
    """Another lag, filters, columns in between, another name of a result and an output more."""
    early = stream.where("px > 0").withColumns({"twice": F.col("px") * 2, "copy": F.col("px")})
    early = early.select("ts", "shop", "town", F.col("copy").alias("px")).withWatermark("ts", "7 seconds")
    results = early.groupBy(sj.window("ts", "10 seconds").alias("w"), "shop", "town").agg(
        F.sum("px").alias("sum"), (F.sum("px") / F.count("*")).alias("mean"), F.count("*").alias("rows")
    )
    return [results.where("rows > 1"), results.select("sum")]


def test_what_is_not_read_may_change_without_asking(spark: SparkSession, home: Path) -> None:
    for query in (lagging, totals):
        driver = start(spark, home, query, SCHEMA + ", more int", statePartitions=3)
        assert driver.engine.state.upgrade is not None
        assert driver.engine.state.upgrade.changes == ()
        driver.close()


def test_a_constant_time_is_the_same_in_another_time_zone(spark: SparkSession, tmp_path: Path) -> None:
    query = keyed("shop", px="if(ts > timestamp'2026-01-01 00:00:00 UTC', px, 0L)")
    driver = start(spark, tmp_path, query)
    driver.process(ROWS)
    driver.close()
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    try:
        other = start(spark, tmp_path, query)
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(before))
    assert other.engine.state.upgrade is not None
    assert other.engine.state.upgrade.changes == ()
    other.close()


def test_texts_of_another_line_of_spark_say_nothing(spark: SparkSession, home: Path, tmp_path: Path) -> None:
    driver, other = start(spark, home, totals), start(spark, tmp_path, keyed("shop", "town", px="px + 1"))
    record, plan = driver.engine.record, other.plan
    assert [change.what for change in compared(plan, record).changes] == ["aggregate sum(px) of px"]
    unsaid = {what: ["4.0", *value[1:]] if value[0] == LINE_NAME else value for what, value in record.unsaid.items()}
    assert compared(plan, msgspec.structs.replace(record, unsaid=unsaid)).changes == ()
    driver.close()
    other.close()


REFUSED: dict[str, tuple[Query, str, str]] = {
    "added key": (keyed("shop", "town", "note"), SCHEMA, "key note: none → string: refused"),
    "another key": (keyed("shop", "town", town="upper(town)"), SCHEMA, r"key town: town → upper\(town\): refused"),
    "another value": (
        keyed("shop", "town", px="px + 1"),
        SCHEMA,
        r"aggregate sum\(px\) of px: px → \(px \+ .*1.*\): refused \(another meaning; under another name",
    ),
    "narrower": (totals, SCHEMA.replace("px long", "px int"), r"sum\(px\): bigint → int: refused \(not wider"),
    "narrower key": (
        keyed("shop", "town", shop="int(shop)"),
        SCHEMA,
        r"key shop: .* → .*int.*: refused",
    ),
    "rolling": (lambda stream: stream.groupBy("shop", "town").agg(F.sum("px"), F.count("*")), SCHEMA, "refused"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_refused(spark: SparkSession, home: Path, name: str) -> None:
    query, schema, match = REFUSED[name]
    mode = "update" if name == "rolling" else "append"
    before = sorted(home.rglob("*"))
    with pytest.raises(sj.ChangedQueryError, match=match) as refused:
        start(spark, home, query, schema, onChange="apply", outputMode=mode)
    assert refused.value.digest is None
    assert refused.value.changes
    assert sorted(home.rglob("*")) == before


def united(*texts: str, where: str | None = None) -> Query:
    """Totals of streams that are called a, b and so on, with px as these texts."""

    def query(*streams: Any) -> Any:
        sides = []
        for name, text, stream in zip("abc"[: len(texts)], texts, streams, strict=True):
            side = stream.withColumn("px", F.expr(text)).alias(name).withWatermark("ts", "1 second")
            sides.append(side if where is None else side.where(where))
        windows = functools.reduce(lambda one, other: one.union(other), sides)
        return windows.groupBy(sj.window("ts", "10 seconds"), "shop").agg(F.sum("px").alias("px"))

    return query


@pytest.mark.parametrize("where", [None, pytest.param("px > 0", marks=pytest.mark.long)])
def test_each_input_of_a_union_is_compared(spark: SparkSession, tmp_path: Path, where: str | None) -> None:
    """With a filter before it, rows of both sides are read side by side."""
    options: dict[str, Any] = {"directory": tmp_path}
    driver = StreamDriver(spark, united("px", "px * 2", where=where), [SCHEMA] * 2, **options)
    driver.process(ROWS, ROWS)
    driver.stop()
    driver.close()
    unsaid = driver.engine.record.unsaid
    said = {what: value[1] for what, value in unsaid.items() if what.startswith("stage0 column")}
    assert said == {"stage0 column px": "px", "stage0 column px, input 2": "(px * CAST(2 AS BIGINT))"}
    refused = {
        ("px", "px + 1"): r"px: \(px \* CAST\(2 AS BIGINT\)\) → \(px \+ .*: refused \(another meaning",
        ("px + 1", "px * 2"): r"px: px → \(px \+ .*: refused",
        ("px", "px + 1", "px"): r"aggregate sum\(px\) of px: .*: refused",
    }
    for texts, match in refused.items():
        with pytest.raises(sj.ChangedQueryError, match=match):
            StreamDriver(spark, united(*texts, where=where), [SCHEMA] * len(texts), **options, onChange="apply")
    # Of what is new nothing is known before.
    added = StreamDriver(
        spark, united("px", "px * 2", "px + 1", where=where), [SCHEMA] * 3, **options, onChange="apply"
    )
    assert [change.consequence.name for change in added.engine.state.upgrade.changes] == ["ADDED", "FREE", "FREE"]  # type: ignore[union-attr]
    added.process([], [], ROWS)
    added.stop()
    added.close()
    with pytest.raises(sj.ChangedQueryError, match=r"px: \(px \+ .*→ \(px \+ .*: refused"):
        StreamDriver(spark, united("px", "px * 2", "px + 2", where=where), [SCHEMA] * 3, **options, onChange="apply")


def dropped(stream: Any) -> Any:
    windows = stream.withWatermark("ts", "1 second").groupBy(sj.window("ts", "10 seconds"), "shop", "town")
    return windows.agg(F.sum("px").alias("px"), F.max("px").alias("most"))


def test_changes_are_agreed_to_by_their_digest(spark: SparkSession, home: Path) -> None:
    before = sorted(home.rglob("*"))
    for given in ({}, {"onChange": "refuse"}, {"onChange": "approve"}, {"onChange": "approve:0123456789ab"}):
        with pytest.raises(sj.ChangedQueryError, match=r"max\(px\): none → new: null before the cut") as asked:
            start(spark, home, dropped, **given)
        digest = asked.value.digest
        assert digest is not None
        assert f'option("onChange", "approve:{digest}")' in str(asked.value)
    assert "0123456789ab, were other changes" in str(asked.value)
    assert sorted(home.rglob("*")) == before
    driver = start(spark, home, dropped, onChange=f"approve:{digest}")
    assert [str(change) for change in driver.engine.state.upgrade.changes] == asked.value.changes  # type: ignore[union-attr]
    driver.close()
    # No epoch has recorded it: it can be asked for again, or taken back.
    start(spark, home, dropped, onChange=f"approve:{digest}").close()
    start(spark, home, totals).close()


class Strict(CollectingSink):
    """A sink whose destination has columns that are NOT NULL."""

    required = ("n", "most", "shop")

    def check(self, schema: StructType) -> None:
        self.nullable = [field.name for field in schema.fields if field.nullable]


def test_a_destination_that_takes_no_nulls_is_asked_before_anything_is_changed(spark: SparkSession, home: Path) -> None:
    def query(*columns: str) -> Query:
        def results(stream: Any) -> Any:
            windows = stream.withWatermark("ts", "1 second").groupBy(sj.window("ts", "10 seconds"), "shop", "town")
            rows = windows.agg(F.sum("px").alias("px"), F.max("px").alias("most"), F.count("note").alias("c"))
            return rows.withColumn("n", F.expr("c + 0")).select("shop", *map(F.expr, columns))

        return results

    before = sorted(home.rglob("*"))
    sink = Strict()
    with pytest.raises(sj.ChangedQueryError) as refused:
        start(spark, home, query("most", "n"), sinks=[sink], onChange="apply")
    said = "NOT NULL → null before the cut: refused (let it be null there, give it a value with coalesce after"
    assert f"out0: column most of Strict: {said}" in str(refused.value)
    assert f"out0: column n of Strict: {said}" in str(refused.value)
    assert refused.value.digest is None
    assert sorted(home.rglob("*")) == before
    driver = start(spark, home, query("coalesce(most, 0L) AS most", "c", "px"), sinks=[sink], onChange="apply")
    # A count cannot be null otherwise.
    assert sink.nullable == ["shop", "c", "px"]
    driver.close()
    start(spark, home, totals).close()


def test_an_added_aggregate_is_refused_where_another_stage_reads_it(spark: SparkSession, tmp_path: Path) -> None:
    def hourly(*more: Any) -> Query:
        def query(stream: Any) -> Any:
            minutes = stream.withWatermark("ts", "1 second").groupBy(sj.window("ts", "10 seconds"))
            inner = minutes.agg(F.sum("px").alias("px"), *more)
            return inner.groupBy(sj.window("window", "1 hour")).agg(F.sum("px").alias("px"))

        return query

    driver = start(spark, tmp_path, hourly())
    driver.process(ROWS)
    driver.stop()
    driver.close()
    with pytest.raises(sj.ChangedQueryError, match="another stage reads these results"):
        start(spark, tmp_path, hourly(F.max("px").alias("most")), onChange="apply")


def test_the_report_is_in_the_progress_of_the_run(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    lines = [
        json.dumps(dict(zip(("ts", "shop", "px"), row, strict=True))) for row in (("2026-01-01 12:00:01", "n", 3),)
    ]
    (tmp_path / "in" / "0.json").write_text("\n".join(lines))

    def run(*columns: Any, **options: Any) -> Any:
        read = spark.readStream.schema("ts timestamp, shop string, px long").json(f"{tmp_path}/in")
        results = sj.stream(read).groupBy("shop").agg(F.sum("px").alias("px"), *columns)
        writer = results.writeStream.format(CollectingSink()).outputMode("update").trigger(availableNow=True)
        query = writer.options(checkpointLocation=tmp_path / "home", **options).start()
        query.awaitTermination()
        return query.lastProgress

    assert run()["changes"] == []
    (tmp_path / "in" / "1.json").write_text("\n".join(lines))
    progress = run(F.max("px").alias("most"), onChange="apply")
    assert progress["changes"] == ["stage0: aggregate max(px): none → new: null before the cut"]


@pytest.mark.parametrize("given", ["yes", "approve:", "approve:12", "apply:0123456789ab"])
def test_a_wrong_option_is_refused(spark: SparkSession, tmp_path: Path, given: str) -> None:
    with pytest.raises(sj.AnalysisError, match=f'onChange="{given}" is not one of refuse, approve, approve:DIGEST'):
        start(spark, tmp_path, totals, onChange=given)
