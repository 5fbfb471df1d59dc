"""Kafka's wire format: numbers, strings and arrays as the protocol writes and reads them."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from typing import TypeVar

from typing_extensions import Self

T = TypeVar("T")


class WireError(Exception):
    """A response that violates the protocol; nothing of it is used."""


class Encoder:
    """Writes the fields of a request in order; every method returns the encoder."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def int8(self, value: int) -> Self:
        """A signed byte, or a boolean."""
        return self._packed(">b", value)

    def int16(self, value: int) -> Self:
        """A signed two-byte integer."""
        return self._packed(">h", value)

    def int32(self, value: int) -> Self:
        """A signed four-byte integer."""
        return self._packed(">i", value)

    def int64(self, value: int) -> Self:
        """A signed eight-byte integer."""
        return self._packed(">q", value)

    def string(self, value: str) -> Self:
        """Text after its length."""
        encoded = value.encode()
        return self.int16(len(encoded)).raw(encoded)

    def data(self, value: bytes) -> Self:
        """Bytes after their length."""
        return self.int32(len(value)).raw(value)

    def unsigned(self, value: int) -> Self:
        """An unsigned integer of variable length (varint), for flexible versions."""
        while value > 0x7F:  # noqa: PLR2004 - seven bits a byte
            self.raw(bytes([value & 0x7F | 0x80]))
            value >>= 7
        return self.raw(bytes([value]))

    def compact_string(self, value: str) -> Self:
        """Text of a flexible version."""
        encoded = value.encode()
        return self.unsigned(len(encoded) + 1).raw(encoded)

    def compact_array(self, values: Iterable[T], each: Callable[[T], object]) -> Self:
        """An array of a flexible version, whose entries ``each`` writes with this encoder."""
        listed = list(values)
        self.unsigned(len(listed) + 1)
        for value in listed:
            each(value)
        return self

    def no_tags(self) -> Self:
        """The end of a structure in flexible versions, without tagged fields."""
        return self.unsigned(0)

    def raw(self, value: bytes) -> Self:
        """Bytes as they are."""
        self._parts.append(value)
        return self

    def encoded(self) -> bytes:
        """Everything so far."""
        return b"".join(self._parts)

    def _packed(self, form: str, value: int) -> Self:
        return self.raw(struct.pack(form, value))


class Decoder:
    """Reads the fields of a response in order.

    Every method raises :class:`WireError` if the response ends early or contains an impossible length.

    >>> Decoder(Encoder().int16(7).string("ab").encoded()).int16()
    7
    """

    def __init__(self, answer: bytes) -> None:
        self._answer = answer
        self._at = 0

    def int8(self) -> int:
        """A signed byte."""
        return self._unpacked(">b", 1)

    def int16(self) -> int:
        """A signed two-byte integer."""
        return self._unpacked(">h", 2)

    def int32(self) -> int:
        """A signed four-byte integer."""
        return self._unpacked(">i", 4)

    def int64(self) -> int:
        """A signed eight-byte integer."""
        return self._unpacked(">q", 8)

    def string(self) -> str | None:
        """Text after its length, or null."""
        return self._text(self.int16())

    def data(self) -> bytes:
        """Bytes after their length; null is empty."""
        return self._taken(max(0, self.int32()))

    def unsigned(self) -> int:
        """An unsigned integer of variable length (varint)."""
        value = shift = 0
        while True:
            byte = self._taken(1)[0]
            value |= (byte & 0x7F) << shift
            shift += 7
            if not byte & 0x80:
                return value
            if shift > 35:  # noqa: PLR2004 - no length needs more than five bytes
                raise WireError("a length of more than five bytes")

    def compact_string(self) -> str | None:
        """Text of a flexible version, or null."""
        return self._text(self.unsigned() - 1)

    def array(self, each: Callable[[], T]) -> list[T]:
        """An array after its length; null is empty."""
        return [each() for _ in range(self._counted(self.int32()))]

    def compact_array(self, each: Callable[[], T]) -> list[T]:
        """An array of a flexible version; null is empty."""
        return [each() for _ in range(self._counted(self.unsigned() - 1))]

    def skip_tags(self) -> None:
        """The end of a structure in flexible versions; skips its tagged fields."""
        for _ in range(self._counted(self.unsigned())):
            self.unsigned()
            self._taken(self.unsigned())

    def _text(self, length: int) -> str | None:
        if length < 0:
            return None
        try:
            return self._taken(length).decode()
        except UnicodeDecodeError as error:
            raise WireError("a text that is not UTF-8") from error

    def _counted(self, length: int) -> int:
        # Each entry takes at least a byte: a wrong length must not exhaust the memory.
        if length > len(self._answer) - self._at:
            raise WireError(f"an array of {length} entries in {len(self._answer)} bytes")
        return max(0, length)

    def _taken(self, length: int) -> bytes:
        taken = self._answer[self._at : self._at + length]
        if len(taken) < length:
            raise WireError("it ends too early")
        self._at += length
        return taken

    def _unpacked(self, form: str, size: int) -> int:
        return int(struct.unpack(form, self._taken(size))[0])
