"""Attributes that do not exist, answered with advice on what to do instead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from sparkjet.errors import missing


class Guided:
    """Answers a request for a missing attribute with what to do instead, or else with the nearest name.

    Attributes:
        _alternatives: What to do instead of Spark methods that are not offered.
    """

    _alternatives: ClassVar[Mapping[str, str]] = {}

    if not TYPE_CHECKING:
        # Hidden from type checkers: they would accept every misspelled name, and skip all code after it.
        def __getattr__(self, name: str) -> Any:
            kind = type(self)
            if hasattr(kind, name):
                # A property that raised AttributeError: show its own message, instead of saying that there is no such
                # attribute.
                return object.__getattribute__(self, name)
            if name.startswith("_"):
                # Without touching the object: Python requests some attributes before __init__ has run.
                raise missing(kind.__name__, name, (), self._alternatives.get(name))
            found = self._found(name)
            if found is not None:
                return found
            known = [*self._names(), *(each for each in dir(kind) if not each.startswith("_"))]
            raise missing(kind.__name__, name, known, self._way_out(name))

    def _found(self, name: str) -> object:
        """The meaning of a name that the class does not have; None if it has none."""
        del name
        return None

    def _names(self) -> Sequence[str]:
        """Names that have a meaning although the class does not have them."""
        return ()

    def _way_out(self, name: str) -> str | None:
        """The alternative to an attribute that is not offered; None if only the nearest name can help."""
        return self._alternatives.get(name)
