"""The sources of a query: the streaming DataFrames that it reads, combined into the one that Spark runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from sparkjet.catalyst.columns import CARRIED, SUBSTREAM, TIME, Once, quoted
from sparkjet.catalyst.identities import IdentifiedColumns
from sparkjet.errors import AnalysisError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sparkjet.plan.inputs import Input

_NUMBER = "_sparkjet_source"


@dataclass(frozen=True)
class Source:
    """A user's streaming DataFrame, with the hidden columns if it has a watermark.

    Attributes:
        rows: The DataFrame.
        prefix: Prefix of the names of its substreams in this query; empty if it is the only source.
    """

    rows: DataFrame
    prefix: str = ""

    def named(self, inputs: Sequence[Input]) -> tuple[Input, ...]:
        """Inputs of this source by their names in this query."""
        return tuple(each.below(self.prefix) for each in inputs)


@dataclass(frozen=True)
class Sources:
    """All sources of a query.

    Several sources travel in one DataFrame, each row in the struct of its source: Spark runs one query over them, so
    that their offsets are in one record.
    """

    all: tuple[Source, ...]

    @staticmethod
    def of(named: Mapping[DataFrame, str | None]) -> Sources:
        """The sources of a query."""
        if len(named) == 1:
            return Sources(tuple(map(Source, named)))
        names = [name or str(number) for number, name in enumerate(named.values(), 1)]
        for name in names:
            if names.count(name) > 1:
                message = f"join: two streams are called {name!r}. Give one of them another name with alias(…)."
                raise AnalysisError(message)
        return Sources(tuple(Source(rows, f"{name}/") for rows, name in zip(named, names, strict=True)))

    @property
    def united(self) -> DataFrame:
        """The DataFrame that Spark runs."""
        if len(self.all) == 1:
            return self.all[0].rows
        return reduce(DataFrame.union, [self._tagged(number) for number in range(len(self.all))])

    def rows(self, batch: DataFrame, number: int) -> DataFrame:
        """The rows of one source among a batch of all."""
        if len(self.all) == 1:
            return batch
        columns = self._once("columns", number, build=lambda: self._columns(number))
        return columns.select(batch.where(self._once("of", number, build=lambda: F.col(_NUMBER) == number)))

    @cached_property
    def _once(self) -> Once:
        return Once()

    def _columns(self, number: int) -> IdentifiedColumns:
        rows = self.all[number].rows
        columns = [F.col(name if name in CARRIED else f"row{number}.{quoted(name)}") for name in rows.columns]
        return IdentifiedColumns(columns, rows)

    def _tagged(self, number: int) -> DataFrame:
        structs = []
        for other, each in enumerate(self.all):
            # With the rows that divert(…) has marked.
            row = F.struct(*(F.col(quoted(name)) for name in each.rows.columns if name not in CARRIED))
            absent = F.lit(None).cast(each.rows.drop(*CARRIED).schema)
            structs.append((row if other == number else absent).alias(f"row{other}"))
        source = self.all[number]
        if TIME in source.rows.columns:
            # Under a separate identity, like the others: the rows of this source get theirs back in `_columns`.
            hidden = [F.col(TIME).alias(TIME), F.concat(F.lit(source.prefix), F.col(SUBSTREAM)).alias(SUBSTREAM)]
        else:
            hidden = [F.lit(None).cast("long").alias(TIME), F.lit(source.prefix).alias(SUBSTREAM)]
        return source.rows.select(F.lit(number).alias(_NUMBER), *structs, *hidden)
