"""The components from which an engine is built, and the requests that it gets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from sparkjet.engine.alignment import Alignment
from sparkjet.engine.hash_table import CAPACITY, USUAL
from sparkjet.engine.on_change import OnChange
from sparkjet.engine.start_steps import StartSteps
from sparkjet.engine.state_limit import StateLimit
from sparkjet.snapshots.record import EpochKind
from sparkjet.storage.paths import PLAIN_FILES

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import DataFrame, SparkSession

    from sparkjet.clock import Clock
    from sparkjet.engine.adopting import Adoption
    from sparkjet.engine.committer import Committer
    from sparkjet.engine.phases import PhaseListener
    from sparkjet.engine.progress_report import ProgressListener
    from sparkjet.engine.receivers import Receivers
    from sparkjet.engine.refilling import Refill
    from sparkjet.engine.replaying import Replay
    from sparkjet.plan.plan import Plan
    from sparkjet.sinks.protocol import Guarantee
    from sparkjet.snapshots import SnapshotStore
    from sparkjet.snapshots.record import History, SparkPosition
    from sparkjet.snapshots.record_log import RecordLog
    from sparkjet.storage.directory import Directory
    from sparkjet.time import Heard, InputsState

CaughtUp = Mapping[str, bool | None]
"""For each substream, by full name, whether it has been read to its end; None if its source does not say."""


@dataclass(frozen=True)
class EngineContext:
    """The components of an engine: the query, its settings and the services that it uses.

    Attributes:
        overlap: Whether an epoch may end in parallel with the partial aggregation of the next one.
        listener: Called at the end of each phase.
        on_progress: Called at the end of each epoch.
        home: The place of the store, for messages and to identify a query whose home was lost.
        name: The user's name for the query.
        steps: Told what a start or a recovery is doing.
        on_change: Whether to continue from a record of the query before it was changed.
        publish_after: Home of the query whose windows come before, None if all windows are this one's.
        alignment: Tells the planners of aligned sources how far event time has come.
        adopt: Spark's checkpoint after which a new query begins, None for the beginning of its sources.
        refill: Finds the fork with whose state a changed query continues, None for its own state.
        limit: What each operator may hold.
        repeats: Whether Spark repeats the last batch at a start, which costs nothing but that batch.
        waiting: The inputs of which it was said that nobody tells the watermark for which they wait.
    """

    plan: Plan
    guarantee: Guarantee
    partitions: int
    overlap: bool
    session: SparkSession
    store: SnapshotStore
    log: RecordLog
    committer: Committer
    receivers: Receivers
    clock: Clock
    listener: PhaseListener
    on_progress: ProgressListener = lambda _: None
    home: Directory | None = None
    name: str | None = None
    steps: StartSteps = field(default_factory=StartSteps)
    on_change: OnChange = field(default_factory=OnChange)
    publish_after: Directory | None = None
    adopt: Adoption | None = None
    refill: Callable[[], Refill] | None = None
    alignment: Alignment = field(default_factory=Alignment)
    limit: StateLimit = field(default_factory=StateLimit)
    repeats: bool = True
    waiting: set[str] = field(default_factory=set)

    @property
    def label(self) -> object:
        """The name of the query in log lines: its name, or its home."""
        return self.name or self.home

    def configure(self, session: SparkSession) -> None:
        """Prepare a session for the query's own batches; see :func:`configure`."""
        configure(session, self.partitions if self.plan.stages else None)


@dataclass(frozen=True)
class Again:
    """The start and end state of an epoch that another query has recorded, and that this query runs once more.

    Attributes:
        query: Id of that query, which seeds random numbers.
        position: Position of Spark's checkpoint after the batch; None without one.
        polled: The state from which the watermarks continued; None if it is the state that they have reached here.
        heard: What the writers of tables had told then: their logs may be gone.
    """

    query: str
    position: SparkPosition | None
    polled: InputsState | None
    heard: Mapping[str, Heard]


@dataclass(frozen=True)
class EpochRequest:
    """A request for an epoch; the same for every attempt at it.

    Attributes:
        kind: A batch, a tick or the closing epoch.
        now: The clock reading that every policy gets.
        batch: The micro-batch, None if nothing has arrived.
        batch_id: Spark's number for it.
        caught_up: Whether substreams have been read to their end, by the sources' offsets.
        is_last: Whether the run ends with it, so that readers must not have to wait for another one to be told more.
        replay: The replay whose dead letters are in the batch, None for rows that arrive for the first time.
        again: The epoch that another query has recorded, if it is run again.
        history: How far a backfill has come after it, None for the rows of the stream.
    """

    kind: EpochKind
    now: int
    batch: DataFrame | None = None
    batch_id: int | None = None
    caught_up: CaughtUp | None = None
    is_last: bool = False
    replay: Replay | None = None
    again: Again | None = None
    history: History | None = None


_OWN = {
    "spark.sql.adaptive.enabled": "false",
    # Otherwise groups would come without their keys.
    "spark.sql.retainGroupColumns": "true",
    # Sketches and structs would fall back to sorting at 128 groups per task, which every window exceeds.
    "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": "10000",
    CAPACITY: USUAL,
    # Otherwise a plan with one more segment has other class names in its generated code, and is compiled again.
    "spark.sql.codegen.useIdInClassName": "false",
    # Spark reads the byte code of every function that it creates from a plan, in each epoch; this avoids it.
    "spark.sql.execution.usePartitionEvaluator": "true",
    # After every rule that changes a plan, Spark would check all of it for bugs in that rule.
    "spark.sql.lightweightPlanChangeValidation": "false",
}


def configure(session: SparkSession, partitions: int | None) -> None:
    """Settings of the query's own session that keep the state where it is: hash-partitioned, read without a shuffle.

    They include settings on which the plans of operators rely, whatever the user's session has.
    """
    if all(session.conf.get(name, None) == value for name, value in PLAIN_FILES.items()):
        # Left by the start, for the logs. The user's own local files keep their checksums.
        for name in PLAIN_FILES:
            session.conf.unset(name)
    if partitions is None:
        return
    # At once: each call to the JVM takes time in every epoch.
    session._jsparkSession.sessionState().conf().setConf(_settings(session.sparkContext, partitions))


@lru_cache(16)
def _settings(context: SparkContext, partitions: int) -> Any:
    """The settings of a query with so many partitions, as Java's ``Properties``."""
    gateway: Any = context._gateway
    settings = gateway.jvm.java.util.Properties()
    for name, value in {**_OWN, "spark.sql.shuffle.partitions": str(partitions)}.items():
        settings.setProperty(name, value)
    return settings
