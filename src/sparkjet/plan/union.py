"""The union of two streams: read by one query, while each keeps a separate watermark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from sparkjet.catalyst.columns import CARRIED, SIDE, SUBSTREAM, quoted, visible
from sparkjet.plan.transformations import Link, Transformations

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def united(left: Transformations, right: Transformations, names: tuple[str, str]) -> Transformations:
    """The chain of the union; substreams are prefixed with the name of their side.

    Two sides that keep all their rows are united in Spark's plan, as the watermark sees every row even after their
    transformations. Otherwise rows of both sides are read in parallel, and transformed batch by batch.
    """
    bare = left.bare.shape.union(right.bare.shape)
    below = Transformations(bare, bare)
    if all(side.keeps_rows and side.passes == 1 for side in (left, right)):
        sides = [_prefixed(side.apply(side.source), name) for side, name in zip((left, right), names, strict=True)]
        source = _aligned(sides[0], sides[0]).union(_aligned(sides[1], sides[0]))
        return Transformations(source, source, below=below)
    sources = [_prefixed(left.source, names[0]), _prefixed(right.source, names[1])]
    tagged = [_tagged(source, side, sources) for side, source in enumerate(sources)]

    def expand(batch: DataFrame) -> DataFrame:
        rows = [
            chain.apply(batch.where(F.col(SIDE) == side).select(f"row{side}.*", *CARRIED))
            for side, chain in enumerate((left, right))
        ]
        return _aligned(rows[0], rows[0]).union(_aligned(rows[1], rows[0]))

    source = tagged[0].union(tagged[1])
    link = Link(expand, None, filters=True)
    return Transformations(
        source,
        expand(source),
        (link,),
        keeps_rows=False,
        markable=False,
        passes=left.passes + right.passes,
        below=below,
        covered=1,
    )


def _prefixed(source: DataFrame, name: str) -> DataFrame:
    return source.withColumn(SUBSTREAM, F.concat(F.lit(f"{name}/"), F.col(SUBSTREAM)))


def _tagged(source: DataFrame, side: int, sources: list[DataFrame]) -> DataFrame:
    """One side of a union whose rows still have different schemas: each side in a separate struct."""
    structs = []
    for number, each in enumerate(sources):
        row = F.struct(*(F.col(quoted(name)) for name in visible(each)))
        absent = F.lit(None).cast(each.drop(*CARRIED).schema)
        structs.append((row if number == side else absent).alias(f"row{number}"))
    return source.select(F.lit(side).alias(SIDE), *structs, *CARRIED)


def _aligned(rows: DataFrame, target: DataFrame) -> DataFrame:
    """The visible columns under the names of ``target``, then the hidden ones, for a union by position."""
    named = zip(visible(rows), visible(target), strict=True)
    return rows.select(*(F.col(quoted(name)).alias(other) for name, other in named), *CARRIED)
