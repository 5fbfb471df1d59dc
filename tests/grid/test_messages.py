"""Messages: what was sent arrives, and what is not one is refused without taking memory for what it claims."""

from __future__ import annotations

import contextlib
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkjet_grid.entries import Key
from sparkjet_grid.errors import MalformedError
from sparkjet_grid.messages import (
    LARGEST,
    MOST,
    REQUESTS,
    Get,
    Held,
    ListEntries,
    Message,
    Part,
    Put,
    PutSlot,
    Remove,
    Verify,
    decoded,
    encoded,
)

KINDS: list[type[Message]] = [Put, Part, Get, *REQUESTS.values()]
MESSAGES = [
    Put("", 30.0),
    Put("member", 600.0),
    Part(270, "home/ä/7", 3, 12, 7, "xxh3-64:0123456789abcdef"),
    Get([Key(1, "a"), Key(2, "b/c")]),
    ListEntries("", {1: 2, 270: 0}),
    Verify([Held(1, "a", 2, 3, "xxh3-64:0")]),
    Remove([], "home/"),
    PutSlot("log/3", b"\x00token", 9),
]


@pytest.mark.parametrize("message", MESSAGES, ids=lambda message: type(message).__name__)
def test_messages_that_were_sent_arrive(message: object) -> None:
    assert decoded(encoded(message), type(message)) == message


WRONG = {
    "no name": Part(0, "", 1),
    "a long name": Part(0, "a" * 1025, 1),
    "a negative partition": Part(-1, "a", 1),
    "a large partition": Part(1_000_000, "a", 1),
    "no batch": Part(0, "a", 0),
    "no time": Put("", 0.0),
    "endless": Put("", 1e9),
    "too many": Get([Key(0, "a")] * (MOST + 1)),
    "a large token": PutSlot("log/1", bytes(1 << 16), 1),
}


@pytest.mark.parametrize("message", WRONG.values(), ids=WRONG)
def test_values_out_of_bounds_are_refused(message: object) -> None:
    with pytest.raises(MalformedError):
        decoded(encoded(message), type(message))


@given(st.binary(max_size=200))
def test_any_bytes_are_a_message_or_refused(content: bytes) -> None:
    for kind in KINDS:
        try:
            assert isinstance(decoded(content, kind), kind)
        except MalformedError:
            continue


@given(st.sampled_from(MESSAGES), st.data())
def test_a_message_with_wrong_bytes_is_another_one_or_refused(message: object, data: st.DataObject) -> None:
    content = bytearray(encoded(message))
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(MalformedError):
        assert isinstance(decoded(bytes(content), type(message)), type(message))


# Headers of msgpack that claim 2**32 - 1 of something: an array, a map, bytes, text.
CLAIMS = [b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff", b"\xdb\xff\xff\xff\xff"]


@pytest.mark.parametrize("claim", CLAIMS, ids=["array", "map", "bytes", "text"])
def test_nothing_is_allocated_for_a_claim(claim: bytes) -> None:
    tracemalloc.start()
    for kind in KINDS:
        for begin in (b"", b"\x91", b"\x92\xa0", b"\x94\xa3log\x01"):
            with pytest.raises(MalformedError):
                decoded(begin + claim, kind)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 10_000_000


def test_deep_nesting_and_large_messages_are_refused() -> None:
    with pytest.raises(MalformedError):
        decoded(b"\x91" * 1_000_000, Get)
    with pytest.raises(MalformedError, match="more than"):
        decoded(bytes(LARGEST + 1), Get)
    with pytest.raises(MalformedError, match="missing"):
        decoded(None, Part)


def test_a_pickle_is_not_read() -> None:
    with pytest.raises(MalformedError):
        decoded(b"\x80\x04\x8c\x05posix\x8c\x06system\x93\x8c\x04true\x85R.", Get)
