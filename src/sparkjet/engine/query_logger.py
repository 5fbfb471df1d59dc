"""The log of a query: which of several queries of one driver a line is about."""

from __future__ import annotations

import logging
from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    _Adapter = logging.LoggerAdapter[logging.Logger]
else:
    _Adapter = logging.LoggerAdapter


class QueryLogger(_Adapter):
    """Sparkjet's log, with the query at the start of each line.

    Args:
        name: Its name; without one its home, None to leave lines as they are.

    >>> QueryLogger("clicks").process("epoch %d: read again", {})
    ('query clicks: epoch %d: read again', {})
    """

    def __init__(self, name: object = None) -> None:
        super().__init__(logging.getLogger("sparkjet"), {})
        self._start = "" if name is None else f"query {name}: "

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        """The line as it is logged."""
        # A % of the name is no place for an argument; logging looks for them only in lines that have some.
        return f"{self._start.replace('%', '%%') if '%' in msg else self._start}{msg}", kwargs
