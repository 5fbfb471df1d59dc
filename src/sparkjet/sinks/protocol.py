"""The two-phase protocol that every sink speaks."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

import msgspec

from sparkjet.time import MIN, WriterProgress

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from sparkjet.sinks.commit_every import CommitEvery
    from sparkjet.storage.directory import Directory

Handle = dict[str, Any]
"""A prepared transaction as kept in a record: JSON, no secrets. Progress reports its ``rows``, if it has them."""


class Guarantee(Enum):
    """How often a row reaches its destination."""

    EXACTLY_ONCE = "exactly-once"
    AT_LEAST_ONCE = "at-least-once"
    NONE = "none"


class Unknown(Enum):
    """The answer of a sink whose destination keeps no epochs."""

    UNKNOWN = "unknown"


Later: TypeAlias = str | Unknown | None
"""Whether a destination has later epochs: a clause that names them, None, or unknown."""


@dataclass(frozen=True)
class TransactionId:
    """Identity of one transaction: deterministic, never reused for other rows.

    ``takeover`` is the number of the driver's takeover, so that a fenced driver cannot touch its successor's
    transactions; ``attempt`` counts re-runs of an epoch within one driver. ``run`` distinguishes that driver from those
    of copies of its home, which count the same takeovers and epochs; empty where it is not known. ``since`` is the
    epoch that the driver started after.

    ``clock`` is the epoch's reading of the clock and ``watermark`` the query's watermark after the epoch, in
    microseconds, None where there is none: no part of the identity, but for sinks that tell their readers.
    ``progress`` is what a sink that carries watermarks writes beside the rows, which it counts.
    """

    query: str
    sink: str
    takeover: int
    epoch: int
    attempt: int
    run: str = ""
    since: int = 0
    clock: int | None = field(default=None, compare=False)
    watermark: int | None = field(default=None, compare=False)
    progress: WriterProgress | None = field(default=None, compare=False)

    @property
    def reached(self) -> int | None:
        """The output's watermark, on which readers may rely: MIN before the first, None if its rows have none."""
        # Of a join's results it is less than the query's.
        return self.watermark if self.progress is None else self.progress.watermark

    @property
    def told(self) -> int | None:
        """The same where no reader waits for it: None before the first too."""
        return None if self.reached == MIN else self.reached

    def to_tell(self, rows: int) -> dict[str, Any]:
        """Information for readers, beside this number of rows: a :class:`~sparkjet.time.WriterProgress`, as JSON."""
        own = WriterProgress(query=self.query, output=self.sink, epoch=self.epoch, watermark=self.watermark)
        found: dict[str, Any] = msgspec.to_builtins(msgspec.structs.replace(self.progress or own, rows=rows))
        return found

    def __str__(self) -> str:
        """Name for files and servers, starting with the takeover and ending with the run."""
        name = f"{self.takeover:06d}-{self.epoch:09d}-{self.attempt}"
        return f"{name}-{self.run}" if self.run else name


class Sink(Protocol):
    """A destination of result rows. All methods run on the driver; :meth:`prepare` starts Spark jobs.

    :meth:`commit` may do so too, where rows replace older ones of a table of files.
    """

    guarantee: Guarantee

    def check(self, schema: StructType) -> None:
        """Called before the query starts; leaves nothing behind, as a later check may refuse the start.

        Called once more where columns may be null because an aggregate was added to saved state.

        Raises:
            AnalysisError: If rows of this schema cannot be written, or the destination cannot be reached.
        """
        ...

    def prepare(self, rows: DataFrame, transaction: TransactionId) -> Handle | None:
        """Write the rows durably without making them visible; None if there were none.

        Once it has returned, :meth:`commit` must be able to succeed in any process. May be called again with another
        attempt if the epoch is re-run; what the earlier attempt left is an orphan.

        Raises:
            RefusedRowsError: The destination does not take some of the rows, and would take the others. Behind
                ``divert`` it is then called with parts of them, each of a separate attempt.
        """
        ...

    def commit(self, handle: Handle, between: Callable[[], None]) -> None:
        """Make the rows visible. Idempotent: a transaction that was committed before is left as it is.

        ``between`` is called between two visible changes; fault tests crash there.

        Raises:
            LostTransactionError: If the prepared rows are gone.
            CopiedHomeError: If the destination has rows of another run after the epoch that this one started after: see
                :func:`sparkjet.sinks.copies.check_run`. A sink whose answer to :meth:`published_after` is ``UNKNOWN``
                cannot find out.
        """
        ...

    def published_after(self, newest: TransactionId, handle: Handle | None) -> Later:
        """Find epochs at the destination that a query at this record cannot have published.

        Called at the start, before the takeover, and changes nothing. It tells a home that was restored from a backup
        or lost: epoch numbers would repeat, and rows would be there twice or be taken for published.

        Args:
            newest: Query, sink, takeover, epoch and run of the newest record; epoch 0 if there is none. ``attempt`` is
                meaningless.
            handle: The sink's last handle in a record, if there is one.

        Returns:
            A clause for the error, with the later epoch and where it was found, and one or more sentences with the way
            out: ``"the manifest of /out has epoch 17. To go on from the backup, …"``. None if there is nothing, and
            ``Unknown.UNKNOWN`` if the destination does not keep epochs.
        """
        ...

    def abort_orphans(self, query: str, takeover: int, keep: Sequence[Handle]) -> None:
        """Remove what drivers before takeover number ``takeover`` prepared, except for the decided ``keep``."""
        ...


@runtime_checkable
class Creating(Protocol):
    """A sink that creates its destination if it is missing: a table, a directory."""

    def create(self) -> None:
        """Called once per start, after every check of the query has passed and before anything is committed."""
        ...


@runtime_checkable
class Expiring(Protocol):
    """A sink whose destination aborts transactions after a timeout, and eventually forgets the committed ones.

    When a query ends, or has been idle for an hour, a record notes that everything is committed: a start asks the
    destination only about what may still be open.
    """

    def check_alive(self, handle: Handle) -> None:
        """Called right before the decision.

        Raises:
            SinkError: If the transaction may expire before its commit. The epoch is not decided, so nothing is lost.
        """
        ...


@runtime_checkable
class Comparing(Protocol):
    """A sink that compares its last handle with the destination, however many epochs without rows have followed."""

    compares_last: bool
    """Always true: every record keeps that handle for :meth:`Sink.published_after`."""


@runtime_checkable
class Clocked(Protocol):
    """A sink whose destination changes by the clock alone: it asks for an epoch where no rows come."""

    @property
    def uses_clock(self) -> bool:
        """Whether its options are such that it may ask for one."""
        ...

    def is_due(self, now: int) -> bool:
        """Whether :meth:`Sink.prepare` is to be called with no rows, at a reading of the clock in microseconds.

        Asked on the driver between epochs, every tick; must not block.
        """
        ...


@runtime_checkable
class Trying(Protocol):
    """A sink that prepares rows without asking the destination, which may refuse them: they are tried out first."""

    def try_out(self, handle: Handle, earlier: Sequence[tuple[Sink, Handle]]) -> None:
        """Called once per transaction when all of an epoch are prepared, before the decision; changes nothing.

        Args:
            handle: What :meth:`Sink.prepare` returned.
            earlier: The epoch's transactions that are committed before it, each with its sink.

        Raises:
            SinkError: The destination refuses a row. The epoch is not decided. As a ``RefusedRowsError``, the rows may
                be diverted: see :meth:`Sink.prepare`.
        """
        ...


@runtime_checkable
class Aborting(Protocol):
    """A sink that can undo an attempt as soon as its epoch fails, rather than at the next start."""

    def abort(self, transaction: TransactionId) -> None:
        """Called on the driver when an epoch fails before its decision, once per attempt that called ``prepare``.

        Removes what :meth:`Sink.prepare` has written for exactly this transaction, whether or not it returned. Best
        effort: tasks may still be writing, and what they leave is an orphan for :meth:`Sink.abort_orphans`.
        """
        ...


@runtime_checkable
class Telling(Protocol):
    """A sink that tells its readers of the query's watermark, also where epochs have no rows for it."""

    def tells(self, clock: int, watermark: int | None) -> bool:
        """Whether readers are to be told now; called often, without a call to the destination.

        Args:
            clock: The reading of the clock, in microseconds; MAX at the end of a run, when no other epoch comes.
            watermark: That of the output; MIN before the first, None where its rows have none.
        """
        ...

    def tell(self, transaction: TransactionId) -> Handle:
        """Like :meth:`Sink.prepare`, of an epoch that has no rows for certain: of ``transaction.progress``."""
        ...


@runtime_checkable
class Gathering(Protocol):
    """A sink that commits the transactions of several epochs as one, which wait for it: decided, and not yet visible.

    What a record names of its output is one group. A driver commits it as a whole before it opens another one, and so
    does its successor before it decides anything: of an epoch both commit the same group.
    """

    @property
    def commit_every(self) -> CommitEvery:
        """How many epochs are a group; the end of a run, and the next start, commit what there is."""
        ...

    def commit_all(self, handles: Sequence[Handle], between: Callable[[], None]) -> None:
        """Like :meth:`Sink.commit` of each, the oldest first, as one visible change.

        Some may have been committed before, as another group: what is left is committed.
        """
        ...


@runtime_checkable
class Ageing(Protocol):
    """A sink that may remove rows by their age."""

    def age(self, query: str, sink: str) -> None:
        """Remove what is too old, if it is time to look; called at the end of each epoch."""
        ...


@runtime_checkable
class Adopting(Protocol):
    """A sink that can go on where one of Spark's has stopped, which knows batches by their numbers."""

    directory: Directory

    def spark_batch(self) -> int | None:
        """The newest batch that the destination has; None if it is none of a sink of Spark's."""
        ...

    def adopt(self, session: SparkSession) -> None:
        """Called before :meth:`Sink.check`: the query goes on for Spark's.

        Raises:
            AnalysisError: What Spark's sink has left there is damaged, or its settings say nothing.
        """
        ...

    def close_batch(self, number: int, session: SparkSession) -> bool:
        """Keep this batch from Spark's sink; False if the sink already has it."""
        ...


@runtime_checkable
class Keyed(Protocol):
    """A sink whose rows may replace older ones; its keys must be deterministic, as an epoch may be recomputed."""

    @property
    def keys(self) -> tuple[str, ...]:
        """Columns that identify a row; empty if rows are only appended."""
        ...


@runtime_checkable
class Requiring(Protocol):
    """A sink whose destination may have columns that take no nulls; asked after :meth:`Sink.check`."""

    @property
    def required(self) -> Collection[str]:
        """These columns, by their names in the rows."""
        ...


@runtime_checkable
class NeedsPackages(Protocol):
    """A sink whose tasks run in Python on the executors; asked after :meth:`Sink.check`."""

    @property
    def packages(self) -> Mapping[str, str]:
        """The packages that they need there: the name to install, by the name that is imported."""
        ...
