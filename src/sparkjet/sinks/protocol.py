"""The two-phase protocol that every sink speaks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

Handle = dict[str, Any]
"""What a record keeps of a prepared transaction: JSON, no secrets."""


class Guarantee(Enum):
    """How often a row reaches its destination."""

    EXACTLY_ONCE = "exactly-once"
    AT_LEAST_ONCE = "at-least-once"
    NONE = "none"


@dataclass(frozen=True)
class TransactionId:
    """Identity of one transaction: deterministic, never used for other rows.

    ``takeover`` is the number of the driver's takeover, so that a driver that was taken over cannot touch its
    successor's transactions; ``attempt`` counts re-runs of an epoch inside one driver.
    """

    query: str
    sink: str
    takeover: int
    epoch: int
    attempt: int

    def __str__(self) -> str:
        """Name for files and servers, starting with the takeover."""
        return f"{self.takeover:06d}-{self.epoch:09d}-{self.attempt}"


class Sink(Protocol):
    """A destination of result rows. All methods run on the driver; only :meth:`prepare` starts Spark jobs."""

    guarantee: Guarantee

    def check(self, schema: StructType) -> None:
        """Called once before the query starts; leaves nothing behind, as what comes after it may refuse the start.

        Raises:
            AnalysisError: If rows of this schema cannot be written, or the destination cannot be reached.
        """
        ...

    def prepare(self, rows: DataFrame, transaction: TransactionId) -> Handle | None:
        """Write the rows durably without showing them to anybody; None if there were none.

        From its return on, :meth:`commit` must be able to succeed in any process. May be called again with another
        attempt if the epoch is re-run; what the earlier attempt left is a stray.
        """
        ...

    def commit(self, handle: Handle, between: Callable[[], None]) -> None:
        """Show the rows. Idempotent: a transaction that was committed before is left as it is.

        ``between`` is called between two changes that others can see; fault tests crash there.

        Raises:
            LostTransactionError: If what was prepared is gone.
        """
        ...

    def abort_orphans(self, query: str, takeover: int, keep: Sequence[Handle]) -> None:
        """Remove what drivers before takeover number ``takeover`` prepared, except the decided ``keep``."""
        ...


@runtime_checkable
class Creating(Protocol):
    """A sink that makes what is missing where its rows go: a table, a directory."""

    def create(self) -> None:
        """Called once per start, when every check of the query has passed and before anything is committed."""
        ...


@runtime_checkable
class Expiring(Protocol):
    """A sink whose destination drops what stays prepared for long, and eventually forgets what was committed.

    Once all is committed a record says so, when the query ends and when it has been idle for an hour: a start asks the
    destination only about what may be open.
    """

    def check_alive(self, handle: Handle) -> None:
        """Called right before the decision.

        Raises:
            SinkError: If what was prepared may not live until its commit. The epoch is not decided, so nothing is lost.
        """
        ...


@runtime_checkable
class Aborting(Protocol):
    """A sink that can undo an attempt as soon as its epoch fails, rather than at the next start."""

    def abort(self, transaction: TransactionId) -> None:
        """Called on the driver when an epoch fails before its decision, once for each attempt that called ``prepare``.

        Removes what :meth:`Sink.prepare` has written for exactly this transaction, whether or not it returned. Best
        effort: tasks may still be writing, and what they leave is a stray for :meth:`Sink.abort_orphans`.
        """
        ...


@runtime_checkable
class Remembering(Protocol):
    """A sink whose destination remembers what was published, so that a restored backup of the home is noticed."""

    def published_after(self, newest: TransactionId, handle: Handle | None) -> str | None:
        """What the destination holds that a query at this record cannot have published, None if there is nothing.

        Called at the start, before the takeover; changes nothing.

        Args:
            newest: Query, sink, takeover and epoch of the newest record; ``attempt`` means nothing.
            handle: The sink's last handle that a record named, if there is one.

        Returns:
            A clause for the error, which names the later epoch and where it was found, and one or more sentences with
            the way out: ``"the manifest of /out has epoch 17. To go on from the backup, …"``.
        """
        ...


@runtime_checkable
class Keyed(Protocol):
    """A sink whose rows may replace older ones; its keys must be the same whenever an epoch is computed again."""

    @property
    def keys(self) -> tuple[str, ...]:
        """Columns that identify a row; empty where rows are only added."""
        ...
