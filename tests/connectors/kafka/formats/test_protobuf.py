"""Protobuf: every type, messages of other versions, and both framings."""

from __future__ import annotations

import base64
import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory
from google.protobuf.descriptor_pb2 import FieldDescriptorProto

import sparkjet as sj
from sparkjet.connectors.kafka.formats.protobuf import ProtobufDecoder, descriptors_of
from sparkjet.connectors.kafka.formats.registry import Registered, Registry, _kept
from tests.servers.schema_registry import SchemaRegistry

GOOGLE = ".google.protobuf."


def field(name: str, kind: str, number: int = 1, **more: Any) -> FieldDescriptorProto:
    named = kind.startswith(".")
    given = {"name": name, "number": number, "label": "LABEL_OPTIONAL", **more}
    given |= {"typeName": kind} if named else {"type": f"TYPE_{kind.upper()}"}
    return json_format.ParseDict(given, FieldDescriptorProto())


def file(*fields: FieldDescriptorProto, name: str = "Order") -> descriptor_pb2.FileDescriptorProto:
    side = {"name": "Side", "value": [{"name": "NONE", "number": 0}, {"name": "BUY", "number": 1}]}
    pair = [{"name": "key", "number": 1, "type": "TYPE_STRING"}, {"name": "value", "number": 2, "type": "TYPE_INT32"}]
    entry = {"name": "TagsEntry", "options": {"mapEntry": True}, "field": pair}
    known = ("timestamp", "duration", "wrappers", "struct")
    made = {
        "name": "orders.proto",
        "package": "shop",
        "syntax": "proto3",
        "dependency": [f"google/protobuf/{each}.proto" for each in known],
        "enumType": [side],
        "messageType": [
            {"name": name, "nestedType": [entry]},
            {"name": "Line", "field": [{"name": "n", "number": 1, "type": "TYPE_INT32"}]},
        ],
    }
    found = json_format.ParseDict(made, descriptor_pb2.FileDescriptorProto())
    found.message_type[0].field.extend(fields)
    if any(each.proto3_optional or each.HasField("oneof_index") for each in fields):
        found.message_type[0].oneof_decl.add(name="_f")
    return found


def message(made: descriptor_pb2.FileDescriptorProto, value: dict[str, Any]) -> bytes:
    pool = descriptor_pool.DescriptorPool()
    for each in made.dependency:
        pool.AddSerializedFile(descriptor_pool.Default().FindFileByName(each).serialized_pb)
    pool.AddSerializedFile(made.SerializeToString())
    kind = message_factory.GetMessageClass(pool.FindMessageTypeByName(f"shop.{made.message_type[0].name}"))
    return bytes(json_format.ParseDict(value, kind(), descriptor_pool=pool).SerializeToString())


def registered(made: descriptor_pb2.FileDescriptorProto) -> Registered:
    return Registered(base64.b64encode(made.SerializeToString()).decode(), "PROTOBUF", 1)


@pytest.mark.parametrize(
    ("kind", "more", "value", "column", "found"),
    [
        ("int32", {}, -1, "int", -1),
        ("sint64", {}, -(2**40), "bigint", -(2**40)),
        ("uint32", {}, 2**32 - 1, "bigint", 2**32 - 1),
        ("fixed64", {}, 2**64 - 1, "decimal(20,0)", Decimal(2**64 - 1)),
        ("bool", {}, True, "boolean", True),
        ("float", {}, 0.5, "float", 0.5),
        ("double", {}, 0.1, "double", 0.1),
        ("string", {}, "é", "string", "é"),
        ("bytes", {}, "/w==", "binary", b"\xff"),
        (".shop.Side", {}, "BUY", "string", "BUY"),
        (".shop.Side", {}, 7, "string", "7"),
        (".shop.Line", {}, {"n": 1}, "struct<n:int>", {"n": 1}),
        (".shop.Line", {}, None, "struct<n:int>", None),
        ("int32", {}, None, "int", 0),
        ("int32", {"proto3Optional": True, "oneofIndex": 0}, None, "int", None),
        ("int32", {"proto3Optional": True, "oneofIndex": 0}, 0, "int", 0),
        ("string", {"oneofIndex": 0}, None, "string", None),
        ("int32", {"label": "LABEL_REPEATED"}, [1, 2], "array<int>", [1, 2]),
        (".shop.Line", {"label": "LABEL_REPEATED"}, [{"n": 1}], "array<struct<n:int>>", [{"n": 1}]),
        (".shop.Order.TagsEntry", {"label": "LABEL_REPEATED"}, {"a": 1}, "map<string,int>", [("a", 1)]),
        (
            f"{GOOGLE}Timestamp",
            {},
            "2026-03-01T10:00:00.000001Z",
            "timestamp",
            dt.datetime(2026, 3, 1, 10, 0, 0, 1, tzinfo=dt.timezone.utc),
        ),
        (f"{GOOGLE}Timestamp", {}, None, "timestamp", None),
        (f"{GOOGLE}Duration", {}, "-1.5s", "interval day to second", dt.timedelta(seconds=-1.5)),
        (f"{GOOGLE}Int64Value", {}, 0, "bigint", 0),
        (f"{GOOGLE}StringValue", {}, None, "string", None),
        (f"{GOOGLE}Struct", {}, {"a": [1]}, "string", '{"a": [1.0]}'),
    ],
)
def test_types(kind: str, more: dict[str, Any], value: Any, column: str, found: Any) -> None:
    made = file(field("f", kind, **more))
    reads = ProtobufDecoder(None, registered(made), "shop.Order", "value.format")
    assert reads.shape.spark.simpleString() == f"struct<f:{column}>"
    array, wrong = reads.array([message(made, {} if value is None else {"f": value}), None])
    assert not wrong
    assert array.to_pylist() == [{"f": found}, None]


@pytest.fixture
def server() -> Iterator[SchemaRegistry]:
    _kept.cache_clear()
    # Its schemas are descriptors already: nothing here has protoc.
    with SchemaRegistry(serialized=base64.b64decode) as server:
        yield server


def test_messages_of_other_versions(server: SchemaRegistry) -> None:
    reader = file(field("id", "int64"), field("note", "string", 2))
    reads = ProtobufDecoder(Registry(server.url, 0.0), registered(reader), None, "value.format")

    def framed(made: descriptor_pb2.FileDescriptorProto, value: dict[str, Any], indexes: bytes = b"\0") -> bytes:
        number = server.register("orders-value", registered(made).text, schemaType="PROTOBUF")
        return b"\0" + number.to_bytes(4, "big") + indexes + message(made, value)

    more = file(field("id", "int64"), field("note", "string", 2), field("tip", "double", 3))
    wider, gone = file(field("id", "int32"), field("note", "bytes", 2)), file(field("id", "int64"))
    other, twisted = file(field("id", "int64"), name="Refund"), file(field("id", "sint64"), field("note", "string", 2))
    texts = file(field("id", "string"), field("note", "string", 2))
    given = [
        framed(reader, {"id": 1, "note": "a"}),
        framed(more, {"id": 2, "note": "b", "tip": 0.5}),
        framed(wider, {"id": 3, "note": "Yw=="}),
        framed(gone, {"id": 4}),
        framed(other, {"id": 5}),
        framed(twisted, {"id": 6}),
        framed(texts, {"id": "7"}),
        # Two positions of which the second is missing.
        framed(reader, {}, b"\x04\x00"),
        # The second message of the file.
        framed(reader, {}, b"\x02\x02"),
        b"\0\0\0\0\x63\0",
        b"{}",
        framed(reader, {}) + b"\x08",
        # Messages that the file does not have: the eighth, and one before the first.
        framed(reader, {}, b"\x02\x0e"),
        framed(reader, {}, b"\x02\x03"),
    ]
    array, wrong = reads.array(given)
    assert [row and (row["id"], row["note"]) for row in array.to_pylist()[:4]] == [
        (1, "a"),
        (2, "b"),
        (3, "c"),
        (4, ""),
    ]
    assert {position: each.message.partition(" (")[0] for position, each in wrong.items()} == {
        4: "it is a shop.Refund, not a shop.Order",
        5: "its schema differs: shop.Order.id is a zigzag varint, and is read as a varint",
        6: "its schema differs: shop.Order.id is a string or bytes, and is read as a varint",
        7: "it ends where the position of its message should be",
        8: "it is a shop.Line, not a shop.Order",
        9: f"{server.url} has no /schemas/ids/99",
        10: "it does not begin with 00 and the number of a schema in a registry, but with 7b 7d",
        11: wrong[11].message.partition(" (")[0],
        12: "its schema has no message at position",
        13: "the position of its message is negative",
    }
    assert "not a shop.Order: " in wrong[11].message
    assert wrong[5].schema == server.register("orders-value", registered(twisted).text, schemaType="PROTOBUF")


REPEATED = {"label": "LABEL_REPEATED"}


@pytest.mark.parametrize(
    ("wrote", "reads", "value", "found"),
    [
        # Each would be another value, without an error.
        (field("f", "int64"), field("f", "int32"), 2**32 + 5, "is of type int64, and is read as int32, which"),
        (field("f", "int32"), field("f", "uint64"), -1, "is of type int32, and is read as uint64, which"),
        (field("f", "fixed64"), field("f", "sfixed64"), 2**64 - 1, "is of type fixed64, and is read as sfixed64"),
        (field("f", "int64"), field("f", ".shop.Side"), 2**32 + 1, "is of type int64, and is read as enum"),
        (field("f", "int32", **REPEATED), field("f", "int32"), [1, 2], "is repeated, and is read as one value"),
        (field("f", f"{GOOGLE}Timestamp"), field("f", f"{GOOGLE}Duration"), "2026-03-01T10:00:00Z", "is a google."),
        (field("f", ".shop.Line"), field("f", f"{GOOGLE}Timestamp"), {"n": 5}, "is a shop.Line, and is read as a goog"),
        # These are all there.
        (field("f", "uint32"), field("f", "int64"), 2**32 - 1, 2**32 - 1),
        (field("f", "int32"), field("f", "int32", **REPEATED), 5, [5]),
        (field("f", ".shop.Side"), field("f", "int32"), "BUY", 1),
    ],
)
def test_a_field_that_has_changed(
    server: SchemaRegistry, wrote: FieldDescriptorProto, reads: FieldDescriptorProto, value: Any, found: Any
) -> None:
    number = server.register("orders-value", registered(file(wrote)).text, schemaType="PROTOBUF")
    decoder = ProtobufDecoder(Registry(server.url, 0.0), registered(file(reads)), None, "value.format")
    array, wrong = decoder.array([b"\0" + number.to_bytes(4, "big") + b"\0" + message(file(wrote), {"f": value})])
    if isinstance(found, str):
        assert array.to_pylist() == [None]
        assert f"shop.Order.f {found}" in wrong[0].message
    else:
        assert (array.to_pylist(), wrong) == ([{"f": found}], {})


def test_descriptors_of_a_file(tmp_path: Path) -> None:
    made = file(field("id", "int64"))
    path = tmp_path / "orders.desc"
    path.write_bytes(descriptor_pb2.FileDescriptorSet(file=[made]).SerializeToString())
    found = descriptors_of(str(path), "value.descriptor")
    reads = ProtobufDecoder(None, found, None, "value.format")
    assert reads.array([message(made, {"id": 5})])[0].to_pylist() == [{"id": 5}]
    with pytest.raises(sj.AnalysisError, match=r"or none with shop.Nothing.*protoc --include_imports"):
        ProtobufDecoder(None, found, "shop.Nothing", "value.format")
    with pytest.raises(sj.AnalysisError, match=r"value.descriptor: .*nowhere cannot be read"):
        descriptors_of(str(tmp_path / "nowhere"), "value.descriptor")
    with pytest.raises(sj.AnalysisError, match=r"shop.Order contains itself"):
        ProtobufDecoder(None, registered(file(field("f", ".shop.Order"))), None, "value.format")
    with pytest.raises(sj.AnalysisError, match="not a serialized descriptor"):
        ProtobufDecoder(None, Registered('syntax = "proto3";', "PROTOBUF", 1), None, "value.format")
