"""The columns of a message, in JMS terms, from a STOMP frame."""

from __future__ import annotations

from sparkjet.connectors.artemis.stomp_frames import Frame
from sparkjet.sources.acknowledging.contract import Message

_HEADERS = {
    "ack", "content-length", "content-type", "correlation-id", "destination", "destination-type", "expires",
    "message-id", "persistent", "priority", "receipt", "redelivered", "reply-to", "subscription", "timestamp",
    "transaction", "type",
}  # fmt: skip
"""Names that are not producer properties: headers of the message, and of the frames in which it came and went."""
_BROKERS = ("_AMQ_", "__AMQ_")


def message_of(frame: Frame, queue: str, id_property: str | None) -> Message:
    """A message as the receiver takes it.

    Its id is the property, if one is chosen. Otherwise it is the broker's id, which stays the same on redelivery and
    after a restart, together with the time of sending, as a broker whose disk was replaced starts counting again.
    """
    headers = frame.headers
    number = headers["message-id"].rpartition(",")[2]
    # The value at the time of sending, not the current one: redelivered messages keep it.
    sent = headers.get("timestamp", "0")
    properties = {
        name: value for name, value in headers.items() if name not in _HEADERS and not name.startswith(_BROKERS)
    }
    values = (
        frame.body,
        number,
        queue,
        int(sent) * 1000 or None,
        headers.get("correlation-id"),
        headers.get("reply-to"),
        headers.get("type"),
        headers.get("content-type"),
        headers.get("redelivered") == "true",
        list(properties.items()),
    )
    origin = headers.get("_AMQ_ORIG_QUEUE")
    known = headers.get("_AMQ_ORIG_MESSAGE_ID", number)
    identity = f"{known}@{sent}" if id_property is None else headers.get(id_property)
    return Message(identity, queue, values, origin=origin)
