"""Columns of a message: which rows are messages, and what of them no message can have."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from sparkjet.catalyst.columns import IS_EARLY, IS_SHED
from sparkjet.connectors.artemis.columns import COLUMNS, faults, frames, messages
from sparkjet.connectors.artemis.stomp_frames import Frame
from sparkjet.errors import AnalysisError

TEXT, MAP = T.StringType(), T.MapType(T.StringType(), T.StringType())


def schema(**columns: T.DataType) -> T.StructType:
    return T.StructType([T.StructField(name, kind) for name, kind in columns.items()])


def test_what_the_source_reads_the_sink_takes() -> None:
    COLUMNS.check(schema(body=T.BinaryType()))
    COLUMNS.check(schema(body=TEXT, correlation_id=TEXT, reply_to=TEXT, type=TEXT, content_type=TEXT, properties=MAP))
    COLUMNS.check(schema(body=TEXT, **{IS_EARLY: T.BooleanType()}))


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"value": TEXT}, "the result needs a column body"),
        ({"body": TEXT, "sym": TEXT}, "column 'sym' would be dropped"),
        ({"body": T.LongType()}, "column 'body' has type bigint, but must have string or binary"),
        ({"body": TEXT, "type": T.BinaryType()}, "column 'type' has type binary, but must have string"),
        ({"body": TEXT, "properties": T.MapType(TEXT, T.LongType())}, "must have map<string,string>"),
    ],
)
def test_other_rows_are_refused(columns: Mapping[str, T.DataType], message: str) -> None:
    with pytest.raises(AnalysisError, match=re.escape(message)):
        COLUMNS.check(schema(**columns))


def test_rows_become_frames() -> None:
    batch = pa.record_batch(
        {
            "body": pa.array(["ü", None]),
            "correlation_id": pa.array(["c", None]),
            "properties": pa.array([[("a", "1")], None], pa.map_(pa.string(), pa.string())),
        }
    )
    assert list(frames(batch, {"destination": "q"})) == [
        Frame("SEND", {"destination": "q", "a": "1", "correlation-id": "c"}, "ü".encode()),
        Frame("SEND", {"destination": "q"}),
    ]


def test_bytes_have_a_length() -> None:
    batch = pa.record_batch({"body": pa.array([b"\0\1", None], pa.binary())})
    assert list(frames(batch, {})) == [
        Frame("SEND", {"content-length": "2"}, b"\0\1"),
        Frame("SEND", {"content-length": "0"}),
    ]


REFUSED: list[tuple[dict[str, Any], str | None]] = [
    ({"body": "a\0"}, "column 'body' has the character NUL"),
    ({"type": "\0"}, "column 'type' has the character NUL"),
    ({"properties": {"a": "\0"}}, "a property has the character NUL"),
    ({"properties": {"\0": "a"}}, "a property has the character NUL"),
    ({"properties": {"destination": "elsewhere"}}, "a property is called"),
    ({"properties": {"_AMQ_DUPL_ID": "1"}}, "a property is called"),
    ({"properties": {"": "1"}}, "a property is called"),
    ({"body": None, "type": None, "properties": None}, None),
    ({"properties": {"a": None, "AMQ": "x", "number": "\n:\\"}}, None),
]


def test_what_the_broker_would_refuse_is_found(spark: SparkSession) -> None:
    of = schema(body=TEXT, type=TEXT, properties=MAP)
    rows = [{"body": "b", "type": "t", "properties": {"p": "v"}, **row} for row, _ in REFUSED]
    texts, conditions = zip(*faults(of), strict=True)
    # A filter takes a condition that is null for false.
    judged = (
        spark.createDataFrame(rows, of).coalesce(1).select(*(F.coalesce(each, F.lit(False)) for each in conditions))
    )
    for (row, expected), verdicts in zip(REFUSED, judged.collect(), strict=True):
        found = [text for text, verdict in zip(texts, verdicts, strict=True) if verdict]
        assert [fault[: len(expected or "")] for fault in found] == ([] if expected is None else [expected]), row


def test_properties_are_stored_without_nulls_and_with_whether_a_row_is_early(spark: SparkSession) -> None:
    of = schema(body=TEXT, properties=MAP, **{IS_EARLY: T.BooleanType()})
    rows = spark.createDataFrame([("a", {"p": "v", "n": None}, True), ("b", None, False)], of)
    assert [row.asDict() for row in messages(rows).collect()] == [
        {"body": "a", "properties": {"p": "v", IS_EARLY: "true"}},
        {"body": "b", "properties": {IS_EARLY: "false"}},
    ]
    marked = schema(body=TEXT, **{IS_SHED: T.BooleanType(), IS_EARLY: T.BooleanType()})
    COLUMNS.check(marked)
    assert messages(spark.createDataFrame([("a", False, True)], marked)).first() == (
        "a",
        {IS_EARLY: "true", IS_SHED: "false"},
    )
