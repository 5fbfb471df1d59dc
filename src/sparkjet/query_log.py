"""The log: each line begins with the query that it is about, as a driver may run several."""

from __future__ import annotations

import logging
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from contextvars import ContextVar, Token
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    _Adapter = logging.LoggerAdapter[logging.Logger]
else:
    _Adapter = logging.LoggerAdapter

_query: ContextVar[str | None] = ContextVar("sparkjet query", default=None)


class QueryLogger(_Adapter):
    """Sparkjet's log, with the query that the calling thread works for at the start of each line.

    >>> with about("clicks"):
    ...     logger.process("epoch %d: read again", {})
    ('query clicks: epoch %d: read again', {})
    >>> logger.process("epoch %d: read again", {})
    ('epoch %d: read again', {})
    """

    def __init__(self) -> None:
        super().__init__(logging.getLogger("sparkjet"), {})

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        """The line as it is logged."""
        query = _query.get()
        start = "" if query is None else f"query {query}: "
        # A % of the name is no place for an argument; logging looks for them only in lines that have some.
        return f"{start.replace('%', '%%') if '%' in str(msg) else start}{msg}", kwargs


logger = QueryLogger()
"""What every module logs by; which query a line is about, it does not have to know."""


def begin(query: object) -> Token[str | None]:
    """Have the calling thread work for a query, until :func:`end` or for good."""
    return _query.set(None if query is None else str(query))


def current() -> str | None:
    """What the calling thread works for; for the threads that it starts."""
    return _query.get()


def end(token: Token[str | None]) -> None:
    """Have the calling thread work for what it worked for before."""
    _query.reset(token)


@contextmanager
def about(query: object) -> Iterator[None]:
    """Have the calling thread work for a query in this block.

    Args:
        query: Its name; without one its home.
    """
    token = begin(query)
    try:
        yield
    finally:
        end(token)
