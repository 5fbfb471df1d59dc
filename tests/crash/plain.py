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


DEAD = "dead"
"""Name of the directory of dead letters."""


@dataclass(frozen=True)
class DivertedRules(PlainRules):
    """Rows whose ``n`` is a multiple of seven fail; those whose ``id`` is one of five do not meet an expectation."""

    @property
    def outputs(self) -> dict[str, list[str]]:
        """Columns of each output by its directory."""
        return {RESULTS: ["id", "sub", "key", "twice"], DEAD: ["id", "n", "_error"]}

    def results(self, accepted: Sequence[Event]) -> dict[str, Counter[Row]]:
        """The expected rows of each output."""
        said = {event["id"]: self.error(event) for event in accepted}
        kept = ((each["id"], each["sub"], each["key"], 2 * each["n"]) for each in accepted if not said[each["id"]])
        dead = ((each["id"], each["n"], said[each["id"]]) for each in accepted if said[each["id"]])
        return {RESULTS: Counter(kept), DEAD: Counter(dead)}

    @staticmethod
    def error(event: Event) -> str:
        """The complaint about a row; none about a good one."""
        if event["n"] % 7 == 0:
            return "USER_RAISED_EXCEPTION"
        return "EXPECTATION_VIOLATION" if event["id"] % 5 == 0 else ""


@dataclass(frozen=True)
class MessageRules(Rules):
    """Every message is a row."""

    windowed: ClassVar[bool] = False
    staged: ClassVar[bool] = False

    @property
    def outputs(self) -> dict[str, list[str]]:
        """Its columns."""
        return {RESULTS: list(self.columns)}
