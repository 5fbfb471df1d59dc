"""STOMP 1.2 frames: how they are written, and how they are read from a stream of bytes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

_WRITTEN = {"\\": "\\\\", "\r": "\\r", "\n": "\\n", ":": "\\c"}
_READ = {text: character for character, text in _WRITTEN.items()}
_ESCAPED = re.compile(r"\\.")
_TO_ESCAPE = re.compile(r"[\\\r\n:]")
_UNESCAPED = {"CONNECT", "CONNECTED"}
"""Commands whose headers STOMP 1.0 must understand."""
HEARTBEAT = b"\n"
"""Keeps a connection alive between frames."""


class Frame(NamedTuple):
    """A frame.

    Attributes:
        command: What it requests or reports.
        headers: Headers by name; if a name occurs twice, the first counts.
        body: Any bytes.
    """

    command: str
    headers: Mapping[str, str]
    body: bytes = b""


def encoded(frame: Frame) -> bytes:
    r"""The bytes of a frame; its body ends as told by a header ``content-length``, or at a NUL.

    >>> encoded(Frame("SEND", {"to": "a:b"}, b"x"))
    b'SEND\nto:a\\cb\n\nx\x00'
    """
    escape = str if frame.command in _UNESCAPED else _escaped
    lines = [frame.command, *(f"{escape(name)}:{escape(value)}" for name, value in frame.headers.items()), "\n"]
    return b"".join((("\n".join(lines)).encode(), frame.body, b"\0"))


class FrameReader:
    r"""Finds the frames in bytes as they arrive.

    >>> reader = FrameReader()
    >>> reader.feed(b"\nRECEIPT\nreceipt-id:1\n")
    []
    >>> reader.feed(b"\n\0\n")
    [Frame(command='RECEIPT', headers={'receipt-id': '1'}, body=b'')]
    """

    def __init__(self) -> None:
        self._bytes = bytearray()
        # Before this many have arrived there is nothing to find: a large body would be searched again and again.
        self._needed = 0

    def feed(self, arrived: bytes) -> list[Frame]:
        """The frames that are now complete."""
        self._bytes += arrived
        if len(self._bytes) < self._needed:
            return []
        self._needed = 0
        frames: list[Frame] = []
        start = 0
        while (found := self._frame(start)) is not None:
            frame, start = found
            frames.append(frame)
        del self._bytes[:start]
        self._needed = max(self._needed - start, 0)
        return frames

    def _frame(self, start: int) -> tuple[Frame, int] | None:
        content = self._bytes
        while content.startswith(HEARTBEAT, start):
            start += 1
        head = content.find(b"\n\n", start)
        if head < 0:
            return None
        command, *lines = content[start:head].decode().split("\n")
        headers: dict[str, str] = {}
        for line in lines:
            name, _, value = line.partition(":")
            if "\\" in line and command not in _UNESCAPED:
                name, value = _unescaped(name), _unescaped(value)
            headers.setdefault(name, value)
        body = head + 2
        length = headers.get("content-length")
        end = content.find(b"\0", body) if length is None else body + int(length)
        if end < 0 or end >= len(content):
            self._needed = end + 1
            return None
        return Frame(command, headers, bytes(content[body:end])), end + 1


def _escaped(text: str) -> str:
    return _TO_ESCAPE.sub(lambda found: _WRITTEN[found[0]], text)


def _unescaped(text: str) -> str:
    return _ESCAPED.sub(lambda found: _READ.get(found[0], found[0]), text)
