"""Types that msgspec has inspected: threads that decode one for the first time simultaneously can crash the process."""

from __future__ import annotations

import threading
from typing import Any, TypeVar

import msgspec

T = TypeVar("T", bound=Any)

_known: set[Any] = set()
_looking = threading.Lock()


def known(kind: T) -> T:
    """Have msgspec inspect a type, and return it; every type that is decoded, or converted to, goes through here.

    msgspec inspects a struct on first use, and publishes the result before it has inspected nested structs: a second
    thread then decodes with incomplete information (SIGSEGV in msgspec 0.22). Types of the grid go through this
    function in sparkjet as well, whose own one has another lock.
    """
    if kind not in _known:
        with _looking:
            msgspec.msgpack.Decoder(kind)
            _known.add(kind)
    return kind
