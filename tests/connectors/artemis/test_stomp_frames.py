"""Frames of STOMP: what is written is read again, however it arrives."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkjet.connectors.artemis.stomp_frames import Frame, FrameReader, encoded

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
FRAMES = st.builds(
    lambda headers, body: Frame("MESSAGE", {**headers, "content-length": str(len(body))}, body),
    st.dictionaries(TEXTS.filter(bool), TEXTS),
    st.binary(max_size=20),
)


def read(content: bytes, size: int) -> list[Frame]:
    reader = FrameReader()
    return [frame for start in range(0, len(content), size) for frame in reader.feed(content[start : start + size])]


@given(st.lists(FRAMES, max_size=4), st.integers(1, 40))
def test_what_is_written_is_read_again(frames: list[Frame], size: int) -> None:
    assert read(b"\n".join(map(encoded, frames)), size) == frames


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"RECEIPT\nreceipt-id:1\n\n\0", Frame("RECEIPT", {"receipt-id": "1"})),
        (b"\n\n\nERROR\nmessage:a\\cb\\n\n\ntext\0\n", Frame("ERROR", {"message": "a:b\n"}, b"text")),
        (b"MESSAGE\nk:first\nk:second\n\n\0", Frame("MESSAGE", {"k": "first"})),
        (b"MESSAGE\ncontent-length:3\n\n\0\n\0\0", Frame("MESSAGE", {"content-length": "3"}, b"\0\n\0")),
        (b"CONNECTED\nsession:a\\b:c\n\n\0", Frame("CONNECTED", {"session": "a\\b:c"})),
    ],
)
@pytest.mark.parametrize("size", [1, 7, 100])
def test_frames_as_brokers_send_them(content: bytes, expected: Frame, size: int) -> None:
    assert read(content, size) == [expected]


def test_a_login_is_not_escaped() -> None:
    assert encoded(Frame("CONNECT", {"passcode": "a:b\\"})) == b"CONNECT\npasscode:a:b\\\n\n\0"


def test_a_large_body_is_looked_at_when_it_is_there() -> None:
    frame = Frame("MESSAGE", {"content-length": "3000000"}, b"x" * 3_000_000)
    reader = FrameReader()
    content = encoded(frame)
    assert reader.feed(content[:1000]) == []
    assert reader._needed == len(content)
    assert reader.feed(content[1000:]) == [frame]
    assert reader.feed(encoded(Frame("RECEIPT", {}))) == [Frame("RECEIPT", {})]
