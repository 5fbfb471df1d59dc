"""Moments: values that differ from epoch to epoch, such as random numbers and the time, fixed for one epoch."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from py4j.java_gateway import is_instance_of
from pyspark.sql import functions as F

from sparkjet.catalyst.logical_plans import analyzed, children, kind_of, listed
from sparkjet.catalyst.physical_plans import as_frame
from sparkjet.java import as_map

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_CURRENT, _SEEDED = "CURRENT_LIKE", "EXPRESSION_WITH_RANDOM_SEED"
_CHANGING = (_CURRENT, _SEEDED, "PLAN_EXPRESSION", "PYTHON_UDF")
"""Expressions that Spark evaluates during planning, or that may carry state from one run to the next."""
_OF_A_TASK = {
    "InputFileBlockLength",
    "InputFileBlockStart",
    "InputFileName",
    "MonotonicallyIncreasingID",
    "SparkPartitionID",
}
"""Nondeterministic expressions that each task evaluates for itself, whatever plan it runs."""
_TIMES = ("date", "time")
_WITH_SEED = "org.apache.spark.sql.catalyst.expressions.ExpressionWithRandomSeed"


def changes(session: SparkSession, plan: Any) -> bool:
    """Whether an analyzed plan contains anything that must be planned again in each epoch."""
    if _contains(plan, _patterns(session, _CHANGING)):
        return True
    return not plan.deterministic() and any(map(_is_unsteady, _expressions(plan)))


class Moment:
    """The random seeds and the current time of one epoch; on the driver.

    Spark gives each batch of a stream new seeds and the time of the batch. The plans of an epoch are made of Columns
    that were built once, with the seeds of that moment. These are replaced by seeds derived from the epoch's number: it
    is the same when the epoch is run again.

    Args:
        epoch: A text that no other epoch has; None to leave rows as they are, with their own seeds, as Spark runs a
        batch.
        now: Its processing time, in microseconds.
        fixed: Replaces reads of tables that change over time by reads of what the epoch sees.
    """

    def __init__(
        self, epoch: str | None, now: int = 0, fixed: Callable[[DataFrame], DataFrame] = lambda frame: frame
    ) -> None:
        self._epoch = epoch
        self._now = now
        self._fixed = fixed
        self._made: set[int] = set()
        self._times: dict[str, Any] = {}

    def of(self, frame: DataFrame, *name: object) -> DataFrame:
        """The DataFrame with this epoch's seeds and time.

        What already has them is left alone: persisted rows would otherwise be computed again, with other values.
        """
        if self._epoch is None:
            return frame
        frame = self._fixed(frame)
        session, plan = frame.sparkSession, analyzed(frame)
        replaced = []
        for number, expression in enumerate(_expressions(plan, _patterns(session, (_CURRENT, _SEEDED)))):
            found = self._replaced(session, expression, "/".join(map(str, (self._epoch, *name, number))))
            if found is not None:
                replaced.append((expression, found))
        return as_frame(session, plan.transformAllExpressions(as_map(session, replaced))) if replaced else frame

    def _replaced(self, session: SparkSession, expression: Any, name: str) -> Any:
        """The replacement for an expression in this epoch, None if it stays."""
        if is_instance_of(session.sparkContext._gateway, expression, _WITH_SEED):
            if expression.seedExpression().value() in self._made:
                return None
            seed = int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big", signed=True)
            self._made.add(seed)
            return expression.withNewSeed(seed)
        current = _patterns(session, (_CURRENT,))
        if not _contains(expression, current) or any(_contains(each, current) for each in children(expression)):
            return None
        type_name = str(expression.dataType().sql())
        # Not the user, the catalog and so on, which belong to the session.
        return self._time(session, type_name) if type_name.lower().startswith(_TIMES) else None

    def _time(self, session: SparkSession, type_name: str) -> Any:
        if type_name not in self._times:
            time = F.timestamp_micros(F.lit(self._now))
            if type_name.lower().startswith("time("):
                # Spark 4.1 and 4.2 cannot cast a timestamp to a time of day, nor text to one with fewer digits.
                time = F.substring_index(time.cast("string"), " ", -1).cast("time(6)")
            shown = session.range(0).select(time.cast(type_name).alias("now"))
            self._times[type_name] = listed(analyzed(shown).expressions())[0].child()
        return self._times[type_name]


AS_IT_IS = Moment(None)
"""For rows that are not computed by an epoch."""


def _is_unsteady(expression: Any) -> bool:
    """Whether an expression makes a plan give other values each time."""
    if expression.deterministic() or kind_of(expression) in _OF_A_TASK:
        return False
    return all(each.deterministic() for each in children(expression))


def _expressions(plan: Any, patterns: Sequence[Any] = ()) -> Iterator[Any]:
    """All expressions of a plan and their parts, where they have any of the patterns."""
    if patterns and not _contains(plan, patterns):
        return
    for expression in listed(plan.expressions()):
        yield from _parts(expression, patterns)
    for child in children(plan):
        yield from _expressions(child, patterns)


def _parts(expression: Any, patterns: Sequence[Any]) -> Iterator[Any]:
    if not patterns or _contains(expression, patterns):
        yield expression
        for child in children(expression):
            yield from _parts(child, patterns)


def _contains(node: Any, patterns: Sequence[Any]) -> bool:
    return any(node.containsPattern(pattern) for pattern in patterns)


def _patterns(session: SparkSession, names: tuple[str, ...]) -> list[Any]:
    return _tree_patterns(session.sparkContext._gateway, names)


@lru_cache(8)
def _tree_patterns(gateway: Any, names: tuple[str, ...]) -> list[Any]:
    patterns = gateway.jvm.org.apache.spark.sql.catalyst.trees.TreePattern
    return [getattr(patterns, name)() for name in names]
