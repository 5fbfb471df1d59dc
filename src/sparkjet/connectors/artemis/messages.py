"""The columns of a message, in JMS's words, from a frame of STOMP."""

from __future__ import annotations

from sparkjet.connectors.artemis.stomp_frames import Frame
from sparkjet.sources.acknowledging.contract import Message

_HEADERS = {
    "ack", "content-length", "content-type", "correlation-id", "destination", "destination-type", "expires",
    "message-id", "persistent", "priority", "receipt", "redelivered", "reply-to", "subscription", "timestamp",
    "transaction", "type",
}  # fmt: skip
"""What is not a property of the producer's: headers of the message, and of the frames that it came and went in."""
_BROKERS = ("_AMQ_", "__AMQ_")


def message_of(frame: Frame, queue: str, id_property: str | None) -> Message:
    """A message as the receiver takes it.

    Its id is the property, if one is chosen. Otherwise it is what the broker calls it, which it keeps when it delivers
    it again, and when it was restarted; together with the time at which it was sent, as a broker whose disk was
    replaced begins to count anew.
    """
    headers = frame.headers
    number = headers["message-id"].rpartition(",")[2]
    # Not what it is now, but when it was sent: what is delivered again keeps it.
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
