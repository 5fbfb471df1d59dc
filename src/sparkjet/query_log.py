"""The log: each line begins with the query that it is about, as a driver may run several."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, MutableMapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar, Token
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    _Adapter = logging.LoggerAdapter[logging.Logger]
else:
    _Adapter = logging.LoggerAdapter

# A password in it may have an @, so up to the last one. Azure's stores have the container there.
_USER = re.compile(r"(?<![a-z0-9+.-])(?!abfss?:|wasbs?:)([a-z][a-z0-9+.-]*://)[^\s/?#\"<>]*@", re.IGNORECASE)


class Place(NamedTuple):
    """What a thread works for; the names of the fields that its log records have.

    Attributes:
        query: The query's name, or its home.
        epoch: The epoch's number.
        phase: The epoch's phase, a key of ``durationMs``.
        substream: The substreams that a line is about.
    """

    query: str | None = None
    epoch: int | None = None
    phase: str | None = None
    substream: Sequence[str] | None = None


_place: ContextVar[Place] = ContextVar("sparkjet place", default=Place())  # noqa: B039 - it does not change


def without_users(text: str) -> str:
    """A text whose URIs have no user in them, and so no password: for all that is shown or logged.

    >>> without_users("hdfs://ann:pw@nn/x, abfss://box@acc.dfs.core.windows.net/x")
    'hdfs://nn/x, abfss://box@acc.dfs.core.windows.net/x'
    """
    return _USER.sub(r"\1", text)


class _Fields(logging.Filter):
    """Adds the fields of :class:`Place` to each record, and takes users out of what it says."""

    def filter(self, record: logging.LogRecord) -> bool:
        # Not by extra=…, which fails where a factory of the user's records has set a field of the same name.
        vars(record).update(_place.get()._asdict())
        # What cannot be formatted is the handler's to tell.
        with suppress(Exception):
            told = record.getMessage()
            shown = without_users(told)
            if shown != told:
                record.msg, record.args = shown, ()
        return True


class _GridFields(_Fields):
    """Begins the lines of the grid as well, which is a package of its own and knows of no queries."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg = begun(record.msg)
        return super().filter(record)


def begun(text: object) -> str:
    """A line with the query that the calling thread works for at its start."""
    query = _place.get().query
    start = "" if query is None else f"query {query}: "
    # A % of the name is no place for an argument; logging looks for them only in lines that have some.
    return f"{start.replace('%', '%%') if '%' in str(text) else start}{text}"


class QueryLogger(_Adapter):
    """Sparkjet's log, with the query that the calling thread works for at the start of each line.

    >>> with about("clicks"):
    ...     logger.process("epoch %d: read again", {})
    ('query clicks: epoch %d: read again', {})
    >>> logger.process("epoch %d: read again", {})
    ('epoch %d: read again', {})
    """

    def __init__(self) -> None:
        log = logging.getLogger("sparkjet")
        log.addFilter(_Fields())
        logging.getLogger("sparkjet.grid").addFilter(_GridFields())
        super().__init__(log, {})

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        """The line as it is logged."""
        return begun(msg), kwargs


logger = QueryLogger()
"""What every module logs by; which query a line is about, it does not have to know."""


def begin(query: object) -> Token[Place]:
    """Have the calling thread work for a query, until :func:`end` or for good."""
    return _place.set(Place(None if query is None else without_users(str(query))))


def current() -> str | None:
    """What the calling thread works for; for the threads that it starts."""
    return _place.get().query


def end(token: Token[Place]) -> None:
    """Have the calling thread work for what it worked for before."""
    _place.reset(token)


@contextmanager
def within(epoch: int, phase: str | None = None, substream: Sequence[str] | None = None) -> Iterator[None]:
    """Have the records of this block say which epoch they are about, and what of it."""
    token = _place.set(Place(_place.get().query, epoch, phase, substream))
    try:
        yield
    finally:
        end(token)


@contextmanager
def about(query: object) -> Iterator[None]:
    """Have the calling thread work for a query in this block."""
    token = begin(query)
    try:
        yield
    finally:
        end(token)
