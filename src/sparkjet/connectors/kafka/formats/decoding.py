"""Decoding: from the bytes of many records to one Arrow array, and which of them are malformed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from sparkjet.query_log import logger

if TYPE_CHECKING:
    from sparkjet.connectors.kafka.formats.shapes import Shape

_MISFITS = (pa.ArrowException, ValueError, TypeError, ArithmeticError, LookupError)
"""The errors of a shape if a value does not fit; each value is then tried separately."""
_LONGEST = 500
_MAGIC, _HEAD = 0, 5
_NUMBERS = 2**31
"""The number of a schema is an int of Java's, above 0."""


@dataclass(frozen=True)
class Malformed:
    """Why the bytes of a record cannot be decoded.

    Attributes:
        message: What is wrong.
        schema: The number in the registry of the schema that wrote them; None if it is not known.
    """

    message: str
    schema: int | None = None


class MalformedError(Exception):
    """Bytes that no attempt will decode; a registry that is away raises a SourceError instead."""

    def __init__(self, message: str, schema: int | None = None) -> None:
        super().__init__(message)
        self.malformed = Malformed(message[:_LONGEST], schema)


class Decoder(ABC):
    """Decodes keys or values, in an executor; made for each task.

    Attributes:
        shape: What comes of them.
    """

    shape: Shape

    @abstractmethod
    def decoded(self, message: bytes) -> Any:
        """One value, as the shape takes it; None if there is none.

        Raises:
            MalformedError: It cannot be decoded.
            SourceError: The registry does not answer.
        """

    def array(self, messages: Sequence[bytes | None]) -> tuple[pa.Array, Mapping[int, Malformed]]:
        """The column of some messages, null where one is null or malformed; and what is malformed, by position."""
        values: list[Any] = []
        wrong: dict[int, Malformed] = {}
        for position, message in enumerate(messages):
            value = None
            if message is not None:
                try:
                    value = self.decoded(message)
                except MalformedError as error:
                    wrong[position] = error.malformed
            values.append(value)
        try:
            return self.shape.array(values), wrong
        except _MISFITS:
            for position, value in enumerate(values):
                try:
                    self.shape.array([value])
                except _MISFITS as error:
                    wrong[position] = Malformed(
                        f"a value does not fit: {error}"[:_LONGEST], self.written_by(messages[position])
                    )
                    values[position] = None
            return self.shape.array(values), wrong

    def written_by(self, message: bytes | None) -> int | None:  # noqa: ARG002 - of formats without a registry
        """The number of the schema that wrote a message that could be decoded."""
        return None


@lru_cache(maxsize=1_000)
def tell(text: str) -> None:
    """Log something about a writer, once per process: each task meets it again."""
    logger.warning("%s", text)


def number_of(message: bytes | None) -> int | None:
    """The number of the schema that a message says it was written with; None if it says none.

    >>> number_of(bytes.fromhex("0000000007")), number_of(b"none"), number_of(None)
    (7, None, None)
    """
    if message is None:
        return None
    try:
        return framed(message)[0]
    except MalformedError:
        return None


def framed(message: bytes) -> tuple[int, bytes]:
    """The number of the schema, and the rest, of a message in Confluent's framing.

    >>> framed(bytes.fromhex("0000000007") + b"rest")
    (7, b'rest')

    Raises:
        MalformedError: It is not framed.
    """
    if len(message) < _HEAD or message[0] != _MAGIC:
        begins = message[:_HEAD].hex(" ") or "nothing"
        text = f"it does not begin with 00 and the number of a schema in a registry, but with {begins}"
        raise MalformedError(text)
    number = int.from_bytes(message[1:_HEAD], "big")
    if number >= _NUMBERS:
        # A registry has no answer to this but that the request is wrong.
        text = f"it begins with {number}, which no registry has as the number of a schema"
        raise MalformedError(text)
    return number, message[_HEAD:]
