"""The columns of a row as DDL: anything else is refused in terms of its option.

Only Spark's JVM reads DDL, and it gets that of a whole envelope: its error names neither the option nor the columns.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from sparkjet.errors import AnalysisError, nearest

_SKIPPED = r"(?:\s|--[^\n]*\n|/\*.*?\*/)*"
_TOKEN = re.compile(
    _SKIPPED + r"(`(?:[^`]|``)+`|[A-Za-z0-9_]+|'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|[<>(),:])" + _SKIPPED, re.DOTALL
)
_END = ""
_SIMPLE = (
    *("bigint", "binary", "boolean", "byte", "date", "double", "float", "int", "integer", "long", "real", "short"),
    *("smallint", "string", "timestamp", "timestamp_ltz", "timestamp_ntz", "tinyint", "variant", "void"),
)
_SIZES = {
    **dict.fromkeys(("char", "character", "varchar"), (1, 1)),
    **dict.fromkeys(("dec", "decimal", "numeric"), (0, 2)),
    "time": (0, 1),
}
"""How many numbers in parentheses follow a type, at least and at most."""
_NESTED = ("array", "map", "struct")
_FURTHER = {
    "interval": {"year", "month", "day", "hour", "minute", "second", "to"},
    "timestamp": {"with", "without", "local", "time", "zone"},
}
"""Words that may follow a type."""
_TYPES = {*_SIMPLE, *_SIZES, *_NESTED, "interval"}
_DIGITS = 38


def check_columns(text: str, option: str) -> None:
    """Refuse what Spark would not read as columns.

    >>> check_columns("id bigint NOT NULL, `a b` array<struct<c: decimal(10, 2)>> COMMENT 'd'", "value.schema")
    >>> check_columns("id", "value.schema")
    Traceback (most recent call last):
    sparkjet.errors.AnalysisError: [SPARKJET_ANALYSIS] option: value.schema='id': the column id has no type. ...

    Raises:
        AnalysisError: It is none.
    """
    try:
        parser = _Parser(text)
        parser.columns(_END)
    except ValueError as error:
        message = f'option: {option}={text!r}: {error}. Give the columns as DDL, such as "id bigint, name string".'
        raise AnalysisError(message) from None


class _Parser:
    """Goes through a text once; raises ValueError at what does not belong there."""

    def __init__(self, text: str) -> None:
        self._tokens = _tokens(text)
        self._next = next(self._tokens)

    def columns(self, end: str) -> None:
        """Columns, and what follows them."""
        while True:
            name = self._name()
            if self._next == ":":
                self._take()
            if self._next in {",", ">", _END}:
                message = f"the column {name} has no type"
                raise ValueError(message)
            self._type()
            self._rest()
            if self._next == end:
                break
            self._take(",")
        if end != _END:
            self._take(end)

    def _name(self) -> str:
        token = self._take()
        if token[:1] != "`" and (not token.replace("_", "a").isalnum() or token.isdecimal()):
            message = f"{token!r} is not the name of a column" if token else "a column is missing at its end"
            raise ValueError(message)
        return token

    def _type(self) -> None:
        kind = self._take().lower()
        if kind not in _TYPES:
            message = f"{kind!r} is not a type; {nearest(kind, sorted(_TYPES))}"
            raise ValueError(message)
        if kind == "struct":
            self._take("<")
            if self._next == ">":
                self._take()
            else:
                self.columns(">")
        elif kind in _NESTED:
            self._take("<")
            self._type()
            if kind == "map":
                self._take(",")
                self._type()
            self._take(">")
        elif kind in _SIZES:
            self._sizes(kind, *_SIZES[kind])
        elif kind == "string" and self._next.lower() == "collate":
            self._take()
            self._name()
        while self._next.lower() in _FURTHER.get(kind, ()):
            self._take()

    def _sizes(self, kind: str, least: int, most: int) -> None:
        if self._next != "(" and least == 0:
            return
        self._take("(")
        numbers = [self._number(kind)]
        while self._next == "," and len(numbers) < most:
            self._take()
            numbers.append(self._number(kind))
        self._take(")")
        if most > 1 and numbers[0] > _DIGITS:
            message = f"{kind}({numbers[0]}) has more than {_DIGITS} digits"
            raise ValueError(message)

    def _number(self, kind: str) -> int:
        token = self._take()
        if not token.isdecimal():
            message = f"{token!r} is not a size of {kind}"
            raise ValueError(message)
        return int(token)

    def _rest(self) -> None:
        if self._next.lower() == "not":
            self._take()
            if self._take().lower() != "null":
                message = "NULL is missing after NOT"
                raise ValueError(message)
        if self._next.lower() == "comment":
            self._take()
            if self._take()[:1] not in {"'", '"'}:
                message = "a text is missing after COMMENT"
                raise ValueError(message)

    def _take(self, wanted: str | None = None) -> str:
        token = self._next
        if wanted is not None and token != wanted:
            message = f"{wanted!r} is missing " + (f"before {token!r}" if token else "at its end")
            raise ValueError(message)
        self._next = next(self._tokens, _END)
        return token


def _tokens(text: str) -> Iterator[str]:
    position = 0
    while text[position:].strip():
        found = _TOKEN.match(text, position)
        if found is None:
            message = f"{text[position:].split(maxsplit=1)[0]!r} does not belong there"
            raise ValueError(message)
        yield found[1]
        position = found.end()
    yield _END
