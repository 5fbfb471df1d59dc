"""The columns that an aggregation reads for its keys and aggregates, written out down to their source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
    """The columns that an aggregation reads, as far as they can be determined.

    Attributes:
        inputs: The number of inputs that are united below.
        keys: How each key is computed in each input, by its name; None if that cannot be compared.
        columns: How each column that an aggregate reads is computed in each input, and its type, by its name.
        of_aggregates: The columns that each aggregate reads.
    """

    inputs: int
    keys: Mapping[str, Sequence[str | None]]
    columns: Mapping[str, tuple[Sequence[str | None], str]]
    of_aggregates: tuple[frozenset[str], ...]

    @staticmethod
    def of(aggregation: Aggregation) -> Reads:
        """The columns that an aggregation reads; analysis only."""
        feed = aggregation.feed
        shape = feed.shape
        # Above another stage, the record describes rows by that stage.
        given = [] if feed.parent is None else listed(analyzed(feed.transformations.source).output())
        written = WrittenOut(shape, map(attribute_id, given))
        # After divert(…), a failing expression is meant to be fixed, and its rows replayed into the same state.
        told = written.texts if feed.transformations.divert is None else _untold
        keys = {key.name: told(selected(shape, key.column)) for key in aggregation.keys}
        aggregated = listed(analyzed(aggregation.accumulated).expressions())
        found: list[set[str]] = [set() for _ in aggregation.aggregates]
        columns: dict[str, tuple[Sequence[str | None], str]] = {}
        for expression in aggregated:
            prefix, _, _ = str(expression.name()).partition("_")
            # The other columns count rows, and rows that an aggregate lacks.
            number = int(prefix.removeprefix("acc")) if prefix.startswith("acc") else len(found)
            for attribute in listed(expression.references().toSeq()) if number < len(found) else ():
                name = str(attribute.name())
                if name in HIDDEN:
                    # The event time, by which first and last choose: how sparkjet computes it is an internal matter.
                    continue
                found[number].add(name)
                if name not in columns:
                    columns[name] = told(attribute), str(attribute.dataType().catalogString())
        inputs = written.inputs if told is not _untold else 1
        return Reads(inputs, keys, columns, tuple(map(frozenset, found)))

    @property
    def unsaid(self) -> Unsaid:
        """The entries for the record, with Spark's line, as another one may write the same expression differently."""
        said: dict[str, Any] = {} if self.inputs == 1 else {"inputs": self.inputs}
        for name, texts in self.keys.items():
            said |= {f"key {name}{which}": [LINE_NAME, text] for which, text in _differing(texts)}
        for name, (texts, kind) in self.columns.items():
            said |= {f"column {name}{which}": [LINE_NAME, text, kind] for which, text in _differing(texts)}
        return said


def of_input(number: int) -> str:
    """The suffix for an input after the name of a key or column; without an entry, it is like the first input."""
    return f", input {number + 1}" if number else ""


def _differing(texts: Sequence[str | None]) -> list[tuple[str, str | None]]:
    """How something is computed in the first input, and in those inputs that compute it differently."""
    return [(of_input(number), text) for number, text in enumerate(texts) if number == 0 or text != texts[0]]


def _untold(_: Any) -> list[None]:
    """None, for an expression that is not compared."""
    return [None]
