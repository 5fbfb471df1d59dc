"""The receiver: a thread that reads a broker's queues into the spool, and acknowledges what is decided."""

from __future__ import annotations

import itertools
import threading
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import tenacity

from sparkjet.errors import SourceError
from sparkjet.sources.acknowledging.contract import ConnectionLostError, Message
from sparkjet.sources.acknowledging.ledger import Ledger
from sparkjet.sources.acknowledging.offset import Counts

if TYPE_CHECKING:
    import pyarrow as pa

    from sparkjet.sources.acknowledging.contract import AcknowledgingSource
    from sparkjet.sources.acknowledging.ledger import LedgerState
    from sparkjet.sources.acknowledging.spool import Spool

WAIT = 0.05
"""Seconds that the thread waits for messages before it looks for something to acknowledge."""
_CONFIRMED_WITHIN = 30.0
"""Seconds; an epoch waits no longer for a broker that neither confirms an acknowledgement nor ends the connection."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 10.0


@dataclass(frozen=True)
class Limits:
    """How much a receiver takes before epochs are decided.

    Attributes:
        messages: Messages that are not acknowledged; the broker keeps those beyond.
        bytes: Size of the spool.
        patience: Seconds that a broker may be away.
    """

    messages: int = 50_000
    bytes: int = 1 << 30
    patience: float = 60.0


class Receiver:
    """Reads queues in a thread of its own, from :meth:`start` to :meth:`stop`.

    The other methods are for any thread. What they raise is what has ended the thread; nothing is acknowledged then
    that was not decided.

    Args:
        source: Where messages come from; it is used by the receiver's thread alone.
        spool: Where their rows go.
        now: Microseconds.
        limits: When to stop reading for a while.
    """

    def __init__(self, source: AcknowledgingSource, spool: Spool, now: Callable[[], int], limits: Limits) -> None:
        self._source, self._spool, self._now, self._limits = source, spool, now, limits
        self._ledger = Ledger()
        self._lock = threading.Condition()
        self.started = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sparkjet receiver", daemon=True)
        # Up to what is acknowledged, and the queues of the messages from there on.
        self._counts: Counts = {}
        self._arrived: deque[str] = deque()
        self._due = 0
        self._ready: Mapping[str, int] = {}
        self._empty = False
        self._stopping = threading.Event()
        self._failure: BaseException | None = None

    def start(self, counts: Counts, ledger: Ledger) -> None:
        """Begin to read.

        Args:
            counts: Where the newest record ends.
            ledger: Which messages have come before, restored from that record.

        Raises:
            ValueError: The two are of different records.
        """
        if sum(counts.values()) != ledger.position:
            message = f"messages up to {counts} were decided, but the ids are of position {ledger.position}"
            raise ValueError(message)
        self._counts = dict.fromkeys(self._source.queues, 0) | counts
        self._ledger, self._due = ledger, ledger.position
        self._thread.start()
        self.started.set()

    def end(self, start: Counts, most: int | None) -> Counts:
        """Where a batch ends that begins at ``start`` and has so many messages at most."""
        with self._lock:
            self._check()
            acknowledged = sum(self._counts.values())
            wanted = len(self._arrived) if most is None else sum(start.values()) + most - acknowledged
            counts = Counter(self._counts)
            counts.update(itertools.islice(self._arrived, wanted))
            return dict(counts)

    def wait(self, beyond: int, seconds: float) -> bool:
        """Wait until there is a message beyond a position, or all queues are found empty; whether it came to that."""
        with self._lock:
            # An older look may have been before messages that are there now.
            self._empty = False
            settled = self._lock.wait_for(
                lambda: self._failure is not None or self._ledger.position > beyond or self._empty, seconds
            )
            self._check()
            return settled

    def wait_for_acknowledgement(self, position: int, seconds: float) -> bool:
        """Wait until the epochs up to a position are decided and acknowledged; whether it came to that."""
        with self._lock:
            done = self._lock.wait_for(
                lambda: self._failure is not None or (self._due >= position and not self._ledger.due(position)), seconds
            )
            self._check()
            return done

    def reported(self) -> Counts:
        """What each queue has: what was received, and what it still holds."""
        with self._lock:
            self._check()
            counts = Counter(self._counts)
            counts.update(self._arrived)
            counts.update(self._ready)
            return dict(counts)

    def rows(self, start: int, end: int) -> list[pa.RecordBatch]:
        """The rows of a range of positions; the same at every call until they are acknowledged."""
        with self._lock:
            return list(self._spool.read(start, end))

    def state(self, position: int) -> LedgerState:
        """What the record of an epoch up to a position must say."""
        with self._lock:
            return self._ledger.snapshot(position)

    def acknowledge(self, position: int) -> None:
        """Acknowledge what an epoch holds that is decided; wait until the broker has confirmed it.

        Not if the connection is lost, or the receiver fails: then its messages are delivered again, and dropped.
        """
        with self._lock:
            self._due = max(self._due, position)
            self._lock.wait_for(lambda: self._failure is not None or not self._ledger.due(position), _CONFIRMED_WITHIN)

    def stop(self) -> None:
        """Acknowledge what is due and end the connection; a second call does nothing."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()
        self._spool.close()

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            try:
                self._connect()
                while not self._stopping.is_set():
                    self._step()
                self._acknowledge()
            finally:
                self._source.close()
        except BaseException as error:  # noqa: BLE001 - for the thread that asks next
            with self._lock:
                self._failure = error
                self._lock.notify_all()

    def _step(self) -> None:
        try:
            self._acknowledge()
            messages = self._source.receive(self._room(), WAIT)
            ready = None if messages else self._source.ready()
        except ConnectionLostError:
            with self._lock:
                self._ledger.reconnect()
                self._lock.notify_all()
            self._connect()
            return
        with self._lock:
            if messages:
                self._accept(messages)
            elif ready is not None:
                self._ready = ready
                # Full, it has not read what is there.
                self._empty = not any(ready.values()) and self._room() > 0
            self._lock.notify_all()

    def _room(self) -> int:
        if self._ledger.held >= 4 * self._limits.messages:
            # Every restart adds what it did not acknowledge, and nothing is received that would make the ids expire.
            self._ledger.expire(self._now())
            return 0
        if self._spool.size >= self._limits.bytes:
            return 0
        return max(self._limits.messages - self._ledger.unacknowledged, 0)

    def _accept(self, messages: Sequence[Message]) -> None:
        first = self._ledger.position
        positions = self._ledger.receive([each.id for each in messages], self._now())
        self._arrived.extend(each.queue for each in messages)
        if positions:
            kept = (messages[position - first].values for position in positions)
            self._spool.append(positions, list(zip(*kept, strict=True)))

    def _acknowledge(self) -> None:
        with self._lock:
            position = self._due
            due = self._ledger.due(position)
        if due:
            self._source.acknowledge(due)
        with self._lock:
            self._ledger.acknowledge(position, self._now())
            self._spool.remove(position)
            for _ in range(position - sum(self._counts.values())):
                self._counts[self._arrived.popleft()] += 1
            self._lock.notify_all()

    def _connect(self) -> None:
        """Open the connection, again and again while the broker is away and the query is not stopped."""
        for attempt in tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(ConnectionLostError),
            wait=tenacity.wait_exponential(_FIRST_PAUSE, max=_LONGEST_PAUSE),
            stop=tenacity.stop_any(
                tenacity.stop_after_delay(self._limits.patience), tenacity.stop_when_event_set(self._stopping)
            ),
            sleep=tenacity.sleep_using_event(self._stopping),
            retry_error_callback=self._give_up,
        ):
            with attempt:
                self._source.open()

    def _give_up(self, state: tenacity.RetryCallState) -> None:
        error = None if state.outcome is None else state.outcome.exception()
        message = (
            f"the broker cannot be reached: {error}. Only what was decided is acknowledged; start the query again when "
            "the broker is there."
        )
        raise SourceError(message) from error
