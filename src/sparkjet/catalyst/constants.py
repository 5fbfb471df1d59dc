"""Constants of one epoch, kept out of the code that Spark generates."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import Column

_used: ContextVar[list[int] | None] = ContextVar("used constants", default=None)


def constant(value: int, beside: str) -> str:
    """SQL of a long that differs from epoch to epoch; null where ``beside``, a column of longs, is null.

    A literal would be part of the generated code: in every epoch, Spark would compile it and Java warm it up again,
    which costs more than running it. An array is passed to the code as data, and an index that depends on the row keeps
    the optimizer from folding its element into a literal.

    >>> constant(60, "frame")
    'get(array(60L), cast(frame - frame as int))'
    """
    used = _used.get()
    if used is not None:
        used.append(value)
    return f"get(array({value}L), cast({beside} - {beside} as int))"


def older(time: str, than: int | None) -> Column:
    """Whether a time (a column of longs) is below a constant; false for every time if there is no constant."""
    return F.lit(False) if than is None else F.expr(f"{time} < {constant(than, time)}")


@contextmanager
def recorded() -> Iterator[list[int]]:
    """The constants used in the meantime, in this thread, as a list."""
    used: list[int] = []
    token = _used.set(used)
    try:
        yield used
    finally:
        _used.reset(token)
