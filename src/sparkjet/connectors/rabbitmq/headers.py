"""The columns of ``includeHeaders``: AMQP's headers as text, along with further properties."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    import pika


def further(method: Any, properties: pika.BasicProperties) -> tuple[Any, ...]:
    """The values of the further columns of a delivery."""
    headers = properties.headers
    texts = [(name, text_of(value)) for name, value in headers.items()] if headers else None
    return texts, properties.type, properties.reply_to, method.redelivered


def text_of(value: Any) -> str | None:
    """A header's value as text: text as it is, bytes in Base64, times in ISO 8601, and everything else as JSON.

    >>> text_of("gold"), text_of(7), text_of([True, {"a": None}])
    ('gold', '7', '[true,{"a":null}]')
    """
    if value is None or isinstance(value, str):
        return value
    # pika has its own type for eight-byte integers.
    text = msgspec.json.encode(value, enc_hook=int).decode()
    return msgspec.json.decode(text, type=str) if text.startswith('"') else text
