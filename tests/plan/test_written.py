"""Tables as histories: what their commits say of a stream, and what they cannot say."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import types as T

import sparkjet as sj
from sparkjet.errors import AnalysisError
from sparkjet.plan.backfill import begins_of
from sparkjet.plan.written import Committed, Written, WrittenDelta, last_offsets

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BEGINS = {"a/0/": 0, "a/1/": 3, "b/0/": 0, "0/": 0, "1/": 3}


def committed(*offsets: Any) -> Committed:
    return Committed("7", {str(number): json.dumps(each) for number, each in enumerate(offsets)})


PARTITION, TOPIC = {"partition": T.IntegerType()}, {"topic": T.StringType()}


def test_the_last_offset_is_the_one_before_the_end_of_a_batch() -> None:
    of_topics = committed({"a": {"0": 5, "1": 3}, "b": {"0": 0}})
    assert last_offsets(of_topics, TOPIC | PARTITION, BEGINS) == {"a/0/": 4, "a/1/": 2, "b/0/": -1}
    assert last_offsets(committed({"a": {"0": 5}}), PARTITION, BEGINS) == {"0/": 4}
    carrying = {"source": "kafka", "offsets": {"a": {"0": 5}}, "watermarks": {"a": {"0": 1}}}
    assert last_offsets(committed(carrying), TOPIC | PARTITION, BEGINS) == {"a/0/": 4}


def test_substreams_have_the_names_that_their_rows_have() -> None:
    # As Backfill._key: of one partition "a/b", of "b" in "a", and of one with a backslash.
    offsets = {"a/b": 5, "a": {"b": 6}, "a\\": {"/": 7}}
    begins = begins_of([json.dumps(offsets)])
    assert begins == {"a\\/b/": 5, "a/b/": 6, "a\\\\/\\//": 7}
    assert last_offsets(committed({"a/b": 5}), TOPIC, begins) == {"a\\/b/": 4}
    carrying = {"source": "kafka", "offsets": {"a": {"0": 5}}, "watermarks": {"a": {"0": 1}}}
    assert begins_of([json.dumps(carrying), '{"b": 7}', "7"]) == {"a/0/": 5, "0/": 5, "b/": 7}


@pytest.mark.parametrize(
    ("offsets", "columns", "message"),
    [
        ([{"a": {"0": 5}}, {"b": {"0": 5}}], PARTITION, "its query reads 2 sources"),
        # Both are partition 0.
        ([{"a": {"0": 5}, "b": {"0": 5}}], PARTITION, "has read 'b/0' up to 5"),
        ([{"a": {"9": 5}}], PARTITION, "has read 'a/9' up to 5, and the substreams of the stream by partition are 0, "),
        ([{"logOffset": 5}], PARTITION, "has read 'logOffset' up to 5"),
        ([{"0": None}], PARTITION, "has read '0' up to None"),
        # No row of the stream would have these names.
        ([{"0": 5}], {}, "has read '0' up to 5, and the substreams of the stream by  are"),
        ([{"0": 5}], TOPIC | PARTITION, "has read '0' up to 5, and the substreams of the stream by topic, partition"),
        ([{"a": {"0": 5}}], PARTITION | TOPIC, "has read 'a/0' up to 5, and the substreams of the stream by partition"),
        ([{"0": 5}], {"partition": T.DoubleType()}, "has read '0' up to 5"),
        ([{"0": 5}], {"partition": T.BooleanType()}, "has read '0' up to 5"),
    ],
)
def test_what_is_not_of_the_stream_is_named(offsets: list[Any], columns: dict[str, Any], message: str) -> None:
    with pytest.raises(AnalysisError, match=message):
        last_offsets(committed(*offsets), columns, BEGINS)


@dataclass(frozen=True)
class Table(Written):
    told: list[dict[str, Any]] = field(default_factory=list)
    others: tuple[str, ...] = ()

    def _newest(self) -> Committed:
        return self._of("7", self.told, self.others)

    def at(self, version: str) -> DataFrame:
        raise NotImplementedError


def test_a_delta_table_is_found_by_its_path_and_by_its_name(
    tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    here = tmp_path.as_posix()
    for place, name in (
        ("lake.`my-table`", "lake.`my-table`"),
        ("`a/b`", "`a/b`"),
        ("/lake/a `b` é", "delta.`/lake/a ``b`` é`"),
        ("s3a://lake/clicks", "delta.`s3a://lake/clicks`"),
        ("file:/lake/clicks", "delta.`file:/lake/clicks`"),
        # Spark looks for these as tables.
        ("./clicks", f"delta.`{here}/clicks`"),
        (Path("clicks"), f"delta.`{here}/clicks`"),
    ):
        table = sj.written("delta", place)
        assert isinstance(table, WrittenDelta)
        assert table._name == name
    for kind in ("delta", "iceberg"):
        with pytest.raises(AnalysisError, match="history: no-table cannot be looked up as a table of this format: "):
            sj.written(kind, "no-table").newest()


def told(query: str = "q", **more: Any) -> dict[str, Any]:
    return {"query": query, "output": "results", **more}


def test_the_newest_commit_that_tells_offsets_counts() -> None:
    of: Any = None
    newest = Table(of, "t", [told(), told(offsets={"0": "y"}), told(offsets={"0": "x"})]).newest()
    assert newest == ("7", {"0": "y"})
    for table, message in (
        (Table(of, "t", [told(offsets={"0": "y"}), told("p")]), r"several writers \(p/results, q/results\)"),
        (Table(of, "t", [told(offsets={"0": "y"})], ("WRITE by Spark",)), "several writers .WRITE by Spark, q"),
        (Table(of, "t", [told()]), "no commit of t says up to which offsets"),
        (Table(of, "t"), "no commit of t says up to which offsets"),
    ):
        with pytest.raises(AnalysisError, match=message):
            table.newest()
