"""Avro: every type, schemas that are resolved, and bytes that are not what they should be."""

from __future__ import annotations

import datetime as dt
import io
import json
import struct
import uuid
from decimal import Decimal
from functools import partial
from typing import Any

import fastavro
import pytest
from pyspark.sql.types import StructField, StructType

import sparkjet as sj
from sparkjet.connectors.kafka.formats.avro import AvroDecoder
from sparkjet.connectors.kafka.formats.debezium import DebeziumJsonDecoder, envelope_of
from sparkjet.connectors.kafka.formats.decoding import tell
from sparkjet.connectors.kafka.formats.registry import Registered, Registry, _kept
from tests.servers.schema_registry import SchemaRegistry

UTC = dt.timezone.utc
AT = dt.datetime(2026, 3, 1, 10, 0, 0, 123_000, tzinfo=UTC)
FIELD = "f"
EMPTY: dict[str, Any] = {"type": "record", "name": "R", "fields": []}
ENUM = {"type": "enum", "name": "E", "symbols": ["X", "Y"]}
NAMED = {"type": "record", "name": "n.A", "fields": [{"name": "a", "type": "int"}]}
OTHER = {"type": "record", "name": "B", "fields": [{"name": "b", "type": "int"}]}


def record(kind: Any, **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": FIELD, "type": kind, **more}]}


def encoded(schema: Any, value: Any, number: int = 1) -> bytes:
    data = io.BytesIO()
    fastavro.schemaless_writer(data, fastavro.parse_schema(schema), value)
    return b"\0" + number.to_bytes(4, "big") + data.getvalue()


def decoder(writer: Any, reader: Any) -> AvroDecoder:
    with SchemaRegistry() as server:
        server.register("w", writer)
        registry = Registry(server.url, 0.0)
        # Another server may have had its port before.
        _kept.cache_clear()
        # Kept by the process, so that it is there when the server is not.
        registry.schema(1)
    return AvroDecoder(registry, Registered(json.dumps(reader), "AVRO", 0), "value.schema")


def logical(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": name, **more}


def fixed(name: str, size: int, **more: Any) -> dict[str, Any]:
    return {"type": "fixed", "name": name, "size": size, **more}


def connect(kind: str, name: str) -> dict[str, Any]:
    return {"type": kind, "connect.version": 1, "connect.name": name}


@pytest.mark.parametrize(
    ("kind", "value", "column", "found"),
    [
        ("boolean", True, "boolean", True),
        ("int", -3, "int", -3),
        ("long", 2**62, "bigint", 2**62),
        ("float", 0.5, "float", 0.5),
        ("double", 0.1, "double", 0.1),
        ("bytes", b"\xff", "binary", b"\xff"),
        ("string", "é", "string", "é"),
        ("null", None, "void", None),
        (fixed("F", 2), b"ab", "binary", b"ab"),
        ({"type": "enum", "name": "E", "symbols": ["X", "Y"]}, "Y", "string", "Y"),
        ({"type": "array", "items": ["null", "int"]}, [1, None], "array<int>", [1, None]),
        ({"type": "map", "values": NAMED}, {"k": {"a": 1}}, "map<string,struct<a:int>>", [("k", {"a": 1})]),
        (["null", NAMED], {"a": 1}, "struct<a:int>", {"a": 1}),
        (["null", NAMED], None, "struct<a:int>", None),
        (["null", "int", "long"], 5, "bigint", 5),
        (["float", "double"], 0.5, "double", 0.5),
        (
            ["null", "string", NAMED, fixed("F", 2)],
            ("n.A", {"a": 1}),
            "struct<member0:string,member1:struct<a:int>,member2:binary>",
            {"member0": None, "member1": {"a": 1}, "member2": None},
        ),
        (["null", "string", "int"], None, "struct<member0:string,member1:int>", None),
        (logical("bytes", "decimal", precision=38, scale=2), Decimal("-1e35"), "decimal(38,2)", Decimal("-1e35")),
        (fixed("F", 8, logicalType="decimal", precision=9, scale=3), Decimal("1.5"), "decimal(9,3)", Decimal("1.5")),
        (logical("int", "date"), dt.date(2026, 3, 1), "date", dt.date(2026, 3, 1)),
        (logical("int", "time-millis"), dt.time(0, 0, 1), "int", 1000),
        (logical("long", "time-micros"), dt.time(0, 0, 1), "bigint", 1_000_000),
        (logical("long", "timestamp-millis"), AT, "timestamp", AT),
        (logical("long", "timestamp-micros"), AT, "timestamp", AT),
        (logical("long", "timestamp-nanos"), 1_772_359_200_123_000_999, "timestamp", AT),
        (logical("long", "local-timestamp-millis"), AT.replace(tzinfo=None), "timestamp_ntz", AT.replace(tzinfo=None)),
        (logical("long", "local-timestamp-micros"), AT.replace(tzinfo=None), "timestamp_ntz", AT.replace(tzinfo=None)),
        (logical("string", "uuid"), uuid.UUID(int=7), "string", str(uuid.UUID(int=7))),
        (fixed("F", 16, logicalType="uuid"), uuid.UUID(int=7).bytes, "string", str(uuid.UUID(int=7))),
        (
            fixed("F", 12, logicalType="duration"),
            struct.pack("<III", 1, 2, 2**32 - 1),
            "struct<months:bigint,days:bigint,milliseconds:bigint>",
            {"months": 1, "days": 2, "milliseconds": 2**32 - 1},
        ),
        (connect("int", "io.debezium.time.Date"), 1, "date", dt.date(1970, 1, 2)),
        (connect("long", "io.debezium.time.MicroTimestamp"), 1, "timestamp_ntz", dt.datetime(1970, 1, 1, 0, 0, 0, 1)),
        (connect("long", "io.debezium.time.Timestamp"), 1, "timestamp_ntz", dt.datetime(1970, 1, 1, 0, 0, 0, 1000)),
        (connect("string", "io.debezium.time.ZonedTimestamp"), "2026-03-01T10:00:00.123Z", "timestamp", AT),
        (connect("long", "io.debezium.time.MicroTime"), 1, "bigint", 1),
        (
            {
                "type": "record",
                "name": "VariableScaleDecimal",
                "connect.name": "io.debezium.data.VariableScaleDecimal",
                "fields": [{"name": "scale", "type": "int"}, {"name": "value", "type": "bytes"}],
            },
            {"scale": 2, "value": b"\x30\x39"},
            "string",
            "123.45",
        ),
    ],
)
def test_types(kind: Any, value: Any, column: str, found: Any) -> None:
    schema = record(kind)
    reads = decoder(schema, schema)
    array, wrong = reads.array([encoded(schema, {FIELD: value}), None])
    assert not wrong
    assert reads.shape.spark.simpleString() == f"struct<{FIELD}:{column}>"
    assert array.to_pylist() == [{FIELD: found}, None]


@pytest.mark.parametrize(
    ("wrote", "value", "reads", "found"),
    [
        (record("int"), {FIELD: 1}, record("double"), {FIELD: 1.0}),
        (record("string"), {FIELD: "a"}, record(["null", "string"]), {FIELD: "a"}),
        (record(["null", NAMED]), {FIELD: {"a": 1}}, record(NAMED), {FIELD: {"a": 1}}),
        (record("int", aliases=["g"]), {FIELD: 1}, record("int"), {FIELD: 1}),
        (
            {"type": "record", "name": "R", "fields": [{"name": "old", "type": "int"}]},
            {"old": 1},
            record("int", aliases=["old"]),
            {FIELD: 1},
        ),
        (EMPTY, {}, record("bytes", default="\u00ff"), {FIELD: b"\xff"}),
        (EMPTY, {}, record(NAMED, default={"a": 3}), {FIELD: {"a": 3}}),
        (
            record({"type": "enum", "name": "E", "symbols": ["X", "Z"]}),
            {FIELD: "Z"},
            record({"type": "enum", "name": "E", "symbols": ["X"], "default": "X"}),
            {FIELD: "X"},
        ),
        # Its writer knows no union, so its fields say which one it is.
        (
            record(NAMED),
            {FIELD: {"a": 1}},
            record([NAMED, OTHER]),
            {FIELD: {"member0": {"a": 1}, "member1": None}},
        ),
        # A value is in one member of a union, and only in one.
        (record(ENUM), {FIELD: "X"}, record([ENUM, "int"]), {FIELD: {"member0": "X", "member1": None}}),
        (
            record(NAMED),
            {FIELD: {"a": 1}},
            record([{"type": "map", "values": "int"}, NAMED]),
            {FIELD: {"member0": None, "member1": {"a": 1}}},
        ),
        (
            record([NAMED, {**OTHER, "name": "o.A"}]),
            {FIELD: ("o.A", {"b": 1})},
            record([NAMED, {**OTHER, "name": "o.A"}]),
            {FIELD: {"member0": None, "member1": {"b": 1}}},
        ),
        *(
            (
                record(["int", "long", "string"]),
                {FIELD: value},
                record(["int", "long", "string"]),
                {FIELD: {"member0": None, "member1": value, "member2": None}},
            )
            for value in (1, 2**40)
        ),
        # Defaults are what reading them would have given.
        (EMPTY, {}, record(["double", "string"], default=0), {FIELD: {"member0": 0.0, "member1": None}}),
        (EMPTY, {}, record([fixed("F", 1), "int"], default="\u00ff"), {FIELD: {"member0": b"\xff", "member1": None}}),
        (EMPTY, {}, record(["double", "null"], default=None), {FIELD: None}),
        (
            EMPTY,
            {},
            record(
                {"type": "map", "values": {**OTHER, "fields": [{"name": "b", "type": "int", "default": 7}]}},
                default={"k": {}},
            ),
            {FIELD: [("k", {"b": 7})]},
        ),
        # Avro ignores what it does not know; and this is what a decimal of too many digits is to be read as.
        (record(logical("long", "mine")), {FIELD: 1}, record("long"), {FIELD: 1}),
        (
            record(logical("bytes", "decimal", precision=50, scale=2)),
            {FIELD: Decimal(1)},
            record("bytes"),
            {FIELD: b"d"},
        ),
    ],
)
def test_schemas_are_resolved(wrote: Any, value: Any, reads: Any, found: Any) -> None:
    array, wrong = decoder(wrote, reads).array([encoded(wrote, value)])
    assert not wrong
    assert array.to_pylist() == [found]


@pytest.mark.parametrize(
    ("wrote", "value", "reads", "told"),
    [
        (record("string"), "a", record("int"), "SchemaResolutionError"),
        (EMPTY, None, record("int"), "SchemaResolutionError"),
        # Each would be read as a wrong number, without an error.
        (
            record(logical("long", "timestamp-millis")),
            AT,
            record(logical("long", "timestamp-micros")),
            "value.f is timestamp-millis, and is read as timestamp-micros",
        ),
        (
            record("long"),
            5,
            record(["null", logical("long", "timestamp-millis")]),
            "value.f is long, and is read as time",
        ),
        # Neither branch is the other's, and Avro takes an int for a long, a text for bytes.
        (
            record(["null", logical("int", "date")]),
            AT.date(),
            record(["null", logical("long", "timestamp-millis")]),
            "value.f is date, and is read as timestamp-millis",
        ),
        (
            record(["null", "string"]),
            "12",
            record(["null", logical("bytes", "decimal", precision=9, scale=2)]),
            "value.f is string, and is read as a decimal",
        ),
        (
            record({**NAMED, "name": "n.C"}),
            {"a": 1},
            record([NAMED, {**NAMED, "name": "n.C"}]),
            "value.f is record n.C, which no value tells from others of its union",
        ),
        (
            record(["null", {**NAMED, "fields": [{"name": "a", "type": logical("int", "date")}]}]),
            {"a": AT.date()},
            record(["null", {**NAMED, "name": "o.A"}]),
            "value.f.a is date, and is read as int",
        ),
        (
            record({"type": "array", "items": logical("bytes", "decimal", precision=9, scale=2)}),
            [Decimal(1)],
            record({"type": "array", "items": logical("bytes", "decimal", precision=9, scale=3)}),
            "value.f is a decimal with 2 decimal places, and is read as a decimal with 3",
        ),
        (
            record(logical("bytes", "decimal", precision=9, scale=0)),
            Decimal(10**8),
            record(logical("bytes", "decimal", precision=3, scale=0)),
            "a value does not fit: ",
        ),
    ],
)
def test_schemas_that_are_incompatible(wrote: Any, value: Any, reads: Any, told: str) -> None:
    empty = wrote == EMPTY
    array, wrong = decoder(wrote, reads).array([encoded(wrote, {} if empty else {FIELD: value}), None])
    assert array.to_pylist() == [None, None]
    assert [*wrong] == [0]
    assert wrong[0].schema == 1
    assert told in wrong[0].message


def test_fields_that_are_not_read_are_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    tell.cache_clear()
    wrote = {"type": "record", "name": "R", "fields": [{"name": "tip", "type": "int"}, {"name": FIELD, "type": "int"}]}
    for _ in range(2):
        decoder(wrote, record("int")).array([encoded(wrote, {FIELD: 1, "tip": 2})] * 2)
    assert [each.getMessage() for each in caplog.records] == [
        "sparkjet-kafka: fields of schema 1 that are not read: tip"
    ]


def test_bytes_that_are_none_of_the_schema_take_no_other_record_with_them() -> None:
    schema = record("string")
    good = encoded(schema, {FIELD: "a"})
    array, wrong = decoder(schema, schema).array(
        [good, b"", b"{}", good[:-1], good + b"!", good[:5] + b"\x02\xff", good]
    )
    assert [row and row[FIELD] for row in array.to_pylist()] == ["a", None, None, None, None, None, "a"]
    assert [*wrong] == [1, 2, 3, 4, 5]
    assert "with nothing" in wrong[1].message
    assert "with 7b 7d" in wrong[2].message
    assert wrong[4].message == "1 bytes are left after it"


def test_a_schema_that_the_registry_does_not_have() -> None:
    with SchemaRegistry() as server:
        reads = AvroDecoder(Registry(server.url, 0.0), Registered(json.dumps(record("int")), "AVRO", 0), "value.schema")
        message = b"\0\0\0\0\x63"
        _, wrong = reads.array([message, message])
        assert "has no /schemas/ids/99" in wrong[1].message
        # Once for a task, whatever comes.
        assert len(server.asked) == 1
        # What only looks like a number is not asked for: the registry would take it for another path.
        _, wrong = reads.array([b"\0\xff\xff\xff\xff"])
        assert "begins with 4294967295, which no registry has" in wrong[0].message
        server.broken = 503
        with pytest.raises(sj.SourceError, match="answers 503"):
            reads.array([b"\0\0\0\0\x62"])


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        (record("Nothing"), "value.schema: not an Avro schema"),
        (record("R"), "R contains itself"),
        (record([logical("int", "date"), "long"]), "a union of date and long: a value does not tell"),
        (record(logical("bytes", "decimal", precision=39, scale=0)), "a decimal of 39 digits; Spark has 38"),
    ],
)
def test_a_schema_that_nothing_can_be_read_with_is_refused(schema: Any, told: str) -> None:
    with pytest.raises(sj.AnalysisError, match=told):
        AvroDecoder(Registry("http://127.0.0.1:1", 0.0), Registered(json.dumps(schema), "AVRO", 0), "value.schema")


def test_an_envelope_of_debezium_has_the_columns_that_its_json_has() -> None:
    row = {"type": "record", "name": "Value", "namespace": "shop.items", "fields": [{"name": "id", "type": "int"}]}
    origin = [{"name": name, "type": "string"} for name in ("version", "connector", "name", "db", "table")]
    origin += [{"name": "ts_ms", "type": "long"}, {"name": "schema", "type": ["null", "string"], "default": None}]
    source = {"type": "record", "name": "Source", "namespace": "io.debezium.connector.mysql", "fields": origin}
    fields = [
        {"name": "before", "type": ["null", row], "default": None},
        {"name": "after", "type": ["null", "shop.items.Value"], "default": None},
        {"name": "source", "type": source},
        {"name": "op", "type": "string"},
        {"name": "ts_ms", "type": ["null", "long"], "default": None},
        {"name": "transaction", "type": ["null", "string"], "default": None},
    ]
    schema = {"type": "record", "name": "Envelope", "namespace": "shop.items", "fields": fields}
    given = {"version": "3", "connector": "mysql", "name": "shop", "db": "d", "table": "items", "ts_ms": 1}
    with SchemaRegistry() as server:
        _kept.cache_clear()
        server.register("w", schema)
        text = Registered(json.dumps(schema), "AVRO", 0)
        narrowed = partial(envelope_of, option="value.format")
        reads = AvroDecoder(Registry(server.url, 0.0), text, "value.schema", narrowed)
        array, wrong = reads.array(
            [encoded(schema, {"op": "u", "before": {"id": 1}, "after": {"id": 2}, "source": given})]
        )
        plain = Registered(json.dumps(row), "AVRO", 0)
        with pytest.raises(
            sj.AnalysisError, match=r"value.format=debezium-avro: the schema is not that of an envelope"
        ):
            AvroDecoder(Registry(server.url, 0.0), plain, "value.schema", narrowed)
    assert not wrong
    told = {"connector": "mysql", "name": "shop", "db": "d", "schema": None, "table": "items", "snapshot": None}
    ts_ms = dt.datetime(1970, 1, 1, 0, 0, 0, 1000, tzinfo=UTC)
    assert array.to_pylist() == [
        {"op": "u", "before": {"id": 1}, "after": {"id": 2}, "source": {**told, "ts_ms": ts_ms}, "ts_ms": None}
    ]
    before = reads.shape.spark["before"].dataType
    assert reads.shape.spark == shape_of_json(before).spark


def shape_of_json(row: Any) -> Any:
    return DebeziumJsonDecoder(StructType([StructField("before", row)]), "value.schema", is_key=False).shape
