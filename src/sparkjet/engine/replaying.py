"""Replays: the dead letters of a query pass through it once more, in a separate epoch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from pyspark.errors import AnalysisException as SparkAnalysisError
from pyspark.sql import functions as F

from sparkjet.catalyst.columns import quoted
from sparkjet.errors import AnalysisError
from sparkjet.plan.diverting import OUTPUTS
from sparkjet.plan.replaying import letters_of
from sparkjet.query_log import logger
from sparkjet.sinks.manifest import MANIFEST_DIRECTORY
from sparkjet.storage.posix_directory import as_directory

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import DataType

    from sparkjet.plan.plan import Plan
    from sparkjet.plan.replaying import Replaying
    from sparkjet.snapshots.record import Record

Ranges: TypeAlias = list[tuple[int, int]]
"""Epochs as ranges, from the first to the last of each."""


@dataclass(frozen=True)
class Replay:
    """Dead letters on their way through a query.

    Attributes:
        plan: The plan of their epoch.
        letters: The rows.
        output: The output that had them.
        epochs: The epochs from which they come.
        drops_late: Whether to continue if windows of some of them are closed.
    """

    plan: Plan
    letters: DataFrame
    output: str
    epochs: Ranges
    drops_late: bool

    def check(self, late: int) -> None:
        """Report how many are late for their windows, before anything has changed."""
        if not late:
            return
        message = f"replay_dead_letters: {late} rows are late: by the record's watermark their windows are closed"
        if not self.drops_late:
            message += (
                '. Nothing was replayed. With late="drop" the others are replayed, and these are dropped, counted and '
                "delivered to lateRows, as any late rows are."
            )
            raise AnalysisError(message)
        logger.warning("%s, and they are dropped.", message)

    def noted(self, replayed: dict[str, Ranges]) -> dict[str, Ranges]:
        """The replays in a record, with this one added."""
        return {**replayed, self.output: united([*replayed.get(self.output, ()), *self.epochs])}


@dataclass(frozen=True)
class ReplayRequest:
    """A user's request for a replay.

    Attributes:
        given: The rows; a function if they are read from a directory, once it is known what was published there.
        directory: The directory; None for given rows.
        replaying: The query.
        drops_late: As in :class:`Replay`.
    """

    given: Callable[[], DataFrame]
    directory: str | None
    replaying: Replaying
    drops_late: bool

    def replay(self, record: Record) -> Replay | None:
        """The replay to run after a record; None if there is nothing to replay."""
        output = self.replaying.dead.name
        before = record.replayed.get(output, [])
        if self.directory is not None:
            self._check_directory(record)
        letters = letters_of(self.given(), self.replaying.columns)
        found = [row[0] for row in letters.select("_epoch").distinct().collect()]
        epochs = sorted(epoch for epoch in found if epoch is not None)
        if None in found or (epochs and epochs[-1] > record.epoch):
            of = "without a number in _epoch" if None in found else f"of epoch {epochs[-1]}"
            message = (
                f"replay_dead_letters: there are rows {of}, and the query's record is of epoch {record.epoch}. Give "
                "dead letters of this query, from this home."
            )
            raise AnalysisError(message)
        fresh = [epoch for epoch in epochs if not contains(before, epoch)]
        if self.directory is None and len(fresh) < len(epochs):
            again = [epoch for epoch in epochs if epoch not in fresh]
            message = (
                f"replay_dead_letters: dead letters of epochs {again} were replayed before, and would count twice. "
                'Leave them out: where("_epoch NOT IN (…)").'
            )
            raise AnalysisError(message)
        if not fresh:
            logger.info("replay_dead_letters: there are no dead letters that were not replayed before")
            return None
        chosen = letters.where(F.col("_epoch").isin(fresh))
        self._check_outputs(chosen)
        self._check_types(chosen)
        logger.info("replay_dead_letters: rows of epochs %s are replayed", fresh)
        # A directory has all dead letters of epochs up to its newest.
        ranges = [(0, epochs[-1])] if self.directory is not None else [(epoch, epoch) for epoch in fresh]
        return Replay(self.replaying.plan_of(chosen), chosen, output, united(ranges), self.drops_late)

    def _check_outputs(self, letters: DataFrame) -> None:
        """Refuse rows of outputs that the query no longer has: they would go nowhere, and count as replayed."""
        lacking = [row[0] for row in letters.select(OUTPUTS).distinct().collect()]
        named = {name for each in lacking for name in ([] if each is None else each.split(", "))}
        known = self.replaying.reached
        if None not in lacking and named <= known:
            return
        others = ", ".join(sorted(named - known)) or "null"
        message = (
            f"replay_dead_letters: there are rows that are lacking in {others} by {OUTPUTS}, and the outputs after "
            f"divert(…) are {', '.join(sorted(known))}. Nothing was replayed. Start the query with the writers that it "
            f"had; or give a DataFrame with the names of these outputs in {OUTPUTS}."
        )
        raise AnalysisError(message)

    def _check_types(self, letters: DataFrame) -> None:
        """Refuse values that do not fit a column's type of today: the start would fail with the error of a cast."""
        # Columns that are added to a row come after its own.
        pairs = zip(letters.schema, self.replaying.columns.schema, strict=False)
        others = {
            given.name: today.dataType
            for given, today in pairs
            if given.dataType.simpleString() != today.dataType.simpleString()
        }
        if not others:
            return
        try:
            asked = letters.agg(*(_unfit(name, kind) for name, kind in others.items()))
        except SparkAnalysisError as error:
            # The rest of it is the plan.
            reason, *_ = str(error).split(" SQLSTATE", 1)
            message = (
                f"replay_dead_letters: the rows have other types than the columns have today: {reason} Nothing "
                f"was replayed. Give a DataFrame in which {', '.join(others)} are as in the query at divert(…)."
            )
            raise AnalysisError(message) from error
        for name, count in asked.collect()[0].asDict().items():
            if count:
                message = (
                    f"replay_dead_letters: {count} rows have a {letters.schema[name].dataType.simpleString()} in "
                    f"{name!r} that is not a {others[name].simpleString()}, as the column is today. Nothing was "
                    f'replayed. Give a DataFrame in which it is: withColumn("{name}", …).'
                )
                raise AnalysisError(message)

    def _check_directory(self, record: Record) -> None:
        assert self.directory is not None  # noqa: S101 - as its caller knows
        queries = as_directory(Path(self.directory)).below(MANIFEST_DIRECTORY).names()
        others = sorted({*queries} - {record.query})
        if others:
            message = (
                f"replay_dead_letters: {self.directory} has dead letters of another query, {others[0]}, whose epochs "
                "say nothing here. Give a DataFrame of those that are wanted, with numbers of epochs in _epoch that "
                "this query has and has not replayed."
            )
            raise AnalysisError(message)


def contains(ranges: Iterable[tuple[int, int]], epoch: int) -> bool:
    """Whether an epoch is in one of some ranges.

    >>> contains([(1, 3)], 3), contains([(1, 3)], 4)
    (True, False)
    """
    return any(first <= epoch <= last for first, last in ranges)


def _unfit(name: str, kind: DataType) -> Column:
    """The number of rows with a value in a column that does not fit another type."""
    column = F.col(quoted(name))
    return F.count_if(column.isNotNull() & column.try_cast(kind).isNull()).alias(name)


def united(ranges: Sequence[tuple[int, int]]) -> Ranges:
    """The same epochs in as few ranges as possible.

    >>> united([(5, 5), (1, 2), (3, 3), (0, 1)])
    [(0, 3), (5, 5)]
    """
    found: Ranges = []
    for first, last in sorted(ranges):
        if found and first <= found[-1][1] + 1:
            found[-1] = found[-1][0], max(found[-1][1], last)
        else:
            found.append((first, last))
    return found
