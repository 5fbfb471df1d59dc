"""The receiver: a thread that reads a broker's queues into the spool, and acknowledges what is decided."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

import tenacity

from sparkjet.errors import SourceError
from sparkjet.sources.acknowledging.contract import ConnectionLostError
from sparkjet.sources.acknowledging.inbox import Inbox
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
_SOON = 1.0
"""Seconds; a connection that is lost earlier and has brought nothing is as good as none."""


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
        now: Microseconds of the wall clock.
        limits: When to stop reading for a while.
    """

    def __init__(self, source: AcknowledgingSource, spool: Spool, now: Callable[[], int], limits: Limits) -> None:
        self._source, self._spool, self._now, self._limits = source, spool, now, limits
        self._inbox = Inbox(spool, Ledger(), {})
        self._lock = threading.Condition()
        self.started = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sparkjet receiver", daemon=True)
        self._due = 0
        self._ready: Mapping[str, int] = {}
        self._empty = False
        # Since when queues have messages and deliver none, though nothing here keeps them from it.
        self._withheld_since: int | None = None
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
        self._inbox = Inbox(self._spool, ledger, dict.fromkeys(self._source.queues, 0) | counts)
        self._due = ledger.position
        self._thread.start()
        self.started.set()

    def end(self, start: Counts, most: int | None) -> Counts:
        """Where a batch ends that begins at ``start`` and has so many messages at most."""
        with self._lock:
            self._check()
            return self._inbox.end(start, most)

    def wait(self, beyond: int, seconds: float) -> bool:
        """Wait until there is a message beyond a position, or all queues are found empty; whether it came to that."""
        with self._lock:
            # An older look may have been before messages that are there now.
            self._empty = False
            settled = self._lock.wait_for(
                lambda: self._failure is not None or self._inbox.position > beyond or self._empty, seconds
            )
            self._check()
            return settled

    def wait_for_acknowledgement(self, position: int, seconds: float) -> bool:
        """Wait until the epochs up to a position are decided and acknowledged; whether it came to that."""
        with self._lock:
            done = self._lock.wait_for(
                lambda: (
                    self._failure is not None or (self._due >= position and not self._inbox.ledger.is_due(position))
                ),
                seconds,
            )
            self._check()
            return done

    def check_delivery(self) -> None:
        """End a wait for messages that do not come.

        Raises:
            SourceError: For as long as a broker may be away, queues have had messages and delivered none.
        """
        with self._lock:
            since = self._withheld_since
            if since is None or self._now() - since < self._limits.patience * 1e6:
                return
            held = ", ".join(f"{queue!r} ({count})" for queue, count in self._ready.items() if count)
        message = (
            f"queues have messages, and have delivered none for {self._limits.patience:g} s, so they would never be "
            f"found empty: {held}. Such a queue is paused, gives them to another consumer (it is exclusive, or they "
            "are of a group), or keeps those that were acknowledged (it is non-destructive). Have it deliver, end the "
            "other consumer, or read another queue."
        )
        raise SourceError(message)

    def reported(self) -> Counts:
        """What each queue has: what was received, and what it still holds."""
        with self._lock:
            self._check()
            return self._inbox.reported(self._ready)

    def rows(self, start: int, end: int) -> list[pa.RecordBatch]:
        """The rows of a range of positions; the same at every call until they are acknowledged."""
        with self._lock:
            self._check()
            return self._inbox.rows(start, end)

    def state(self, position: int) -> LedgerState:
        """What the record of an epoch up to a position must say."""
        with self._lock:
            self._check()
            return self._inbox.ledger.snapshot(position)

    def acknowledge(self, position: int) -> None:
        """Acknowledge what an epoch holds that is decided; wait until the broker has confirmed it.

        Not if the connection is lost, or the receiver fails: then its messages are delivered again, and dropped.
        """
        with self._lock:
            if position > self._inbox.position:
                message = f"position {position} cannot be acknowledged: the last message is {self._inbox.position}"
                raise ValueError(message)
            self._due = max(self._due, position)
            self._lock.wait_for(
                lambda: self._failure is not None or not self._inbox.ledger.is_due(position), _CONFIRMED_WITHIN
            )

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
                while not self._stopping.is_set():
                    self._read()
                self._acknowledge()
            finally:
                self._source.close()
        except BaseException as error:  # noqa: BLE001 - for the thread that asks next
            with self._lock:
                self._failure = self._failure or error
                self._lock.notify_all()

    def _read(self) -> None:
        """Read over a connection until it is lost; open it again and again while it is of no use."""
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
                self._use_connection()

    def _use_connection(self) -> None:
        """Open the connection and use it until it is lost.

        Raises:
            ConnectionLostError: It could not be opened, or was lost soon, and has brought nothing.
        """
        self._source.open()
        opened = time.monotonic()
        with self._changing():
            self._inbox.ledger.connect(
                self._source.broker, round(self._source.notices_within * 1e6), self._source.queues
            )
        progress = False
        try:
            while not self._stopping.is_set():
                progress = self._step() or progress
        except ConnectionLostError:
            with self._changing():
                self._inbox.ledger.disconnect(self._now())
            # Otherwise a message at which it breaks would have it opened for ever.
            if not progress and time.monotonic() - opened < _SOON:
                raise

    def _step(self) -> bool:
        """Acknowledge what is due, and receive; whether there was anything that had not been there before."""
        progress = self._acknowledge()
        messages = self._source.receive(self._room(), WAIT)
        if messages:
            with self._changing():
                self._withheld_since = None
                position = self._inbox.position
                self._inbox.receive(messages)
                progress = progress or self._inbox.position > position
        now = self._now()
        if not messages or self._inbox.ledger.wants_look(now):
            ready = self._source.ready()
            with self._changing():
                self._inbox.ledger.look(ready, now, alone=self._source.alone)
                self._ready = ready
                # Full, it has not read what is there.
                self._empty = not any(ready.values()) and self._room() > 0
                # With something unacknowledged, a queue may have delivered as much as it does.
                reads = self._room() > 0 and self._inbox.ledger.unacknowledged == 0
                if messages or not (reads and any(ready.values())):
                    self._withheld_since = None
                elif self._withheld_since is None:
                    self._withheld_since = now
        return progress

    def _room(self) -> int:
        if self._inbox.size >= self._limits.bytes:
            return 0
        return max(self._limits.messages - self._inbox.ledger.unacknowledged, 0)

    def _acknowledge(self) -> bool:
        with self._lock:
            position = self._due
            due = self._inbox.ledger.due(position)
        if due:
            self._source.acknowledge(due)
        with self._changing():
            self._inbox.ledger.acknowledge(due, self._now())
            self._inbox.remove(position)
        return due > 0

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Change what the other threads see; they see nothing any more if that fails halfway."""
        with self._lock:
            try:
                yield
            except BaseException as error:
                self._failure = error
                raise
            finally:
                self._lock.notify_all()

    def _give_up(self, state: tenacity.RetryCallState) -> None:
        error = None if state.outcome is None else state.outcome.exception()
        message = (
            f"the broker cannot be reached: {error}. Only what was decided is acknowledged; start the query again when "
            "the broker is there."
        )
        raise SourceError(message) from error
