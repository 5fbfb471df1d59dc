"""Records: the state of a query as one slot of the log holds it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, TypeAlias

import msgspec

from sparkjet.errors import RecoveryError
from sparkjet.known_types import known
from sparkjet.snapshots.store import Delta
from sparkjet.time import InputsState

FORMAT = 5
"""What is written. A change of any type below, or of a state in :mod:`sparkjet.time`, takes a new number: add a step to
:data:`STEPS`, keep homes of each format (``tests/snapshots/homes``), and say on the page "Versions of sparkjet" who
writes it: a patch release must not."""

Step: TypeAlias = Callable[[dict[str, Any]], dict[str, Any]]
STEPS: Mapping[int, Step] = {}
"""From each older format that can be read to the next one, in plain JSON; today's is the first that was released."""

Fingerprint: TypeAlias = dict[str, dict[str, Any]]
"""What must not change between two runs. Under ``inputs``: the columns of each input's watermark, by its prefix, which
only a query with stages has. Under the name of each stage: what it ``reads``, and what its state depends on, such as
the ``keys``, ``aggregates`` and ``accumulators`` of an aggregation."""


class EpochKind(Enum):
    """What made a driver write a record."""

    TAKEOVER = "takeover"
    """A driver has started, and fenced the one before it."""
    BATCH = "epoch"
    """A micro-batch of Spark's."""
    TICK = "tick"
    """The clock, a substream that was retired, or dead letters that were replayed; there was no batch."""
    CLOSING = "closing"
    """The end of the input, with ``closeWindowsAtEnd``."""
    SETTLED = "settled"
    """Everything is committed, and the record need not name it any more."""


class SlidingSettings(msgspec.Struct, frozen=True, tag_field="window", tag="sliding"):
    """A sliding or tumbling window, in microseconds."""

    size: int
    step: int
    offset: int


class SessionSettings(msgspec.Struct, frozen=True, tag_field="window", tag="session"):
    """A session window, in microseconds; its gap is 0 where each row has its own, which the fingerprint names."""

    gap: int
    max_duration: int | None


class RollingSettings(msgspec.Struct, frozen=True, tag_field="window", tag="rolling"):
    """Results that are never final; what they are of is in the fingerprint."""


class FunctionSettings(msgspec.Struct, frozen=True, tag_field="window", tag="function"):
    """The time that the timers of a user's function are in: ``none``, ``clock`` or ``watermark``."""

    time: str


class DeduplicationSettings(msgspec.Struct, frozen=True, tag_field="window", tag="deduplication"):
    """How long keys are remembered after the event time of their first row, in microseconds; None if for ever."""

    keep: int | None


class JoinSettings(msgspec.Struct, frozen=True, tag_field="window", tag="interval_join"):
    """A join of two streams: the watermark of each side, in microseconds, as they may differ."""

    watermarks: tuple[int, int]


StageSettings: TypeAlias = (
    SlidingSettings | SessionSettings | RollingSettings | DeduplicationSettings | JoinSettings | FunctionSettings
)
"""The numbers of a stage's operator."""


class Lateness(msgspec.Struct, frozen=True):
    """How late rows came, as long as the lags of the watermark were these.

    Attributes:
        lags: The lag of each input in microseconds, by its prefix; None where its policy has none.
        rows: Rows that were judged.
        late: Of each substream, how many rows needed how much more lag: the microseconds rounded up to one digit.
    """

    lags: dict[str, int | None]
    rows: int
    late: dict[str, dict[int, int]]


class SavedStage(msgspec.Struct, frozen=True):
    """State of one stage: its operator's numbers, what it has closed, the deltas of its rows, and its counters.

    ``late`` and ``null_timestamps`` count the rows that it dropped, by substream, since the query's first start.
    Windows that start before ``whole_from`` are withheld, as their shape or keys have changed, and counted.
    ``lateness`` is None where no row of a source is judged, and in records of earlier versions.
    """

    settings: StageSettings
    closed: int | None
    deltas: list[Delta]
    late: dict[str, int]
    null_timestamps: dict[str, int]
    whole_from: int | None = None
    withheld: int = 0
    lateness: Lateness | None = None


Fields: TypeAlias = list[dict[str, Any]]
"""Columns under their users' names with their types, as Spark writes a schema in JSON."""


class Shown(msgspec.Struct, frozen=True, omit_defaults=True):
    """What users call what is in the state of a stage: readers of the state know nothing of the query.

    Attributes:
        keys: The keys.
        order: Of an aggregation, the names of keys and window in the order of the result.
        results: The further columns of the result: their names, and SQL over ``rows``, empty where there is none.
        rows: The columns that these are computed from.
        state: Of a function, what is stored of a key.
        sides: Of a join, the columns of the left rows and of the right ones.
    """

    keys: Fields = []
    order: list[str] = []
    results: list[tuple[str, str]] = []
    rows: Fields = []
    state: Fields = []
    sides: list[Fields] = []


class SparkPosition(msgspec.Struct, frozen=True):
    """What Spark's checkpoint must say so that the next batch is the one after ``batch``.

    ``files`` maps paths below the checkpoint directory to their text; ``sources`` maps them to names of blobs,
    because the file source's log grows with the input.
    """

    batch: int
    files: dict[str, str]
    sources: dict[str, str]


class PreparedTransaction(msgspec.Struct, frozen=True):
    """A prepared transaction: the output it belongs to, what its sink needs to commit it, and the sink's format.

    Each sink defines its own handle, any JSON object, and reads those of its older versions.
    """

    sink: str
    handle: dict[str, Any]
    format: str = ""


class MapRead(msgspec.Struct, frozen=True):
    """The version of a grid's map that an epoch of the query reads.

    Attributes:
        epoch: The query's epoch.
        of_map: The map's epoch.
        number: Of its version.
        manifest: Of the version, as the grid names it.
    """

    epoch: int
    of_map: int
    number: int
    manifest: list[Any]


class History(msgspec.Struct, frozen=True):
    """How far a backfill has come.

    Attributes:
        done: Buckets whose epochs are decided.
        of: All buckets.
        seam: Name of the blob that says where history ends.
    """

    done: int
    of: int
    seam: str

    @property
    def is_read(self) -> bool:
        """Whether the stream comes next."""
        return self.done == self.of


class Record(msgspec.Struct, frozen=True):
    """Everything needed to go on after the slot's epoch; no record needs another one.

    ``transactions`` are decided: they will be committed, by this driver or a later one. ``clock`` is the last
    clock reading that policies have seen, by which a start notices that the machine's clock was set back.
    ``published`` keeps the last transaction of each sink that compares it at a start with what its destination has.
    ``queues`` names the blobs with the ids of messages that were received and not acknowledged, by the number or name
    of their source. ``maps`` says which versions of a grid's maps an epoch reads; it is written before that epoch
    begins. ``early_at`` says when each output last had early rows. ``overlap`` says that Spark's checkpoint may be one
    batch ahead of the record. ``unsaid`` is what the texts of the fingerprint leave out; a start compares what both
    runs know of it, as earlier versions and other lines of Spark may know less. ``expectations`` counts the rows that
    have not met each, by its name, since it is in the query. ``replayed`` has the epochs whose dead letters were
    replayed, from the first to the last of each range, by the name of their output. ``polled`` is what the epoch's
    watermarks went on from, where that is not the record before: the policies were polled in between, a driver started,
    or a substream was retired. A replay needs it. ``history`` says how far a backfill has come.
    ``shown`` is what readers of the state have to know of a stage; earlier versions have not written it.
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
    format: int = FORMAT

    def encode(self) -> bytes:
        """The record as JSON."""
        return msgspec.json.encode(self)

    def names(self) -> set[str]:
        """Deltas and blobs that must stay in the store while this record may be read."""
        deltas = {delta.name for stage in self.stages.values() for delta in stage.deltas}
        sources = set(self.spark.sources.values()) if self.spark is not None else set()
        seams = set() if self.history is None else {self.history.seam}
        return deltas | sources | seams | set(self.queues.values())

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
    """A record of an older format in a newer one."""
    try:
        for step in range(number, to):
            record = {**steps[step](record), "format": step + 1}
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        message = f"an entry of format {number} is missing or of another type ({error!r})"
        raise msgspec.ValidationError(message) from error
    return record


class _Header(msgspec.Struct):
    """What all formats have."""

    format: int


# When the module is imported: queries that start side by side would describe the types to msgspec side by side, which
# has ended a process with a segmentation fault.
_HEADER = msgspec.json.Decoder(known(_Header))
_RECORD = msgspec.json.Decoder(known(Record))
