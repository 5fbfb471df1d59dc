"""What an aggregation reads: the columns behind its keys and aggregates, written out down to its source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sparkjet.catalyst.columns import HIDDEN
from sparkjet.catalyst.logical_plans import analyzed, attribute_id, listed, selected
from sparkjet.catalyst.written_out import WrittenOut
from sparkjet.spark_line import LINE_NAME

if TYPE_CHECKING:
    from sparkjet.catalyst.unsaid import Unsaid
    from sparkjet.plan.aggregation import Aggregation


@dataclass(frozen=True)
class Reads:
    """What an aggregation reads, as far as it can be told.

    Attributes:
        keys: How each key is computed, by its name; None if that cannot be compared.
        columns: How each column is computed that an aggregate reads, and its type, by its name.
        of_aggregates: The columns that each aggregate reads.
    """

    keys: Mapping[str, str | None]
    columns: Mapping[str, tuple[str | None, str]]
    of_aggregates: tuple[frozenset[str], ...]

    @staticmethod
    def of(aggregation: Aggregation) -> Reads:
        """That of an aggregation; analysis only."""
        feed = aggregation.feed
        shape = feed.shape
        # Above another stage, rows are what the record says of that one.
        given = [] if feed.parent is None else listed(analyzed(feed.transformations.source).output())
        written = WrittenOut(shape, map(attribute_id, given))
        # Behind divert(…) what has raised is to be mended, and its rows replayed into what the others are in.
        told = written.text if feed.transformations.divert is None else _untold
        keys = {key.name: told(selected(shape, key.column)) for key in aggregation.keys}
        aggregated = listed(analyzed(aggregation.accumulated).expressions())
        found: list[set[str]] = [set() for _ in aggregation.aggregates]
        columns: dict[str, tuple[str | None, str]] = {}
        for expression in aggregated:
            prefix, _, _ = str(expression.name()).partition("_")
            # Besides, rows are counted, and those that an aggregate lacks.
            number = int(prefix.removeprefix("acc")) if prefix.startswith("acc") else len(found)
            for attribute in listed(expression.references().toSeq()) if number < len(found) else ():
                name = str(attribute.name())
                if name in HIDDEN:
                    # The event time, by which first and last choose: how sparkjet computes it is its own.
                    continue
                found[number].add(name)
                if name not in columns:
                    columns[name] = told(attribute), str(attribute.dataType().catalogString())
        return Reads(keys, columns, tuple(map(frozenset, found)))

    @property
    def unsaid(self) -> Unsaid:
        """For the record; with the line of Spark, as another one may write the same in another way."""
        said: dict[str, Any] = {f"key {name}": [LINE_NAME, text] for name, text in self.keys.items()}
        return said | {f"column {name}": [LINE_NAME, *each] for name, each in self.columns.items()}


def _untold(_: Any) -> None:
    """What is not compared."""
