"""Columns of the RabbitMQ sink: refused before the start, or before the decision."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F
from pyspark.sql import types as T

from sparkjet.connectors.rabbitmq.columns import check_columns
from sparkjet.connectors.rabbitmq.sink import RabbitSink
from sparkjet.connectors.rabbitmq.sink_settings import RabbitSinkSettings
from sparkjet.errors import AnalysisError, RefusedRowsError
from sparkjet.options import Options
from sparkjet.testing.sink_contract import transaction

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ONE = {"routingKey": "q"}


def settings(**options: str) -> RabbitSinkSettings:
    return RabbitSinkSettings.of(Options(options))


def schema(text: str) -> T.StructType:
    kinds = {
        "string": T.StringType(), "binary": T.BinaryType(), "long": T.LongType(), "timestamp": T.TimestampType(),
        "map": T.MapType(T.StringType(), T.StringType()), "numbers": T.MapType(T.StringType(), T.LongType()),
        "boolean": T.BooleanType(),
    }  # fmt: skip
    parts = [part.split(" ") for part in text.split(", ")]
    return T.StructType([T.StructField(name, kinds[kind]) for name, kind in parts])


def test_what_a_message_has_is_accepted() -> None:
    rest = "content_type string, correlation_id string, type string, timestamp timestamp, headers map"
    check_columns(schema(f"body binary, routing_key string, exchange string, message_id string, {rest}"), settings())
    check_columns(schema("body string, is_early boolean, is_shed boolean"), settings(**_ONE))


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ("value string", _ONE, "the result needs a column body, e.g. select(F.col"),
        ("body string", {}, 'option("routingKey", "…") or a column routing_key'),
        ("body string, queue string", _ONE, "column 'queue' would be dropped; a message has body, routing_key, exch"),
        ("body string, body string", _ONE, "column 'body' would be dropped"),
        ("body long", _ONE, "column 'body' has type bigint, but must have string or binary"),
        ("body string, routing_key binary", {}, "column 'routing_key' has type binary, but must have string"),
        ("body string, timestamp long", _ONE, "column 'timestamp' has type bigint, but must have timestamp"),
        ("body string, headers numbers", _ONE, "column 'headers' has type map<string,bigint>, but must have map<str"),
    ],
)
def test_a_column_that_messages_lack_is_refused(columns: str, options: dict[str, str], message: str) -> None:
    with pytest.raises(AnalysisError, match=re.escape(message)):
        check_columns(schema(columns), settings(**options))


LONG = "repeat('é', 128)"
NO_TEXT = "string(x'ff')"


@pytest.mark.parametrize(
    ("name", "expression", "fault"),
    [
        ("body", "string(null)", "nulls"),
        ("routing_key", "string(null)", "nulls"),
        ("exchange", "string(null)", "nulls"),
        ("routing_key", LONG, "more than 255 bytes"),
        ("message_id", LONG, "more than 255 bytes"),
        ("correlation_id", NO_TEXT, "text that is not UTF-8"),
        ("timestamp", "timestamp'1969-12-31 23:59:59'", "times before 1970"),
        ("headers", "map('a', 'b', 'CC', 'q')", r"keys CC or BCC \(a row for each routing key does what they do\)"),
        ("headers", "map('BCC', string(null))", r"keys CC or BCC \(a row for each routing key does what they do\)"),
        ("headers", "map(repeat('k', 256), 'v')", "keys of more than 255 bytes"),
        ("headers", "map('k', repeat('v', 100000))", "more than 100000 bytes"),
        ("headers", f"map('k', {NO_TEXT})", "text that is not UTF-8"),
    ],
)
def test_what_no_broker_takes_is_refused_before_the_decision(
    spark: SparkSession, tmp_path: Path, name: str, expression: str, fault: str
) -> None:
    sink = RabbitSink(settings())
    sink.attach(tmp_path, spark)
    rows = spark.range(4, numPartitions=2).selectExpr("'b' as body", "'k' as routing_key", "id").where("id > 0")
    rows = rows.withColumn(name, F.expr(expression)).drop("id")
    with pytest.raises(RefusedRowsError, match=f"column '{name}' has {fault}, in 3 rows of the epoch"):
        sink.prepare(rows, transaction(1))
