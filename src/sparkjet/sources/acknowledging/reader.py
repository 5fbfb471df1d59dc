"""The stream reader of an acknowledging source, as Spark runs it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from sparkjet.errors import SourceError
from sparkjet.sources.acknowledging.contract import AcknowledgingSource
from sparkjet.sources.acknowledging.control import Acknowledge, ControlServer, Request, Start, Stop
from sparkjet.sources.acknowledging.control import Held as StateOf
from sparkjet.sources.acknowledging.ledger import Ledger, LedgerState
from sparkjet.sources.acknowledging.offset import Counts, QueueOffset
from sparkjet.sources.acknowledging.reader_options import (
    MAX_MESSAGES,
    MAX_SPOOL_BYTES,
    MAX_UNACKNOWLEDGED,
    RECONNECT_TIMEOUT,
)
from sparkjet.sources.acknowledging.receiver import Limits, Receiver
from sparkjet.sources.acknowledging.scratch import Scratch
from sparkjet.sources.acknowledging.spool import Spool
from sparkjet.sources.acknowledging.task_rows import TaskRows, tasks
from sparkjet.sources.alignment import MAX_DRIFT, Aligner, Held

if TYPE_CHECKING:
    import pyarrow as pa

    from sparkjet.options import Options

_SOCKET, _SPOOL = "control", "spool"
_STARTS_WITHIN = 300.0
"""Seconds within which the engine runs the first batch; after that, there is no engine that would."""
_GATHERING = 0.5
"""Seconds that a run which ends by itself waits for half of what it may read before an epoch is decided."""
_LOOKING = 5.0
"""Seconds that a receiver has to find messages, or the end of the queues, before Spark looks again."""


@dataclass(frozen=True)
class ReaderSettings:
    """Settings for reading an acknowledging source.

    Attributes:
        most: Maximum number of messages in a batch; None for all that have arrived.
        limits: Limits on what is held before it is decided.
        drift: How far a queue may be ahead of the slowest one, in microseconds; None if none is held back.
    """

    most: int | None = None
    limits: Limits = field(default_factory=Limits)
    drift: int | None = None

    @staticmethod
    def of(options: Options) -> ReaderSettings:
        """The settings in the options of a source, including those of every acknowledging source.

        Raises:
            AnalysisError: An option is invalid; the message names it.
        """
        return ReaderSettings(
            options[MAX_MESSAGES],
            Limits(options[MAX_UNACKNOWLEDGED], options[MAX_SPOOL_BYTES], options[RECONNECT_TIMEOUT] / 1000),
            options[MAX_DRIFT],
        )


class AcknowledgingStreamReader(TaskRows, SupportsTriggerAvailableNow):
    """Reads queues in a Python process of the driver; the rows of a batch travel with its tasks.

    An offset tells how many messages of each queue were received since the query's first start, and where the engine
    reaches the receiver: ``{"queues": {"orders": 17}, "receiver": "/tmp/…"}``. Each run begins with a batch without
    rows, through which the engine learns of its receiver, and lets it read from the end of the newest record.

    Args:
        source: Creates the source.
        schema: The columns of its messages.
        settings: Settings for reading it.
        aligner: Says which queues are too far ahead; None if none is held back.
    """

    def __init__(
        self,
        source: Callable[[], AcknowledgingSource],
        schema: pa.Schema,
        settings: ReaderSettings,
        aligner: Aligner | None = None,
    ) -> None:
        self._source, self._schema, self._settings, self._aligner = source, schema, settings, aligner
        self._running: Running | None = None
        self._available_now = False

    def __reduce__(self) -> tuple[Any, ...]:
        # Tasks need neither the broker's client nor its password.
        return TaskRows().__reduce__()

    def initialOffset(self) -> dict[str, Any]:
        """No message of any queue."""
        return QueueOffset(dict.fromkeys(self._source().queues, 0), "").to_spark()

    def getDefaultReadLimit(self) -> ReadLimit:
        """The maximum number of messages in a batch."""
        return ReadAllAvailable() if self._settings.most is None else ReadMaxRows(self._settings.most)

    def prepareForTriggerAvailableNow(self) -> None:
        """Read until the queues are found empty."""
        self._available_now = True

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """The end of the next batch; waits a moment for messages, or until the queues are known to be empty.

        Raises:
            SourceError: The source has failed, or the query is not sparkjet's.
        """
        at = QueueOffset.of(start)
        if self._running is None:
            self._running = Running(self._source(), self._schema, self._settings, at.queues)
            return self._end(start, at.queues, Held())
        self._running.wait_for_start()
        receiver = self._running.receiver
        reached = None if self._aligner is None else self._aligner.reached(start)
        if self._settings.drift is not None and reached is not None:
            receiver.align(reached, self._settings.drift)
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        if self._available_now:
            # Nobody waits for the first results of a run that ends by itself, and a batch takes as long with few rows.
            half = max(self._settings.limits.messages // 2, 1)
            wanted = min(half, half if most is None else most)
            receiver.gather(at.position, at.position + wanted - 1, _GATHERING)
        while not receiver.wait(at.position, _LOOKING) and self._available_now:
            # It is full, and epochs are not acknowledged yet; or a queue withholds its messages.
            receiver.check_delivery()
        # Again: whoever was waited for may have been read to its end since.
        held = receiver.held()
        queues = receiver.end(at.queues, most)
        waits = self._available_now and queues == at.queues
        while waits and not receiver.wait_for_acknowledgement(at.position, _LOOKING):
            # Spark ends this process with the query, and the last epoch may need it in parallel.
            continue
        return self._end(start, queues, held)

    def _end(self, start: dict[str, Any], queues: Counts, held: Held) -> dict[str, Any]:
        assert self._running is not None  # noqa: S101 - made first
        end = QueueOffset(queues, self._running.path).to_spark()
        return end if self._aligner is None else Aligner.described(start, end, held)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """The messages received, plus those that the queues still hold."""
        if self._running is None or not self._running.started:
            return None
        return QueueOffset(self._running.receiver.reported(), self._running.path).to_spark()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The rows of a batch; none for a batch of an earlier run, which was decided with the rows it had then."""
        first, last = QueueOffset.of(start), QueueOffset.of(end)
        if self._running is None or last.receiver != self._running.path:
            return []
        return tasks(self._running.receiver.rows(first.position, last.position))

    def stop(self) -> None:
        """Acknowledge what is decided, and end the connection."""
        if self._running is not None:
            self._running.stop()


class Running:
    """A receiver of one run, with its spool and the socket where the engine reaches it."""

    def __init__(
        self, source: AcknowledgingSource, schema: pa.Schema, settings: ReaderSettings, counts: Counts
    ) -> None:
        self._scratch = Scratch()
        directory = self._scratch.path
        (directory / _SPOOL).mkdir()
        spool = Spool(directory / _SPOOL, schema)
        self.receiver = Receiver(source, spool, _now, settings.limits)
        self.path = str(directory / _SOCKET)
        self._counts, self._settings = counts, settings
        self._control = ControlServer(directory / _SOCKET, self._handle)

    @property
    def started(self) -> bool:
        """Whether the engine has allowed it to read."""
        return self.receiver.started.is_set()

    def wait_for_start(self) -> None:
        """Wait until it may read.

        Raises:
            SourceError: No engine allows it.
        """
        if not self.receiver.started.wait(_STARTS_WITHIN):
            message = (
                "This source acknowledges messages when a record of sparkjet's holds them, and the query that reads it "
                "has none: read it with sj.stream(df) and write the stream with its writeStream."
            )
            raise SourceError(message)

    def stop(self) -> None:
        """End all of it; a second call does nothing."""
        self._control.close()
        self.receiver.stop()
        self._scratch.remove()

    def _handle(self, request: Request) -> LedgerState | None:
        if isinstance(request, Start) and not self.started:
            # An epoch may be that large, and a killed broker may forget that it was acknowledged.
            most = self._settings.limits.messages
            ledger = Ledger(identified=request.identified, most_acknowledged=most)
            ledger.restore(request.state or LedgerState(sum(self._counts.values())), _now())
            self.receiver.start(self._counts, ledger)
        elif isinstance(request, StateOf):
            return self.receiver.state(request.position)
        elif isinstance(request, Acknowledge):
            self.receiver.acknowledge(request.position)
        elif isinstance(request, Stop):
            self.stop()
        return None


def _now() -> int:
    # By the wall clock: remembered ids have an age, and outlive the process.
    return time.time_ns() // 1000
