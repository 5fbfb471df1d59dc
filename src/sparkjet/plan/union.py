"""The union of two streams, read in one query while each keeps its own watermark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from sparkjet.catalyst.columns import CARRIED, SUBSTREAM, quoted, visible
from sparkjet.plan.transformations import Link, Transformations

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_SIDE = "_sparkjet_side"


def united(left: Transformations, right: Transformations, names: tuple[str, str]) -> Transformations:
    """The chain of the union; substreams of each side get its name in front.

    Two sides that keep all their rows are united before Spark runs them, as the watermark sees every row even after
    their transformations. Otherwise the rows travel side by side and are transformed batch by batch.
    """
    if all(side.keeps_rows and side.passes == 1 for side in (left, right)):
        sides = [_prefixed(side.apply(side.source), name) for side, name in zip((left, right), names, strict=True)]
        source = _aligned(sides[0], sides[0]).union(_aligned(sides[1], sides[0]))
        return Transformations(source, source)
    sources = [_prefixed(left.source, names[0]), _prefixed(right.source, names[1])]
    tagged = [_tagged(source, side, sources) for side, source in enumerate(sources)]

    def expand(batch: DataFrame) -> DataFrame:
        rows = [
            chain.apply(batch.where(F.col(_SIDE) == side).select(f"row{side}.*", *CARRIED))
            for side, chain in enumerate((left, right))
        ]
        return _aligned(rows[0], rows[0]).union(_aligned(rows[1], rows[0]))

    source = tagged[0].union(tagged[1])
    link = Link(expand, None, filters=True)
    return Transformations(
        source, expand(source), (link,), keeps_rows=False, markable=False, passes=left.passes + right.passes
    )


def _prefixed(source: DataFrame, name: str) -> DataFrame:
    return source.withColumn(SUBSTREAM, F.concat(F.lit(f"{name}/"), F.col(SUBSTREAM)))


def _tagged(source: DataFrame, side: int, sources: list[DataFrame]) -> DataFrame:
    """One side of a union of rows that are still different: each in a struct of its own."""
    structs = []
    for number, each in enumerate(sources):
        row = F.struct(*(F.col(quoted(name)) for name in visible(each)))
        absent = F.lit(None).cast(each.drop(*CARRIED).schema)
        structs.append((row if number == side else absent).alias(f"row{number}"))
    return source.select(F.lit(side).alias(_SIDE), *structs, *CARRIED)


def _aligned(rows: DataFrame, like: DataFrame) -> DataFrame:
    """The visible columns under the names of ``like``, then the hidden ones, as a union by position needs them."""
    named = zip(visible(rows), visible(like), strict=True)
    return rows.select(*(F.col(quoted(name)).alias(other) for name, other in named), *CARRIED)
