"""Sharing: the windows that belong to a query if another one publishes those before them, or after them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from sparkjet.catalyst.columns import TIME
from sparkjet.engine.changed_windows import shown
from sparkjet.engine.moved_sources import recorded_sources
from sparkjet.errors import AnalysisError, RecoveryError, StorageError
from sparkjet.options import PUBLISH_AFTER
from sparkjet.plan.outputs import Rows
from sparkjet.plan.spark_sources import beginning_late, taking_sources
from sparkjet.plan.window_ends import window_ends
from sparkjet.snapshots import DirectoryStore
from sparkjet.snapshots.record import Border
from sparkjet.snapshots.record_log import RecordLog
from sparkjet.time import MIN, FrameGrid

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column, DataFrame

    from sparkjet.plan.plan import Plan
    from sparkjet.snapshots.record import Ends, Record
    from sparkjet.storage.directory import Directory


@dataclass(frozen=True)
class Share:
    """The windows that an epoch publishes; all of them by default.

    Attributes:
        border: The border to the query whose windows come before, for the epoch's record.
        after: Windows that end after it are published, in microseconds; None if no others can come.
        until: Windows that end up to it are published; None for all.
        bound: The watermark beyond which nothing closes, as it is undecided whose windows come next; None if decided.
    """

    border: Border | None = None
    after: int | None = None
    until: int | None = None
    bound: int | None = None

    def closing(self, watermark: int) -> int:
        """The watermark that closes windows."""
        return watermark if self.bound is None else min(watermark, self.bound)

    def results(self, rows: DataFrame | None) -> DataFrame | None:
        """The results that are published; None if none are."""
        if rows is None or self.bound is not None:
            # Closed windows are the other query's.
            return None
        for condition in self._conditions(self.after):
            rows = rows.where(condition)
        return rows

    def late(self, rows: DataFrame) -> DataFrame | None:
        """The late rows, with their times, that are published; None if none are."""
        if self.bound is not None:
            return None
        for condition in self._conditions(None if self.border is None else self.border.at):
            # Rows without a time are on neither side: both queries publish them.
            rows = rows.where(condition | F.col(TIME).isNull())
        return rows

    def _conditions(self, after: int | None) -> list[Column]:
        # The time of a result is its end minus one, and a late row belongs to the windows that end after its time.
        time = F.col(TIME)
        return [time >= F.lit(each) for each in (after,) if each is not None] + [
            time < F.lit(each) for each in (self.until,) if each is not None
        ]


@dataclass(frozen=True)
class Sharing:
    """Decides whose windows are whose: by this query's record or, as long as that is open, by the other one's.

    Attributes:
        plan: The query.
        before: Home of the query whose windows come before, None if that was not given.
    """

    plan: Plan
    before: Directory | None

    def of(self, record: Record) -> Share:
        """The share of the epoch after a record.

        Raises:
            AnalysisError: It has been decided to cut where no windows of this query end.
            RecoveryError: A query other than this one continues from there.
            StorageError: The home of the other query cannot be read.
        """
        border, until = record.after, None if record.until is None else record.until.at
        if border is None:
            return Share(until=until)
        if border.at is not None:
            return Share(border, None if record.has_passed(border.at) else border.at, until)
        other = self._other(record.query, border)
        if other.until is not None:
            # Whoever has decided it may have read the record of before this start, with other windows.
            check_ends(record.outputs, other.until.at)
            return Share(Border(border.query, other.until.at), other.until.at)
        ended = [each for each in other.ended if each is not None]
        # For the output that is least behind the query's watermark: the others close less.
        lag = min((each.stage.lag for each in self.plan.of_stages), default=0)
        return Share(border, bound=max(ended) + lag if ended else MIN)

    def is_released(self, record: Record) -> bool:
        """Whether it has been decided which windows are this query's, since a record that does not say so."""
        border = record.after
        return border is not None and self._other(record.query, border).until is not None

    def is_over(self, record: Record) -> bool:
        """Whether the query has published all of its windows, and no more late rows of them can come."""
        border = record.until
        if border is None or border.at is None or any(each.rows is Rows.LATE for each in self.plan.of_stages):
            return False
        return record.has_passed(border.at)

    def begun(self, query: str, record: Record | None) -> tuple[dict[str, Ends], Border | None]:
        """The outputs, and the border to the query whose windows come before, for the first record of a run.

        Args:
            query: Id of this query.
            record: Its newest record, None before the first.

        Raises:
            AnalysisError: The outputs cannot be cut, the other home has no query, or rows would be lacking: each one
                goes to one of the two queries, or a source begins with those that come.
            RecoveryError: The record and the option ``publishAfter`` do not go together.
        """
        ends = window_ends(self.plan)
        after = self._after(record)
        if after is not None and after.at is None:
            # It may be decided already, although no epoch has copied it yet.
            other = self._other(query, after)
            check_ends(ends, None if other.until is None else other.until.at)
            self._check_taken(other)
            if record is None or record.spark is None:
                self._check_beginnings()
        elif after is not None and after.at is not None and (record is None or not record.has_passed(after.at)):
            check_ends(ends, after.at)
        if record is not None and record.until is not None:
            check_ends(ends, record.until.at)
        return ends, after

    def _check_taken(self, other: Record) -> None:
        """Refuse to take from the other query, before the switch, the rows that it has to publish."""
        read = [source.reads for source in recorded_sources(other) or ()]
        taken = [both for source in taking_sources(self.plan.source) for each in read if (both := _both(source, each))]
        if taken:
            message = (
                f'{PUBLISH_AFTER.name}: {taken[0]} is also read by the query of "{self.before}", and rows that one of '
                "the two takes, the other one does not get. Let the broker copy the messages to a queue of "
                "another name, and read that; leave cleanSource out."
            )
            raise AnalysisError(message)

    def _check_beginnings(self) -> None:
        """Refuse to begin, unasked, behind rows that the first windows need: they would look whole."""
        for source, options in beginning_late(self.plan.source):
            message = (
                f"{PUBLISH_AFTER.name}: {source} would begin with the rows that come from now on, and windows that "
                f"have begun lack the others. Say where it begins ({', '.join(options)}): earliest, or a time before "
                f'the first windows of this query; or {options[0]}="latest", and give sj.switch an at=… later than '
                "all rows that are there already."
            )
            raise AnalysisError(message)

    def _after(self, record: Record | None) -> Border | None:
        """The border to the query whose windows come before, for the first record of a run."""
        if record is not None and record.after is not None:
            return record.after
        if self.before is None:
            return None
        if record is not None and record.epoch > 0:
            message = (
                f"{PUBLISH_AFTER.name}: this query has published windows, those that end up to the other one's last "
                "among them. Start it from scratch with another checkpointLocation, or leave the option out."
            )
            raise RecoveryError(message)
        return Border(self._newest().query, None)

    def _other(self, query: str, border: Border) -> Record:
        """The newest record of the query whose windows come before those of this one."""
        if self.before is None:
            message = (
                f"{PUBLISH_AFTER.name}: this query publishes nothing until it is switched to (sj.switch), and must "
                f"know the home of query {border.query}, as before. Set the option again."
            )
            raise RecoveryError(message)
        other = self._newest()
        if other.query == query:
            message = f'{PUBLISH_AFTER.name}: "{self.before}" is the home of this query. Give that of the other one.'
            raise RecoveryError(message)
        if other.query != border.query:
            message = (
                f'{PUBLISH_AFTER.name}: "{self.before}" is the home of query {other.query}, and this one waits for '
                f"query {border.query}. Give the home of that one."
            )
            raise RecoveryError(message)
        if other.until is not None and other.until.query != query:
            message = (
                f'{PUBLISH_AFTER.name}: query {other.until.query} goes on after the query of "{self.before}", and not '
                "this one, whose windows would come twice. Remove its home."
            )
            raise RecoveryError(message)
        return other

    def _newest(self) -> Record:
        assert self.before is not None  # noqa: S101 - a start without it is refused
        try:
            newest = RecordLog(DirectoryStore(self.before.below("snapshots"))).newest()
        except OSError as error:
            message = f'{PUBLISH_AFTER.name}: "{self.before}" cannot be read: {error.strerror or error}'
            raise StorageError(message) from error
        if newest is None:
            raise AnalysisError(f'{PUBLISH_AFTER.name}: "{self.before}" contains no record of a query. Give its home.')
        return newest[1]


def _both(one: str, other: str) -> str:
    """The places that both of two sources read, as they are described; empty if there are none.

    >>> _both("sparkjet-rabbitmq orders, refunds", "sparkjet-rabbitmq refunds"), _both("json /a", "json /b")
    ('sparkjet-rabbitmq refunds', '')
    """
    (name, _, places), (other_name, _, others) = one.partition(" "), other.partition(" ")
    common = {each.strip() for each in places.split(",")} & {each.strip() for each in others.split(",")} - {""}
    return f"{name} {', '.join(sorted(common))}" if name == other_name and common else ""


def check_ends(outputs: Mapping[str, Ends], at: int | None, of: str = "") -> FrameGrid:
    """The times at which windows of all outputs end, which must include ``at``.

    Args:
        outputs: The outputs, in the form of records.
        at: Where to cut, None if that is undecided.
        of: The owner of the outputs, for messages.

    Raises:
        AnalysisError: There are no such times, or ``at`` is not one of them.
    """
    found: FrameGrid | None = FrameGrid(1)
    for name, each in outputs.items():
        if each.why:
            message = (
                f'switch: the output "{name}"{of} is {each.why}: no end of a window says which of two queries a row is '
                "from. Only outputs of windows of fixed length, in append mode, and of their late rows can be switched."
            )
            raise AnalysisError(message)
        grid = FrameGrid(each.step, each.offset)
        if at is not None and grid.floor_frame(at) != at:
            message = (
                f'switch: no window of the output "{name}"{of} ends at {shown(at)}, so rows would count twice or not '
                f"at all. The nearest ends are {shown(grid.floor_frame(at))} and {shown(grid.higher_frame(at))}."
            )
            raise AnalysisError(message)
        found = None if found is None else found.common(grid)
    if found is None:
        message = (
            f"switch: the windows of the outputs{of} never end together, so there is no time at which all rows change "
            "sides. Give the windows of both queries the same startTime, or lengths that meet."
        )
        raise AnalysisError(message)
    return found
