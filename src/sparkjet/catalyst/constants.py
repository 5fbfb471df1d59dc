"""Constants of one epoch, kept out of the code that Spark generates."""

from __future__ import annotations


def constant(value: int, beside: str) -> str:
    """SQL of a long that differs from epoch to epoch; null where ``beside``, a column of longs, is null.

    A literal would stand in the generated code: Spark would compile it, and Java warm it up, anew in every epoch,
    which costs more than running it. An array is handed to the code as data, and an index that depends on the row
    keeps the optimizer from making a literal of its element.

    >>> constant(60, "frame")
    'get(array(60L), cast(frame - frame as int))'
    """
    return f"get(array({value}L), cast({beside} - {beside} as int))"
