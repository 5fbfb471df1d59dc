"""Constants of one epoch, kept out of the code that Spark generates."""

from __future__ import annotations


def constant(value: int, beside: str) -> str:
    """SQL of a long that differs from epoch to epoch; null where ``beside``, a column of longs, is null.

    A literal would be part of the generated code: Spark would compile it, and Java warm it up, again in every epoch,
    which costs more than running it. An array is passed to the code as data, and an index that depends on the row
    keeps the optimizer from folding its element into a literal.

    >>> constant(60, "frame")
    'get(array(60L), cast(frame - frame as int))'
    """
    return f"get(array({value}L), cast({beside} - {beside} as int))"
