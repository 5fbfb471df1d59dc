"""Requests to a schema registry: what is kept, what is repeated, and what is said when it is away."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import replace

import pytest

import sparkjet as sj
from sparkjet.connectors.kafka.formats.registry import NoSchemaError, Registry, _kept
from tests.servers.schema_registry import SchemaRegistry


@pytest.fixture
def server() -> Iterator[SchemaRegistry]:
    # Another server may have had its port before.
    _kept.cache_clear()
    with SchemaRegistry(user="reader:let-me-in") as server:
        yield server


def client(server: SchemaRegistry) -> Registry:
    return Registry(server.url, 0.0, "reader", "let-me-in")


def test_a_schema_is_asked_for_once_in_a_process_and_one_that_is_not_there_each_time(server: SchemaRegistry) -> None:
    number = server.register("a-value", {"type": "string"})
    found = client(server).schema(number)
    assert (found.text, found.kind, found.number) == ('{"type": "string"}', "AVRO", number)
    # As a task has it.
    assert pickle.loads(pickle.dumps(client(server))).schema(number) == found  # noqa: S301 - made above
    assert server.asked == [f"/schemas/ids/{number}"]
    for _ in range(2):
        with pytest.raises(NoSchemaError, match="has no /schemas/ids/99"):
            client(server).schema(99)
    assert len(server.asked) == 3


def test_versions_and_what_they_refer_to(server: SchemaRegistry) -> None:
    server.register("money", {"type": "fixed", "name": "Money", "size": 8})
    refers = [{"name": "Money", "subject": "money", "version": 1}]
    server.register("a/b-value", '"Money"', references=refers)
    second = server.register("a/b-value", {"type": "int"})
    latest = client(server).version("a/b-value")
    assert (latest.number, latest.references) == (second, ())
    first = client(server).version("a/b-value", "1")
    assert [name for name, _ in first.references] == ["Money"]
    # A schema by its number is still whole when what it refers to was deleted.
    server.deleted.add("money")
    assert client(server).schema(first.number).references == first.references
    with pytest.raises(NoSchemaError, match=r"money/versions/1"):
        client(server).version("money", "1")
    with pytest.raises(NoSchemaError, match=r"a%2Fb-value/versions/3"):
        client(server).version("a/b-value", "3")


@pytest.mark.parametrize(
    ("status", "requests", "told"),
    [
        (503, 2, "answers 503 .*Waited for 0.2 seconds"),
        (429, 2, "answers 429 "),
        (403, 1, "answers 403 .*may not read it"),
        (404, 1, "answers 404 .*Is this the address of a schema registry"),
    ],
)
def test_a_registry_that_does_not_answer_is_not_a_records_fault(
    server: SchemaRegistry, status: int, requests: int, told: str
) -> None:
    number = server.register("a-value", {"type": "long"})
    server.broken = status
    with pytest.raises(sj.SourceError, match=rf"{server.url} .*{told}.*No record was skipped") as raised:
        replace(client(server), patience=0.2).schema(number)
    assert "let-me-in" not in str(raised.value)
    assert len(server.asked) >= requests
    server.broken = None
    assert client(server).schema(number).number == number


@pytest.mark.parametrize(
    "answer", [[], {}, {"schema": 5}, {"schema": '"int"', "references": [{}]}, {"schema": '"int"'}]
)
def test_an_answer_without_a_schema(server: SchemaRegistry, answer: object) -> None:
    server.answer = answer
    with pytest.raises(sj.SourceError, match=r"has no schema. Is this the address of a schema registry"):
        client(server).version("a-value")


def test_a_wrong_password_and_a_registry_that_is_not_there(server: SchemaRegistry) -> None:
    number = server.register("a-value", {"type": "double"})
    with pytest.raises(sj.SourceError, match=r"answers 401 .*Check schemaRegistry.username") as raised:
        replace(client(server), password="hunter2").schema(number)
    assert "hunter2" not in str(raised.value) + repr(replace(client(server), password="hunter2"))
    with pytest.raises(sj.SourceError, match=r"127.0.0.1:1 cannot be asked .*refused"):
        Registry("http://127.0.0.1:1", 0.0).schema(1)
