"""Counts what the cases contained, so that thin corners can be seen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.differential.cases import SESSIONS, Case
from tests.differential.columns import FUNCTIONS
from tests.differential.known import KNOWN
from tests.differential.marks import POLICY_CALLS, THROTTLES
from tests.differential.outlets import OUTLETS
from tests.differential.queries import HOWS, METHODS
from tests.differential.values import TYPES

OPERATORS = (
    *("tumbling", "sliding", *SESSIONS, "chained windows"),
    *("early results", "early results, marked", "rolling", "rolling windows"),
    *("dropDuplicates", "dropDuplicates by time", "distinct", "dropDuplicatesWithinWatermark", "union"),
    *(f"join {how}" for how in HOWS),
    *(f"window join {how}" for how in HOWS),
    *(f"table {how}" for how in ("inner", "left", "left_semi", "left_anti")),
    *("applyInPandasWithState", "EventTimeTimeout", "ProcessingTimeTimeout"),
    *(f"{method}{more}" for method in METHODS for more in ("", ", initial state")),
    *(f"TTL of a {kind}" for kind in ("value", "list", "map")),
    *("windowless", "several results", "NOT NULL column"),
    *("where", "dropna", "withColumn", "rename", "drop", "explode", "udf function", "pandas function"),
    *(f"policy {name}" for name in POLICY_CALLS),
    *(f"throttle {name}" for name in THROTTLES),
    *("clock", "idleTimeout", "substreamTimeout", "discover"),
    *("late rows", "null event time", "by substream", "substreams not listed", "in one batch", "real stream"),
    *("late rows delivered", "as if many rows"),
    *(f"sink {name}" for name in OUTLETS),
    *("home path", "home grid", "dead letters", "dead letters before the watermark"),
    *("mode append", "mode update", "mode complete"),
    *("then restart", "then stop", "then BEGIN", "then SAVE", "then PREPARE", "then DECIDE", "then COMMIT"),
)


@dataclass
class Coverage:
    """How many queries had what."""

    queries: int = 0
    results: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    """Cases that were not compared, by the beginning of Spark's message."""
    operators: Counter[str] = field(default_factory=Counter)
    aggregates: Counter[str] = field(default_factory=Counter)
    types: Counter[str] = field(default_factory=Counter)

    def add(self, case: Case) -> None:
        """Count a case that was compared."""
        self.queries += 1
        self.results += len(case.branches)
        self.operators.update(set(case.operators()))
        self.aggregates.update(set(case.aggregates()))
        self.types.update(set(case.types()))

    def report(self) -> str:
        """All of it, with zeros for what never came."""
        compared = f"{self.queries} queries with {self.results} results compared"
        lines = [f"{compared}, {self.refused.total()} that Spark's batch refuses"]
        lines += [f"  {number} × {message}" for message, number in self.refused.most_common(5)]
        lines += self._counted("operators", OPERATORS, self.operators)
        lines += self._counted("aggregates", FUNCTIONS, self.aggregates)
        lines += self._counted("types", [each.ddl for each in TYPES], self.types)
        lines += ["not compared:", *(f"  {what}: {why}" for what, why in KNOWN.items())]
        return "\n".join(lines)

    @staticmethod
    def _counted(title: str, names: Iterable[str], found: Counter[str]) -> list[str]:
        return [f"{title}:", *(f"  {found[name]:6} {name}" for name in names)]
