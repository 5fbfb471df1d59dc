"""Debezium's envelopes in JSON: with the converter's schemas and without, and what becomes of numbers and texts."""

from __future__ import annotations

import base64
import datetime as dt
import json
from decimal import Decimal
from typing import Any

import pytest
from pyspark.sql import types as T

import sparkjet as sj
from sparkjet.connectors.kafka.formats.debezium import DebeziumJsonDecoder

UTC = dt.timezone.utc
AT = dt.datetime(2026, 3, 1, 10, tzinfo=UTC)
MICROS = int(AT.timestamp()) * 1_000_000
SOURCE = {
    "connector": "postgresql",
    "name": "shop",
    "db": "d",
    "schema": "public",
    "table": "t",
    "ts_ms": MICROS // 1000,
}


def decoder(kind: T.DataType, *, is_key: bool = False) -> DebeziumJsonDecoder:
    row = T.StructType([T.StructField("f", kind)])
    column = row if is_key else T.StructType([T.StructField("before", row)])
    return DebeziumJsonDecoder(column, "value.schema", is_key=is_key)


def field(kind: str, name: str | None = None, **more: Any) -> dict[str, Any]:
    return {"type": kind, "optional": True, "field": "f", **({"name": name} if name else {}), **more}


def message(value: Any, schema: dict[str, Any] | None = None, **more: Any) -> bytes:
    payload = {"before": None, "after": {"f": value}, "source": SOURCE, "op": "c", "ts_ms": 1, **more}
    if schema is None:
        return json.dumps(payload).encode()
    row = {"type": "struct", "fields": [schema], "optional": True}
    fields = [{**row, "field": "before"}, {**row, "field": "after"}, {"type": "string", "field": "op"}]
    whole = {"schema": {"type": "struct", "fields": fields, "name": "shop.Envelope"}, "payload": payload}
    # As Connect's converter writes it.
    return json.dumps(whole, separators=(",", ":")).encode()


DECIMAL = {"name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "2"}}


@pytest.mark.parametrize(
    ("kind", "schema", "value", "found"),
    [
        (T.LongType(), field("int64"), 2**60, 2**60),
        (T.IntegerType(), None, 1, 1),
        (T.BooleanType(), None, True, True),
        (T.DoubleType(), None, 1, 1.0),
        (T.DoubleType(), None, "Infinity", float("inf")),
        (T.StringType(), field("string", "io.debezium.data.Uuid"), "u", "u"),
        (T.BinaryType(), field("bytes"), base64.b64encode(b"\xff").decode(), b"\xff"),
        (T.DateType(), field("int32", "io.debezium.time.Date"), 1, dt.date(1970, 1, 2)),
        (T.DateType(), None, 1, dt.date(1970, 1, 2)),
        (T.TimestampType(), field("int64", "io.debezium.time.Timestamp"), MICROS // 1000, AT),
        (T.TimestampNTZType(), field("int64", "io.debezium.time.MicroTimestamp"), MICROS, AT.replace(tzinfo=None)),
        (T.TimestampType(), field("int64", "io.debezium.time.NanoTimestamp"), MICROS * 1000 + 1, AT),
        (T.TimestampType(), field("string", "io.debezium.time.ZonedTimestamp"), "2026-03-01T11:00:00+01:00", AT),
        # With time.precision.mode=isostring.
        (T.DateType(), None, "1970-01-02Z", dt.date(1970, 1, 2)),
        (T.DateType(), field("string", "io.debezium.time.IsoDate"), "1970-01-02Z", dt.date(1970, 1, 2)),
        (T.TimestampType(), None, "2026-03-01T10:00:00.000000000Z", AT),
        (T.LongType(), field("int64", "io.debezium.time.MicroTimestamp"), MICROS, MICROS),
        (T.DecimalType(10, 2), field("bytes", **DECIMAL), "MDk=", Decimal("123.45")),
        (T.StringType(), field("bytes", **DECIMAL), "MDk=", "123.45"),
        (T.DecimalType(10, 2), None, "123.45", Decimal("123.45")),
        (T.DecimalType(10, 2), None, 123.45, Decimal("123.45")),
        (
            T.DecimalType(10, 3),
            field("struct", "io.debezium.data.VariableScaleDecimal", fields=[]),
            {"scale": 2, "value": "MDk="},
            Decimal("123.450"),
        ),
        (T.ArrayType(T.LongType()), field("array", items={"type": "int64"}), [1, None], [1, None]),
        (
            T.ArrayType(T.TimestampType()),
            field("array", items={"type": "int64", "name": "io.debezium.time.MicroTimestamp"}),
            [MICROS, None],
            [AT, None],
        ),
        (T.MapType(T.StringType(), T.LongType()), None, {"a": 1}, [("a", 1)]),
        (
            T.MapType(T.StringType(), T.TimestampType()),
            field("map", values={"type": "int64", "name": "io.debezium.time.MicroTimestamp"}),
            {"a": MICROS},
            [("a", AT)],
        ),
        # Declared as the number or text that comes, it is that one, with a schema or without.
        (T.LongType(), field("int64", "io.debezium.time.Timestamp"), MICROS // 1000, MICROS // 1000),
        (T.LongType(), field("int64", "io.debezium.time.NanoTimestamp"), MICROS * 1000 + 1, MICROS * 1000 + 1),
        (T.StringType(), field("string", "io.debezium.time.ZonedTimestamp"), "2026-03-01T11:00Z", "2026-03-01T11:00Z"),
        (T.StructType([T.StructField("x", T.DoubleType())]), None, {"x": 0.5, "srid": 1}, {"x": 0.5}),
    ],
)
def test_types(kind: T.DataType, schema: dict[str, Any] | None, value: Any, found: Any) -> None:
    array, wrong = decoder(kind).array([message(value, schema), None, message(None, schema)])
    assert not wrong
    first, tombstone, null = array.to_pylist()
    assert (tombstone, null["after"]) == (None, {"f": None})
    got = first["after"]["f"]
    assert found is None or got == found


@pytest.mark.parametrize("schema", [None, field("bytes", **DECIMAL)])
@pytest.mark.parametrize("text", ["12345678901234567890.12", "-5", "1e2"])
def test_a_decimal_that_is_a_number_has_all_of_its_digits(schema: dict[str, Any] | None, text: str) -> None:
    # As decimal.format=NUMERIC writes it; a float has 17 digits.
    given = message("?", schema).replace(b'"?"', text.encode())
    array, wrong = decoder(T.DecimalType(38, 2)).array([given])
    assert not wrong
    assert array.to_pylist()[0]["after"]["f"] == Decimal(text)


def test_an_envelope_says_what_was_done_and_where() -> None:
    plain = decoder(T.LongType())
    deleted = message(1, before={"f": 1}, after=None, op="d", source={**SOURCE, "snapshot": "false", "lsn": 7})
    (row,) = plain.array([deleted])[0].to_pylist()
    assert row == {
        "op": "d",
        "before": {"f": 1},
        "after": None,
        "source": {**SOURCE, "snapshot": "false", "ts_ms": AT},
        "ts_ms": dt.datetime(1970, 1, 1, 0, 0, 0, 1000, tzinfo=UTC),
    }
    (truncated,) = plain.array([json.dumps({"op": "t", "source": SOURCE}).encode()])[0].to_pylist()
    assert (truncated["op"], truncated["before"], truncated["after"]) == ("t", None, None)


def test_a_schema_that_comes_with_each_message_is_read_once_until_it_changes() -> None:
    reads = decoder(T.TimestampType())
    micros, millis = field("int64", "io.debezium.time.MicroTimestamp"), field("int64", "io.debezium.time.Timestamp")
    given = [message(MICROS, micros), message(MICROS, micros), message(MICROS // 1000, millis), message(MICROS, micros)]
    array, wrong = reads.array([*given, message(MICROS, micros) + b"}", message(MICROS, micros)[:-1]])
    assert [row and row["after"]["f"] for row in array.to_pylist()] == [AT, AT, AT, AT, None, None]
    assert [*wrong] == [4, 5]
    # What is behind the schema may have a space before it.
    spaced = message(MICROS, micros).replace(b'"payload":', b'"payload": ')
    assert not reads.array([spaced, spaced])[1]


def test_columns_that_are_new_or_gone() -> None:
    reads = decoder(T.LongType())
    array, wrong = reads.array([message(0, after={"f": 1, "g": 2}), message(0, after={})])
    assert not wrong
    assert [row["after"] for row in array.to_pylist()] == [{"f": 1}, {"f": None}]


@pytest.mark.parametrize(
    ("kind", "value", "told"),
    [
        (T.LongType(), b"{", "it is not JSON"),
        (T.LongType(), b"\xff", "it is not JSON"),
        (T.LongType(), b"[]", "it is not an envelope"),
        (T.LongType(), b'{"id": 1}', "it is not an envelope: it has no op"),
        # The row itself, of a table with a column op.
        (T.LongType(), b'{"id": 1, "op": "c"}', "it is not an envelope: it has neither before nor after"),
        (T.LongType(), message("1"), "'1' is not of type int"),
        (T.LongType(), message(True), "True is not of type int"),
        (T.IntegerType(), message(2**40), "a value does not fit"),
        (T.StringType(), message(1), "1 is not of type str"),
        (T.ArrayType(T.StringType()), message("ab"), "'ab' is not of type list"),
        (T.TimestampType(), message(5), "nothing says what it counts: declare bigint"),
        (T.DecimalType(5, 2), message("MDk="), "decimal.handling.mode=string"),
        (T.DecimalType(5, 2), message("0.001"), "a value does not fit"),
        (T.TimestampType(), message("x", field("int64", "io.debezium.time.NanoTimestamp")), "not what its schema says"),
        (T.LongType(), message(1, after=5), "is not of type dict"),
    ],
)
def test_malformed_messages(kind: T.DataType, value: bytes, told: str) -> None:
    array, wrong = decoder(kind).array([value, None])
    assert array.to_pylist() == [None, None]
    assert told in wrong[0].message


def test_keys_are_rows_without_an_envelope() -> None:
    keys = decoder(T.LongType(), is_key=True)
    with_schema = {"schema": {"type": "struct", "fields": [field("int64")]}, "payload": {"f": 2}}
    array, wrong = keys.array([b'{"f": 1}', json.dumps(with_schema).encode(), b"1"])
    assert array.to_pylist() == [{"f": 1}, {"f": 2}, None]
    assert wrong[2].message == "it is not a row"


def test_columns_that_json_has_no_values_of_are_refused() -> None:
    with pytest.raises(sj.AnalysisError, match=r"value.schema: no value of JSON is interval"):
        decoder(T.DayTimeIntervalType())
    row = T.StructType([T.StructField("id", T.LongType(), nullable=False)])
    with pytest.raises(sj.AnalysisError, match="leave NOT NULL out of id"):
        DebeziumJsonDecoder(row, "key.schema", is_key=True)
