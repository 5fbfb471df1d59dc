"""The notation of the cells: tokens, calls, and numbers."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

from sparkjet.time import MAX, MIN
from tests.conformance.verdicts import NotationError

ARROW = "->"
"""Separates an operation from its output."""
_BREAK = re.compile(r"<br\s*/?>", re.IGNORECASE)
_EQUALS = re.compile(r"\s*=\s*")
_CALL = re.compile(r"([A-Za-z][\w-]*)\((.*)\)", re.DOTALL)
_NESTED = re.compile(r"\([^()]*\)")
_INTEGER = re.compile(r"[+-]?\d+")
_LIMIT = re.compile(r"(MIN|MAX)([+-]?\d+)?")
_DECIMAL = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)(e[+-]?\d+)?", re.IGNORECASE)


def split(text: str, separators: str) -> list[str]:
    """Split at separators outside of parentheses; empty pieces are dropped.

    Raises:
        NotationError: The parentheses do not match.

    >>> split("e(a, 1) w(4)", " ")
    ['e(a, 1)', 'w(4)']
    """
    pieces = [""]
    depth = 0
    for character in text:
        depth += (character == "(") - (character == ")")
        if depth < 0:
            break
        if depth == 0 and (character in separators or (character.isspace() and " " in separators)):
            pieces.append("")
        else:
            pieces[-1] += character
    if depth:
        raise NotationError(f"parentheses do not match: {text}")
    return [piece.strip() for piece in pieces if piece.strip()]


def tokens(text: str) -> list[str]:
    """The tokens of a cell, separated by blanks, semicolons or ``<br>``; bare parentheses contain a comment.

    An arrow is its own token, an equals sign part of one.

    >>> tokens("@5 ev(0,100)->w(97)<br>cur = 5 ; late=1 (one partial, however many events)")
    ['@5', 'ev(0,100)', '->', 'w(97)', 'cur=5', 'late=1']
    """
    text = _EQUALS.sub("=", _BREAK.sub(" ", text)).replace(ARROW, f" {ARROW} ")
    return [token for token in split(text, "; ") if not token.startswith("(")]


@dataclass(frozen=True)
class Call:
    """A token such as ``e(a,0,1)``."""

    name: str
    arguments: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.name}({','.join(self.arguments)})"

    def take(self, least: int, most: int | None = None) -> tuple[str, ...]:
        """The arguments, checked for their number.

        Raises:
            NotationError: There are fewer or more.
        """
        if not least <= len(self.arguments) <= (least if most is None else most):
            raise NotationError(f"{self}: wrong number of arguments")
        return self.arguments


def call(token: str) -> Call:
    """Read a token as a call.

    Raises:
        NotationError: It is none.

    >>> call("restore(win(3,1))")
    Call(name='restore', arguments=('win(3,1)',))
    """
    match = _CALL.fullmatch(token)
    if match is None:
        raise NotationError(f"not understood: {token}")
    if match[2].strip() and any(not argument.strip() for argument in _NESTED.sub("nested", match[2]).split(",")):
        raise NotationError(f"{token}: an argument is empty")
    return Call(match[1], tuple(split(match[2], ",")))


def integer(text: str) -> int:
    """A whole number: digits, or MIN, MAX, MIN5 and MIN+5, MAX5 and MAX-5.

    Raises:
        NotationError: It is none.

    >>> integer("-4"), integer("MIN5") - MIN
    (-4, 5)
    """
    if _INTEGER.fullmatch(text):
        return int(text)
    match = _LIMIT.fullmatch(text)
    if match is None:
        raise NotationError(f"not a whole number: {text}")
    distance = abs(int(match[2] or 0))
    return MIN + distance if match[1] == "MIN" else MAX - distance


def show(number: int) -> str:
    """A whole number in the notation.

    >>> show(5), show(MIN), show(MAX)
    ('5', 'MIN', 'MAX')
    """
    return {MIN: "MIN", MAX: "MAX"}.get(number, str(number))


def value(text: str) -> Fraction:
    """A value or result, which may have decimals.

    Raises:
        NotationError: It is not a number.

    >>> value("2.5"), value("-3")
    (Fraction(5, 2), Fraction(-3, 1))
    """
    if _DECIMAL.fullmatch(text):
        return Fraction(text)
    return Fraction(integer(text))
