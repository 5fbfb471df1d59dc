"""Snapshots of the time core: typed states, checked when they are read back.

A class with state has ``snapshot()``, which returns its state as a frozen struct that shares nothing mutable with the
living object, and ``restore(snapshot)``, which takes such a struct, or the same after a round trip through JSON. It
takes all of it, or raises and changes nothing. Policies, which users may write, return and take plain JSON.
"""

from __future__ import annotations

from typing import Any, Generic, TypeAlias, TypeVar

import msgspec

from sparkjet.errors import RecoveryError
from sparkjet.known_types import known

Json: TypeAlias = Any
"""A JSON value: None, bool, int, float, str, lists of these, and dicts of these with str keys."""

_State = TypeVar("_State", bound=msgspec.Struct)


class StateReader(Generic[_State]):
    """Reads back the state of one class, and checks every type in it.

    Args:
        kind: The struct.
        owner: The owner of the state, for messages.

    >>> class Counted(msgspec.Struct, frozen=True):
    ...     rows: int
    >>> read = StateReader(Counted, "a counter")
    >>> read({"rows": 7}), read(Counted(8))
    (Counted(rows=7), Counted(rows=8))
    >>> read({"rows": "7"})
    Traceback (most recent call last):
    sparkjet.errors.RecoveryError: [SPARKJET_RECOVERY] snapshot of a counter does not fit: Expected `int`, got ...
    """

    def __init__(self, kind: type[_State], owner: str) -> None:
        self._kind = kind
        self._owner = owner
        # On import: queries that start in parallel would describe the type to msgspec in parallel, which has ended a
        # process with a segmentation fault.
        msgspec.json.Decoder(known(kind))

    def __call__(self, saved: object) -> _State:
        """The state in a snapshot.

        Raises:
            RecoveryError: An entry is missing or of another type.
        """
        try:
            return msgspec.convert(saved, known(self._kind))
        except msgspec.ValidationError as error:
            raise RecoveryError(f"snapshot of {self._owner} does not fit: {error}") from error
