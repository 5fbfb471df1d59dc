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
from sparkjet.sources.alignment import Held, held_back

if TYPE_CHECKING:
    import pyarrow as pa

    from sparkjet.sources.acknowledging.contract import AcknowledgingSource
    from sparkjet.sources.acknowledging.ledger import LedgerState
    from sparkjet.sources.acknowledging.spool import Spool

WAIT = 0.05
"""Seconds that the thread waits for messages before it looks for something to acknowledge."""
_CONFIRMED_WITHIN = 30.0
"""Seconds that an epoch waits for a broker that neither confirms an acknowledgement nor ends the connection."""
_LOOKED_WITHIN = 5.0
"""Seconds that a batch waits for a count of the queues, which a broker that is away does not give."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 10.0
_SOON = 1.0
"""Seconds; a connection lost earlier than this without bringing anything is as good as none."""


@dataclass(frozen=True)
class Limits:
    """Limits on what a receiver takes before epochs are decided.

    Attributes:
        messages: Maximum number of unacknowledged messages; the broker keeps the rest.
        bytes: Maximum size of the spool.
        patience: Seconds that a broker may be away.
    """

    messages: int = 50_000
    bytes: int = 1 << 30
    patience: float = 60.0


class Receiver:
    """Reads queues in its own thread, from :meth:`start` to :meth:`stop`.

    The other methods may be called from any thread. They raise what has ended the receiver's thread; in that case,
    nothing undecided is acknowledged.

    Args:
        source: Where messages come from; used only by the receiver's thread.
        spool: Stores their rows.
        now: Returns microseconds of the wall clock.
        limits: When to pause reading.
    """

    def __init__(self, source: AcknowledgingSource, spool: Spool, now: Callable[[], int], limits: Limits) -> None:
        self._source, self._spool, self._now, self._limits = source, spool, now, limits
        self._inbox = Inbox(spool, Ledger(), {})
        self._lock = threading.Condition()
        self.started = threading.Event()
        self._thread = threading.Thread(target=self._run, name="sparkjet receiver", daemon=True)
        self._due = 0
        self._ready: Mapping[str, int] = {}
        self._empty = self._quiet = False
        self._standing: tuple[Mapping[str, int], int] | None = None
        self._looks = False
        self._held = Held()
        # Since when queues have had messages and delivered none, though nothing here prevents it.
        self._withheld_since: int | None = None
        self._stopping = threading.Event()
        self._failure: BaseException | None = None

    def start(self, counts: Counts, ledger: Ledger) -> None:
        """Begin to read.

        Args:
            counts: Where the newest record ends.
            ledger: Knows which messages have come before, restored from that record.

        Raises:
            ValueError: The two belong to different records.
        """
        self._inbox = Inbox(self._spool, ledger, dict.fromkeys(self._source.queues, 0) | counts)
        self._due = ledger.position
        self._thread.start()
        self.started.set()

    def end(self, start: Counts, most: int | None) -> Counts:
        """The end of a batch that begins at ``start`` and has at most this many messages."""
        with self._lock:
            self._check()
            return self._inbox.end(start, most)

    def align(self, reached: Mapping[str, int], drift: int) -> None:
        """Hold back the queues that are too far ahead, from what the broker says now of who has messages to read.

        That changes while a batch waits for messages, and with it who is held back.

        Args:
            reached: How far event time has come in each queue that is neither idle nor retired.
            drift: How far one may be ahead of another that has undelivered messages.
        """
        with self._lock:
            self._standing, self._looks = (reached, drift), True
            self._lock.wait_for(lambda: self._failure is not None or not self._looks, _LOOKED_WITHIN)
            self._check()

    def held(self) -> Held:
        """The queues that are held back now."""
        with self._lock:
            self._check()
            return self._to_hold()

    def wait(self, beyond: int, seconds: float) -> bool:
        """Wait for a message beyond a position, or until all queues are empty; returns whether either came about."""
        with self._lock:
            # An older look may predate messages that are there now.
            self._empty = False
            settled = self._lock.wait_for(
                lambda: self._failure is not None or self._inbox.position > beyond or self._empty, seconds
            )
            self._check()
            return settled

    def gather(self, since: int, beyond: int, seconds: float) -> None:
        """Wait, at most this long, for a message beyond a position, until all queues are empty, or until no more come.

        Queues deliver only so many messages before they are acknowledged, and others may have none: once there are some
        from ``since`` on and all before it are acknowledged, a moment without any ends the wait.
        """
        with self._lock:
            self._empty = self._quiet = False

            def is_enough() -> bool:
                position = self._inbox.position
                is_all = self._quiet and position > since and not self._inbox.ledger.is_due(since)
                return self._failure is not None or position > beyond or self._empty or is_all

            self._lock.wait_for(is_enough, seconds)
            self._check()

    def wait_for_acknowledgement(self, position: int, seconds: float) -> bool:
        """Wait until the epochs up to a position are decided and acknowledged; returns whether that happened."""
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
        """The messages of each queue: those received, and those that it still holds."""
        with self._lock:
            self._check()
            return self._inbox.reported(self._ready)

    def rows(self, start: int, end: int) -> list[pa.RecordBatch]:
        """The rows of a range of positions; the same on every call until they are acknowledged."""
        with self._lock:
            self._check()
            return self._inbox.rows(start, end)

    def state(self, position: int) -> LedgerState:
        """The state that the record of an epoch up to a position must contain."""
        with self._lock:
            self._check()
            return self._inbox.ledger.snapshot(position)

    def acknowledge(self, position: int) -> None:
        """Acknowledge the messages of a decided epoch; wait until the broker has confirmed it.

        Does not wait if the connection is lost or the receiver fails: then its messages are redelivered, and dropped.
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
        """Read over a connection until it is lost; keep reopening it while it is of no use."""
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
        """Open the connection and use it until it is lost; an error if it brought nothing and was lost soon."""
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
            # Otherwise it would be reopened forever because of a message that breaks it.
            if not progress and time.monotonic() - opened < _SOON:
                raise

    def _step(self) -> bool:
        """Acknowledge what is due, and receive; returns whether there was anything new."""
        progress = self._acknowledge()
        self._hold_back()
        messages = self._source.receive(self._room(), WAIT)
        if messages:
            with self._changing():
                self._withheld_since = None
                self._quiet = False
                position = self._inbox.position
                self._inbox.receive(messages)
                progress = progress or self._inbox.position > position
        now = self._now()
        if not messages or self._looks or self._inbox.ledger.wants_look(now):
            ready = self._source.ready()
            with self._changing():
                self._inbox.ledger.look(ready, now, alone=self._source.alone)
                self._ready, self._looks = ready, False
                self._quiet = not messages
                # When full, it has not read what is there.
                self._empty = not any(ready.values()) and self._room() > 0
                # With something unacknowledged, a queue may have delivered as much as it ever will.
                reads = self._room() > 0 and self._inbox.ledger.unacknowledged == 0
                delivering = any(count for queue, count in ready.items() if queue not in self._held.ahead)
                if messages or not (reads and delivering):
                    self._withheld_since = None
                elif self._withheld_since is None:
                    self._withheld_since = now
        return progress

    def _hold_back(self) -> None:
        with self._lock:
            if self._looks:
                # By an older look, one that has messages may seem to have none.
                return
            held = self._to_hold()
        if held.ahead.keys() != self._held.ahead.keys():
            self._source.hold(held.ahead)
        self._held = held

    def _to_hold(self) -> Held:
        if self._standing is None:
            return Held()
        # One of which all has been received holds nobody: it is read soon, and one that is always behind, but never has
        # more than that, would starve the others.
        return held_back([queue for queue, count in self._ready.items() if count], *self._standing)

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
            # The broker may deliver more now.
            self._quiet = self._quiet and not due
        return due > 0

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Change what the other threads see; if that fails halfway, they no longer see anything."""
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
