"""Constants of one epoch, kept out of the code that Spark generates."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import Column


def constant(value: int, beside: Column) -> Column:
    """A long that differs from epoch to epoch; null where ``beside``, a long of the same row, is null.

    A literal would stand in the generated code: Spark would compile it, and Java warm it up, anew in every epoch,
    which costs more than running it. An array is handed to the code as data, and an index that depends on the row
    keeps the optimizer from making a literal of its element.
    """
    return F.get(F.expr(f"array({value}L)"), (beside - beside).cast("int"))
