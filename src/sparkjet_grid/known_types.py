"""Types that msgspec has looked at: threads that decode one for the first time at once can kill the process."""

from __future__ import annotations

import threading
from typing import Any, TypeVar

import msgspec

T = TypeVar("T", bound=Any)

_known: set[Any] = set()
_looking = threading.Lock()


def known(kind: T) -> T:
    """The same type, at which msgspec has looked: name every type that is decoded or converted to by it.

    msgspec looks at a struct when it is first used, and notes what it finds while it still looks at the structs within:
    a second thread decodes by what is not there yet (SIGSEGV in msgspec 0.22). Types of the grid are named to this
    function everywhere, in sparkjet as well, whose own one has another lock.
    """
    if kind not in _known:
        with _looking:
            msgspec.msgpack.Decoder(kind)
            _known.add(kind)
    return kind
