"""Names of probes: the files with which a start tests a place, and which a crash may leave behind."""

from __future__ import annotations

import os
import re
import time

_LEFT_AFTER = 2 * 86_400.0
"""Seconds after which a probe is no longer in use, even by the clock of a machine that is a day off."""
_NAME = re.compile(r"\.{1,2}probe-([0-9a-f]{8})-[0-9a-f]{8}(\..+)?")


def probe_name() -> str:
    """A new name, hidden as users may read from the directory; it contains its time of creation.

    >>> is_left_behind(probe_name())
    False
    """
    return f".probe-{int(time.time()):08x}-{os.urandom(4).hex()}"


def is_left_behind(name: str) -> bool:
    """Whether a name is that of a probe, or of part of one, that is no longer in use.

    A start that removed probes of others would make them believe that their second put has created the file again: ten
    queries of one program that start at the same time test the same directory.

    >>> is_left_behind(".probe-65000000-0a1b2c3d"), is_left_behind(".other")
    (True, False)
    """
    found = _NAME.fullmatch(name)
    return found is not None and int(found[1], 16) < time.time() - _LEFT_AFTER
