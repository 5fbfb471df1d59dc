"""Messages of stored rows: their ids, properties and headers."""

from __future__ import annotations

import pyarrow as pa

from sparkjet.connectors.rabbitmq.messages import messages_of
from sparkjet.connectors.rabbitmq.publisher import Message


def batch(**columns: list[object]) -> pa.RecordBatch:
    rows = len(columns["body"])
    return pa.RecordBatch.from_pydict({"exchange": [""] * rows, "routing_key": ["q"] * rows, **columns})


def ids(messages: list[Message]) -> list[str]:
    return [message.properties.message_id for message in messages]


def test_rows_are_numbered_through_all_batches() -> None:
    batches = [batch(body=[b"a", b"b"]), batch(body=[b"c"])]
    found = list(messages_of(batches, "query-results-3"))
    assert [message.body for message in found] == [b"a", b"b", b"c"]
    assert ids(found) == ["query-results-3-0", "query-results-3-1", "query-results-3-2"]
    assert ids(list(messages_of(batches, "query-results-3"))) == ids(found)


def test_an_id_of_the_users_is_used_and_a_null_is_not_one() -> None:
    found = list(messages_of([batch(body=[b"a", b"b", b"c"], message_id=["mine", None, ""])], "ids"))
    assert ids(found) == ["mine", "ids-1", ""]


def test_every_part_of_a_row_is_in_its_message() -> None:
    rows = batch(
        body=[b"\0"], content_type=["text/plain"], correlation_id=["c"], type=["order"], timestamp=[1_700_000_000],
        headers=pa.array([[("a", "1"), ("b", None)]], pa.map_(pa.string(), pa.string())), is_early=["true"],
        is_shed=["false"],
    )  # fmt: skip
    [message] = messages_of([rows], "ids")
    assert message[:3] == ("", "q", b"\0")
    properties = message.properties
    assert properties.delivery_mode == 2
    assert (properties.content_type, properties.correlation_id, properties.type) == ("text/plain", "c", "order")
    assert properties.timestamp == 1_700_000_000
    assert properties.headers == {"a": "1", "b": None, "is_early": "true", "is_shed": "false"}


def test_a_row_of_a_body_is_a_message_without_headers() -> None:
    [message] = messages_of([batch(body=[b""], headers=[None])], "ids")
    assert message.properties.headers is None
    assert message.properties.timestamp is None
