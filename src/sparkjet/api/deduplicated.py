"""The methods of a stream that drop duplicates."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from typing_extensions import Self

from sparkjet.api.frame_methods import FrameMethods
from sparkjet.plan.deduplication import dropped_duplicates

if TYPE_CHECKING:
    from sparkjet.plan.event_time import EventTime
    from sparkjet.plan.stage import Feed, Stage


class Deduplicated(FrameMethods):
    """The methods of a stream that drop duplicates, with Spark's names and arguments.

    The first row of each key is passed on in the epoch in which it arrives, again as a row of a stream. If several rows
    of one key arrive in one epoch, it is the one with the least event time.
    """

    _feed: Feed

    @property
    @abstractmethod
    def _event_time(self) -> EventTime | None:
        """The event time of the rows, None without a watermark."""

    @abstractmethod
    def _after(self, stage: Stage) -> Self:
        """The results of a stage that reads this stream and keeps its columns."""

    def dropDuplicates(self, subset: list[str] | None = None) -> Self:
        """Drop rows that equal an earlier one in some columns, as ``DataFrame.dropDuplicates``.

        If the event-time column is among them, a key is forgotten when the watermark has passed its time: any later
        duplicate is late. Late rows are dropped, counted and delivered like those of windows, see :attr:`lateRows`.
        Otherwise keys are remembered forever, the state grows with their number, and no row is late.

        Args:
            subset: Names of the columns; by default all.

        Raises:
            AnalysisError: A name that is not a column, a column that cannot be compared, or an event time that was
                replaced after ``withWatermark``.

        >>> import sparkjet as sj
        >>> rows = spark.createDataFrame([("a", 1), ("a", 2), ("b", 3)], "id string, n int")
        >>> sorted(row.id for row in sj.stream(rows).dropDuplicates(["id"]).toDF().collect())
        ['a', 'b']
        """
        return self._after(dropped_duplicates(self._feed, self._event_time, subset, "dropDuplicates"))

    def drop_duplicates(self, subset: list[str] | None = None) -> Self:
        """Alias of :meth:`dropDuplicates`."""
        return self.dropDuplicates(subset)

    def dropDuplicatesWithinWatermark(self, subset: list[str] | None = None) -> Self:
        """Drop rows that equal an earlier one with a close event time, as ``DataFrame.dropDuplicatesWithinWatermark``.

        Rows of one key are recognized as duplicates if their event times are no further apart than the delay of the
        watermark, even if they differ. The delay is the ``lag`` of the policy, the greater one if it has two, and in a
        union the longest of all streams. A key is forgotten when the watermark has passed the event time of its first
        row by the delay. Late rows are dropped, counted and delivered like those of windows, see :attr:`lateRows`.

        Args:
            subset: Names of the columns; by default all.

        Raises:
            AnalysisError: No watermark, a policy of your own whose settings have no ``lag``, a name that is not a
                column, or a column that cannot be compared.

        >>> import sparkjet as sj
        >>> rows = spark.sql("SELECT 'a' AS id, timestamp_seconds(7 * id) AS ts FROM range(2)")
        >>> events = sj.stream(rows).withWatermark("ts", "10 seconds")
        >>> events.dropDuplicatesWithinWatermark(["id"]).toDF().count()
        1
        """
        method = "dropDuplicatesWithinWatermark"
        return self._after(dropped_duplicates(self._feed, self._event_time, subset, method, within=True))

    def distinct(self) -> Self:
        """Drop rows that equal an earlier one in all columns, as ``DataFrame.distinct``; see :meth:`dropDuplicates`."""
        return self._after(dropped_duplicates(self._feed, self._event_time, None, "distinct"))
