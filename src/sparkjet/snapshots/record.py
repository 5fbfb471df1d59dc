"""Records: the state of a query, as stored in one slot of the log."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, NamedTuple, TypeAlias

import msgspec

from sparkjet.errors import RecoveryError
from sparkjet.known_types import known
from sparkjet.snapshots.store import Delta
from sparkjet.time import Heard, InputsState

FORMAT = 5
"""The format that is written.

A change of any type below, or of a state in :mod:`sparkjet.time`, takes a new number: add a step to :data:`STEPS`, keep
homes of each format (``tests/snapshots/homes``), and say on the page "Versions of sparkjet" which version writes it: a
patch release must not.
"""

Step: TypeAlias = Callable[[dict[str, Any]], dict[str, Any]]
STEPS: Mapping[int, Step] = {}
"""Steps from each readable older format to the next one, in plain JSON; today's is the first that was released."""

Fingerprint: TypeAlias = dict[str, dict[str, Any]]
"""The properties that must not change between two runs.

Under ``inputs``: the columns of each input's watermark, by its prefix; only a query with stages has it. Under the name
of each stage: what it ``reads``, and what its state depends on, such as the ``keys``, ``aggregates`` and
``accumulators`` of an aggregation.
"""


class EpochKind(Enum):
    """The reason why a driver wrote a record."""

    TAKEOVER = "takeover"
    """A driver has started, and fenced its predecessor."""
    BATCH = "epoch"
    """A micro-batch of Spark."""
    TICK = "tick"
    """The clock, a retired substream, or replayed dead letters; there was no batch."""
    CLOSING = "closing"
    """The end of the input, with ``closeWindowsAtEnd``."""
    SETTLED = "settled"
    """Everything is committed, so that the record no longer needs to name it."""


class SlidingSettings(msgspec.Struct, frozen=True, tag_field="window", tag="sliding"):
    """A sliding or tumbling window, in microseconds."""

    size: int
    step: int
    offset: int


class SessionSettings(msgspec.Struct, frozen=True, tag_field="window", tag="session"):
    """A session window, in microseconds; its gap is 0 if each row has its own, which the fingerprint names."""

    gap: int
    max_duration: int | None


class RollingSettings(msgspec.Struct, frozen=True, tag_field="window", tag="rolling"):
    """Results that are never final; the fingerprint says what they are computed from."""


class FunctionSettings(msgspec.Struct, frozen=True, tag_field="window", tag="function"):
    """The time by which the timers of a user's function run: ``none``, ``clock`` or ``watermark``."""

    time: str


class DeduplicationSettings(msgspec.Struct, frozen=True, tag_field="window", tag="deduplication"):
    """How long keys are remembered after the event time of their first row, in microseconds; None for forever."""

    keep: int | None


class JoinSettings(msgspec.Struct, frozen=True, tag_field="window", tag="interval_join"):
    """A join of two streams: the watermark of each side, in microseconds, as they may differ."""

    watermarks: tuple[int, int]


StageSettings: TypeAlias = (
    SlidingSettings | SessionSettings | RollingSettings | DeduplicationSettings | JoinSettings | FunctionSettings
)
"""The numbers of a stage's operator."""


class Lateness(msgspec.Struct, frozen=True):
    """How late rows came while the lags of the watermark were these.

    Attributes:
        lags: The lag of each input in microseconds, by its prefix; None if its policy has none.
        rows: Number of rows that were judged.
        late: For each substream, how many rows needed how much more lag, in microseconds rounded up to one digit.
    """

    lags: dict[str, int | None]
    rows: int
    late: dict[str, dict[int, int]]


class SavedWindows(NamedTuple):
    """The windows of a stage that are not emitted like others.

    Attributes:
        whole_from: Those that start before it are withheld, as their shape or keys have changed; None if none is.
        withheld: Number of those that were withheld.
        shed: Number of those that were closed early.
    """

    whole_from: int | None = None
    withheld: int = 0
    shed: int = 0


NO_WINDOWS = SavedWindows()


class SavedStage(msgspec.Struct, frozen=True):
    """The state of one stage: its operator's numbers, the time up to which it is closed, its deltas, and its counters.

    ``late`` and ``null_timestamps`` count the rows that it has dropped, by substream, since the query's first start.
    Windows that start before ``whole_from`` are withheld, as their shape or keys have changed, and counted.
    ``shed`` counts the windows that were closed early, up to ``closed``, which is then beyond the watermark.
    ``lateness`` is None if no row of a source is judged.
    """

    settings: StageSettings
    closed: int | None
    deltas: list[Delta]
    late: dict[str, int]
    null_timestamps: dict[str, int]
    whole_from: int | None = None
    withheld: int = 0
    shed: int = 0
    lateness: Lateness | None = None

    @property
    def windows(self) -> SavedWindows:
        """Its windows that are not emitted like others."""
        return SavedWindows(self.whole_from, self.withheld, self.shed)


Fields: TypeAlias = list[dict[str, Any]]
"""Columns under the names that users give them, with their types, as Spark writes a schema in JSON."""


class Shown(msgspec.Struct, frozen=True, omit_defaults=True):
    """The users' names for the state of a stage: readers of the state do not know the query.

    Attributes:
        keys: The keys.
        order: For an aggregation, the names of keys and window in the order of the result.
        results: The further columns of the result: their names, and SQL over ``rows``, empty if there is none.
        rows: The columns from which these are computed.
        state: For a function, the columns stored for a key.
        sides: For a join, the columns of the left rows and of the right rows.
    """

    keys: Fields = []
    order: list[str] = []
    results: list[tuple[str, str]] = []
    rows: Fields = []
    state: Fields = []
    sides: list[Fields] = []


class SparkPosition(msgspec.Struct, frozen=True):
    """The content that Spark's checkpoint must have so that the next batch is the one after ``batch``.

    ``files`` maps paths below the checkpoint directory to their text; ``sources`` maps such paths to names of blobs,
    because the file source's log grows with the input.
    """

    batch: int
    files: dict[str, str]
    sources: dict[str, str]


class PreparedTransaction(msgspec.Struct, frozen=True):
    """A prepared transaction: its output, the handle by which its sink commits it, and the sink's format.

    Each sink defines its own handle, any JSON object, and also reads those of its older versions.
    """

    sink: str
    handle: dict[str, Any]
    format: str = ""


class MapRead(msgspec.Struct, frozen=True):
    """The version of a grid's map that an epoch of the query reads.

    Attributes:
        epoch: The query's epoch.
        of_map: The map's epoch.
        number: Number of the map's version.
        manifest: Manifest of the version, in the grid's form.
    """

    epoch: int
    of_map: int
    number: int
    manifest: list[Any]


class History(msgspec.Struct, frozen=True):
    """The progress of a backfill.

    Attributes:
        done: Number of buckets whose epochs are decided.
        of: Number of all buckets.
        seam: Name of the blob that says where history ends.
    """

    done: int
    of: int
    seam: str

    @property
    def is_read(self) -> bool:
        """Whether the stream comes next."""
        return self.done == self.of


class Ends(msgspec.Struct, frozen=True, omit_defaults=True):
    """The windows of an output by their ends, at which two queries can share them.

    Attributes:
        step: Microseconds from one end to the next.
        offset: One of the ends.
        stages: Names of the stages whose windows they are.
        why: Why an end does not separate its rows; empty if it does.
    """

    step: int = 1
    offset: int = 0
    stages: list[str] = []
    why: str = ""


class Border(msgspec.Struct, frozen=True):
    """The border at which one of two queries ends and the other one begins.

    Attributes:
        query: Id of the other query.
        at: End of the last windows of the earlier query, in microseconds; None as long as it is undecided.
    """

    query: str
    at: int | None


class Record(msgspec.Struct, frozen=True):
    """Everything needed to continue after the slot's epoch; no record needs another one.

    ``transactions`` are decided: they will be committed, by this driver or a later one. ``clock`` is the last clock
    reading that policies have seen, by which a start notices that the machine's clock was set back. ``published`` keeps
    the last transaction of each sink that compares it, at a start, with what its destination has. ``queues`` names the
    blobs with the ids of messages that were received but not acknowledged, by the number or name of their source.
    ``maps`` says which versions of a grid's maps an epoch reads; it is written before that epoch begins. ``early_at``
    says when each output last had early rows. ``overlap`` says that Spark's checkpoint may be one batch ahead of the
    record. ``unsaid`` has the properties that the texts of the fingerprint leave out; a start compares those that both
    runs know, as another version line of Spark may know fewer. ``expectations`` counts the rows
    that have not met each expectation since it was added to the query, by its name. ``replayed`` has the epochs whose
    dead letters were replayed, as ranges from first to last, by the name of their output. ``polled`` is the state from
    which the epoch's watermarks continued, if that is not the previous record's: because the policies were polled in
    between, a driver started, or a substream was retired. A replay needs it. ``history`` says how far a backfill has
    come. ``shown`` has what readers of the state need to know about a stage.
    ``outputs`` says for each output at which ends its windows can be shared with another query. ``until`` is the switch
    to another query: any process may write it into the next slot, and nothing else, on behalf of the run that the slot
    belongs to; windows that end up to it are this query's. ``after`` is the switch from another query, whose record
    says where. ``heard`` has what the writers of tables had told, by the number or name of the source that reads them.
    """

    kind: EpochKind
    query: str
    takeover: int
    run: str
    epoch: int
    fingerprint: Fingerprint
    clock: int
    watermarks: InputsState
    stages: dict[str, SavedStage]
    early_at: dict[str, int]
    spark: SparkPosition | None
    transactions: list[PreparedTransaction]
    overlap: bool = False
    published: list[PreparedTransaction] = []
    queues: dict[str, str] = {}
    maps: dict[str, MapRead] = {}
    unsaid: dict[str, Any] = {}
    expectations: dict[str, int] = {}
    replayed: dict[str, list[tuple[int, int]]] = {}
    polled: InputsState | None = None
    history: History | None = None
    shown: dict[str, Shown] = {}
    outputs: dict[str, Ends] = {}
    until: Border | None = None
    after: Border | None = None
    heard: dict[str, Heard] = {}
    format: int = FORMAT

    def encode(self) -> bytes:
        """The record as JSON."""
        return msgspec.json.encode(self)

    def names(self) -> set[str]:
        """The deltas and blobs that must stay in the store while this record may be read."""
        deltas = {delta.name for stage in self.stages.values() for delta in stage.deltas}
        sources = set(self.spark.sources.values()) if self.spark is not None else set()
        seams = set() if self.history is None else {self.history.seam}
        return deltas | sources | seams | set(self.queues.values())

    @property
    def ended(self) -> list[int | None]:
        """Ends of the last closed windows, for each stage whose windows outputs have; None before the first."""
        names = dict.fromkeys(name for each in self.outputs.values() for name in each.stages)
        return [self.stages[name].closed if name in self.stages else None for name in names]

    @property
    def is_held(self) -> bool:
        """Whether the query does not publish anything yet, as it waits for another one."""
        return self.after is not None and self.after.at is None

    def has_passed(self, end: int) -> bool:
        """Whether no window that ends up to ``end`` is open in any output."""
        return all(closed is not None and closed >= end for closed in self.ended)

    @staticmethod
    def decode(content: bytes, where: str) -> Record:
        """Read a record of this format or an older one."""
        try:
            number = _HEADER.decode(content).format
            if number == FORMAT:
                return _RECORD.decode(content)
            if number in STEPS:
                return msgspec.convert(upgraded(msgspec.json.decode(content), number, FORMAT), known(Record))
        except msgspec.MsgspecError as error:
            message = f"{where} is not a record that this version can read: {error}. Do not edit the snapshot log."
            raise RecoveryError(message) from error
        oldest = min(STEPS, default=FORMAT)
        if number > FORMAT:
            message = f"{where} has format {number}, this version reads formats up to {FORMAT}. Upgrade sparkjet."
        else:
            message = (
                f"{where} has format {number}, this version reads formats from {oldest}. Start the query once with a "
                "version in between, or start from scratch with another checkpointLocation."
            )
        raise RecoveryError(message)


def upgraded(record: dict[str, Any], number: int, to: int, steps: Mapping[int, Step] = STEPS) -> dict[str, Any]:
    """A record of an older format, converted to a newer one."""
    try:
        for step in range(number, to):
            record = {**steps[step](record), "format": step + 1}
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        message = f"an entry of format {number} is missing or of another type ({error!r})"
        raise msgspec.ValidationError(message) from error
    return record


class _Header(msgspec.Struct):
    """The part that all formats share."""

    format: int


# Created on import: queries that start side by side would describe the types to msgspec at the same time, which has
# ended a process with a segmentation fault.
_HEADER = msgspec.json.Decoder(known(_Header))
_RECORD = msgspec.json.Decoder(known(Record))
