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

# A password in it may contain an @, so up to the last one. Azure's stores have the container there.
_USER = re.compile(r"(?<![a-z0-9+.-])(?!abfss?:|wasbs?:)([a-z][a-z0-9+.-]*://)[^\s/?#\"<>]*@", re.IGNORECASE)


class Place(NamedTuple):
    """The query and epoch a thread works for; the field names are those in its log records.

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
    """A text whose URIs contain no users, and so no passwords: for everything that is shown or logged.

    >>> without_users("hdfs://ann:pw@nn/x, abfss://box@acc.dfs.core.windows.net/x")
    'hdfs://nn/x, abfss://box@acc.dfs.core.windows.net/x'
    """
    return _USER.sub(r"\1", text)


class _Fields(logging.Filter):
    """Adds the fields of :class:`Place` to each record, and removes users from its message."""

    def filter(self, record: logging.LogRecord) -> bool:
        # Not by extra=…, which fails if a user's record factory has set a field of the same name.
        vars(record).update(_place.get()._asdict())
        # A formatting error is for the handler to report.
        with suppress(Exception):
            told = record.getMessage()
            shown = without_users(told)
            if shown != told:
                record.msg, record.args = shown, ()
        return True


class _GridFields(_Fields):
    """Prefixes the grid's lines as well, as the grid is a separate package and knows nothing of queries."""

    def filter(self, record: logging.LogRecord) -> bool:
        record.msg = begun(record.msg)
        return super().filter(record)


def begun(text: object) -> str:
    """A line prefixed with the query that the calling thread works for."""
    query = _place.get().query
    start = "" if query is None else f"query {query}: "
    # A % in the name is not a placeholder; logging looks for these only in lines with arguments.
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
"""The logger for every module, which need not know the query that a line is about."""


def begin(query: object) -> Token[Place]:
    """Have the calling thread work for a query, until :func:`end` or for good."""
    return _place.set(Place(None if query is None else without_users(str(query))))


def current() -> str | None:
    """The query that the calling thread works for; to be passed to threads that it starts."""
    return _place.get().query


def end(token: Token[Place]) -> None:
    """Have the calling thread work for its previous query again."""
    _place.reset(token)


@contextmanager
def within(epoch: int, phase: str | None = None, substream: Sequence[str] | None = None) -> Iterator[None]:
    """Add the epoch, and part of it, to the log records of this block."""
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
