"""Snapshots of the time core: plain JSON values, checked when they are read back.

Whoever has state has ``snapshot()``, which answers a value that survives ``json.dumps`` and ``json.loads`` unchanged
and shares nothing with the living object, and ``restore(snapshot)``, which takes all of it or raises and changes
nothing.
"""

from __future__ import annotations

from typing import Any, TypeAlias, TypeVar

from sparkjet.errors import RecoveryError

Json: TypeAlias = Any
"""What JSON can say: None, bool, int, float, str, lists of these, and dicts of these with str keys."""

_T = TypeVar("_T")


def entry(snapshot: Json, name: str, kind: type[_T], owner: str) -> _T:
    """Read one entry of a snapshot and check its type.

    Args:
        snapshot: A dict that ``owner`` once answered.
        name: Name of the entry.
        kind: Type it must have; a bool is no int here.
        owner: Whose snapshot it is, for the message.

    Raises:
        RecoveryError: The entry is missing or of another type.

    >>> entry({"watermark": 7}, "watermark", int, "LimitingLag")
    7
    >>> entry({}, "watermark", int, "LimitingLag")
    Traceback (most recent call last):
    sparkjet.errors.RecoveryError: snapshot of LimitingLag has no entry 'watermark': it is damaged or not its own
    """
    if not isinstance(snapshot, dict) or name not in snapshot:
        raise RecoveryError(f"snapshot of {owner} has no entry {name!r}: it is damaged or not its own")
    return _checked(snapshot[name], name, kind, owner)


def optional_entry(snapshot: Json, name: str, kind: type[_T], owner: str) -> _T | None:
    """Read an entry that may be null, as :func:`entry` does.

    >>> optional_entry({"lull_at": None}, "lull_at", int, "LimitingLagAndLull") is None
    True
    """
    if isinstance(snapshot, dict) and name in snapshot and snapshot[name] is None:
        return None
    return entry(snapshot, name, kind, owner)


def entries(snapshot: Json, name: str, kind: type[_T], owner: str) -> list[_T]:
    """Read an entry that is a list of values of one type, as a list of its own.

    >>> entries({"slots": [1, 2]}, "slots", int, "TimestampHistory")
    [1, 2]
    """
    return [_checked(value, name, kind, owner) for value in entry(snapshot, name, list, owner)]


def _checked(value: object, name: str, kind: type[_T], owner: str) -> _T:
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise RecoveryError(f"snapshot of {owner}: entry {name!r} is {value!r}, which is no {kind.__name__}")
    return value
