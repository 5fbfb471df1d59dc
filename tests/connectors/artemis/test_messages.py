"""Columns of a message: JMS's headers, the producer's properties, and what tells it from others."""

from __future__ import annotations

import pytest

from sparkjet.connectors.artemis.data_source import ROWS
from sparkjet.connectors.artemis.messages import message_of
from sparkjet.connectors.artemis.stomp_frames import Frame

PLAIN = {
    "subscription": "queue/0",
    "message-id": "40,21",
    "ack": "40,21",
    "destination": "q",
    "timestamp": "1700000000123",
}


def test_headers_are_columns_and_the_rest_are_properties() -> None:
    headers = {
        **PLAIN, "correlation-id": "c", "reply-to": "answers", "type": "order", "content-type": "text/plain",
        "redelivered": "true", "priority": "4", "persistent": "true", "expires": "0", "destination-type": "ANYCAST",
        "_AMQ_LARGE_SIZE": "3", "__AMQ_CID": "x", "transaction": "t", "number": "7", "JMSXGroupSeq": "1",
    }  # fmt: skip
    message = message_of(Frame("MESSAGE", headers, b"body"), "orders", None)
    assert dict(zip(ROWS.names, message.values, strict=True)) == {
        "body": b"body",
        "message_id": "21",
        "queue": "orders",
        "timestamp": 1_700_000_000_123_000,
        "correlation_id": "c",
        "reply_to": "answers",
        "type": "order",
        "content_type": "text/plain",
        "redelivered": True,
        "properties": [("number", "7"), ("JMSXGroupSeq", "1")],
    }


def test_a_missing_value_is_null() -> None:
    message = message_of(Frame("MESSAGE", {**PLAIN, "timestamp": "0"}), "q", None)
    assert message.values == (b"", "21", "q", None, None, None, None, None, False, [])


@pytest.mark.parametrize(
    ("headers", "id_property", "expected"),
    [
        ({}, None, "21@1700000000123"),
        # Another connection, another consumer: the same message.
        ({"message-id": "99,21", "redelivered": "true"}, None, "21@1700000000123"),
        # A broker that counts anew: another one.
        ({"timestamp": "1800000000000"}, None, "21@1800000000000"),
        ({"number": "7"}, "number", "7"),
        ({}, "number", None),
    ],
)
def test_a_message_is_known_by_what_it_keeps(headers: dict[str, str], id_property: str | None, expected: str) -> None:
    assert message_of(Frame("MESSAGE", {**PLAIN, **headers}), "q", id_property).id == expected
