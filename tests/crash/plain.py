"""Rules of queries without windows: what a filter and a projection make of all rows, late ones too."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from tests.crash.feeds import Event
from tests.crash.replay import RESULTS, Row, Rules

REST = "rest"
"""Name of the directory of the rows that the filter of the first output drops."""


@dataclass(frozen=True)
class PlainRules(Rules):
    """No row is late, and there are no windows; the columns of ``Rules`` describe the feed."""

    windowed: ClassVar[bool] = False
    staged: ClassVar[bool] = False

    @property
    def outputs(self) -> dict[str, list[str]]:
        """Columns of each output by its directory."""
        return {RESULTS: ["id", "sub", "key", "twice"], REST: ["id", "n"]}

    def results(self, accepted: Sequence[Event]) -> dict[str, Counter[Row]]:
        """The expected rows of each output."""
        kept = ((event["id"], event["sub"], event["key"], 2 * event["n"]) for event in accepted if event["n"] > 0)
        return {
            RESULTS: Counter(kept),
            REST: Counter((event["id"], event["n"]) for event in accepted if event["n"] <= 0),
        }


@dataclass(frozen=True)
class MessageRules(Rules):
    """Every message is a row."""

    windowed: ClassVar[bool] = False
    staged: ClassVar[bool] = False

    @property
    def outputs(self) -> dict[str, list[str]]:
        """Its columns."""
        return {RESULTS: list(self.columns)}
