"""Types that msgspec has inspected: threads that decode one for the first time in parallel can kill the process."""

from __future__ import annotations

import threading
from typing import Any, TypeVar

import msgspec

T = TypeVar("T", bound=Any)

_known: set[Any] = set()
_looking = threading.Lock()


def known(kind: T) -> T:
    """The same type, inspected by msgspec: wrap every type that is decoded or converted to in it.

    msgspec inspects a struct on first use, and publishes its findings while it is still inspecting nested structs: a
    second thread decodes with what is not there yet (SIGSEGV in msgspec 0.22).
    """
    if kind not in _known:
        with _looking:
            msgspec.msgpack.Decoder(kind)
            _known.add(kind)
    return kind
