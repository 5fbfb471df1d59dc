"""Options of formats: which go together, and what is said where they do not."""

from __future__ import annotations

import pytest

import sparkjet as sj
from sparkjet.connectors.kafka.consumer_settings import KafkaSourceSettings
from sparkjet.connectors.kafka.formats.settings import Formats

REGISTRY = {"schemaRegistry.url": "https://registry:8081"}
AVRO = {"value.format": "avro", **REGISTRY}
ROW = {"value.format": "debezium-json", "value.schema": "id bigint"}


def formats(**given: str) -> Formats:
    every = {"kafka.bootstrap.servers": "broker:9092", "subscribe": "orders", **given}
    return KafkaSourceSettings.of(every).formats


def test_subjects_are_named_after_the_topic_and_no_password_is_shown() -> None:
    access = {"schemaRegistry.username": "me", "schemaRegistry.password": "hunter2"}
    found = formats(**AVRO, **access, **{"key.format": "avro", "mode": "PERMISSIVE"})
    assert [(part.name, part.subject) for part in found.parts] == [("key", "orders-key"), ("value", "orders-value")]
    assert found.permissive
    assert found.registry is not None
    assert found.registry.password == "hunter2"
    assert "hunter2" not in repr(found)
    assert formats() == Formats()


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"value.format": "arvo"}, 'value.format="arvo" is not one of .*avro'),
        ({"value.format": "avro"}, "value.format=avro needs option.*schemaRegistry.url"),
        ({**AVRO, "subscribe": "a,b"}, "of several topics, say .*value.subject"),
        ({**ROW, "includeSchemaId": "true"}, "includeSchemaId: no message has the number of a schema but of avro"),
        ({"includeSchemaId": "true"}, "includeSchemaId: "),
        ({"mode": "PERMISSIVE"}, "mode: without a format, key and value stay as they are"),
        (REGISTRY, "schemaRegistry.url: without a format"),
        ({"value.schema": "{}"}, 'value.schema has no effect with .*"binary"'),
        ({**AVRO, "value.descriptor": "f"}, 'value.descriptor has no effect with .*"avro"'),
        ({**AVRO, "value.schema": "{}", "value.version": "3"}, r"value.version has no effect beside value.schema"),
        ({"value.format": "debezium-json"}, "needs the columns of a row, such as"),
        ({**ROW, "value.schema": "nonsense"}, "value.schema=.nonsense.: the column nonsense has no type. Give "),
        ({**ROW, "value.schema": ""}, "value.schema='': a column is missing at its end"),
        ({**ROW, "value.schema": "id bigint,"}, "a column is missing at its end"),
        ({**ROW, "value.schema": "id bigintt"}, "'bigintt' is not a type; .*bigint"),
        ({**ROW, "value.schema": "id bigint string"}, "',' is missing before 'string'"),
        ({**ROW, "value.schema": "id bigint>, at struct<id int"}, "',' is missing before '>'"),
        ({**ROW, "value.schema": "tags array<string"}, "'>' is missing at its end"),
        ({**ROW, "value.schema": "at map<string>"}, "',' is missing before '>'"),
        ({**ROW, "value.schema": "id; int"}, "';' does not belong there"),
        ({**ROW, "value.schema": '{"type": "record"}'}, "does not belong there"),
        ({**ROW, "value.schema": "prix_é int"}, "does not belong there"),
        ({**ROW, "value.schema": "price decimal(39, 2)"}, r"decimal\(39\) has more than 38 digits"),
        ({**ROW, "value.schema": "name varchar"}, "'\\(' is missing at its end"),
        ({**ROW, "value.schema": "id int COMMENT"}, "a text is missing after COMMENT"),
        ({**ROW, "value.schema": "id int NOT"}, "NULL is missing after NOT"),
        ({**ROW, "key.format": "debezium-json", "key.schema": "id"}, "key.schema='id': the column id has no type"),
        ({**AVRO, "schemaRegistry.url": "registry:8081"}, "must be an address such as https"),
        ({**AVRO, "schemaRegistry.url": "https://me:hunter2@registry"}, "leave user and password out of the address"),
        ({**AVRO, "schemaRegistry.token": "t", "schemaRegistry.username": "u"}, "two ways in; give one"),
        ({**AVRO, "schemaRegistry.token": "hunter2\n"}, "token begins or ends with a space or a line break"),
        ({**AVRO, "value.version": "newest"}, "value.version=newest must be latest, or a number such as 3"),
        ({**AVRO, "mode": "DROPMALFORMED"}, 'mode="DROPMALFORMED" is not one of failfast, permissive'),
    ],
)
def test_options_that_do_not_go_together(given: dict[str, str], told: str) -> None:
    with pytest.raises(sj.AnalysisError, match=told) as raised:
        formats(**given)
    assert "hunter2" not in str(raised.value)
