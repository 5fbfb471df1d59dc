"""The ledger: which messages of a queue were received, which a decided epoch holds, and which must be dropped."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain, repeat
from typing import TypeAlias

import msgspec

from sparkjet.errors import SourceError
from sparkjet.sources.acknowledging.contract import NOTICES_WITHIN, Message

ACKNOWLEDGED_FOR = 10_000_000
"""Microseconds to keep ids after acknowledgement: a broker that is killed may forget it."""
UNREAD_FOR = 7 * 86_400_000_000
"""Microseconds to keep ids of queues and brokers that are no longer read; they may be read again."""
_DECIDED_BEFORE = -1
"""The row of a message that an earlier run has read."""


class Expected(msgspec.Struct, frozen=True):
    """Messages of one connection that their broker may deliver again.

    Attributes:
        broker: The broker; empty if that is not known.
        within: Microseconds after which it has noticed at the latest that the connection is gone.
        since: When the connection was known to be gone, in microseconds of the wall clock; None while it exists.
        ids: Their ids, by queue.
    """

    broker: str
    within: int
    since: int | None
    ids: dict[str, list[str]]


class LedgerState(msgspec.Struct, frozen=True, omit_defaults=True):
    """Snapshot of a ledger.

    Attributes:
        position: The next position.
        ids: Ids whose queues are not known, from a record written before they were distinguished.
        expected: The messages that may be delivered again.
    """

    position: int
    ids: list[str] = []
    expected: list[Expected] = []


class MissingIdError(SourceError):
    """A message without an id, which cannot be distinguished from its own redelivery."""

    condition = "SPARKJET_SOURCE.MISSING_ID"


_Delivery: TypeAlias = tuple[str, str, int]
"""A queue, an id, and the position of the row: a plain tuple, as there is one for each message."""


class Ledger:
    """Numbers the messages of a run, remembers the ids of unacknowledged ones, and drops redelivered ones.

    A position is the number of a new message, and of its row; a micro-batch is a range of positions. Messages below the
    position of a decided epoch may be acknowledged. Until the broker knows, it may deliver them again: to the next run,
    which restores their ids from the record, or to the next connection of this run, whose spool has their rows. Such a
    delivery is dropped, once for each time that the message was delivered before; it has no position except that of its
    row, and may be acknowledged when that is decided.

    This is what Jet's JMS source does (rules J01 to J09 of the tests), with these differences. A message is identified
    by its broker, its queue and its id. One that the broker delivers for the first time is not compared with anything.
    Ids are forgotten not after a minute, but when the broker can have none of their messages left: it has noticed that
    their connection is gone, and what its queues held then has been received. And they are kept for a while after an
    acknowledgement is confirmed.

    Args:
        identified: Whether messages are told apart by their ids, as in exactly-once mode; otherwise nothing is dropped.
        most_acknowledged: Maximum number of acknowledged ids to keep.
        acknowledged_for: How long they are kept, in microseconds.

    >>> ledger = Ledger()
    >>> ledger.restore(LedgerState(7, expected=[Expected("", 0, None, {"orders": ["m1", "m2"]})]), now=0)
    >>> ledger.connect("", 0, ["orders"])
    >>> ledger.receive([Message(each, "orders", ()) for each in ("m1", "m3")], hold=lambda new: None)
    >>> ledger.position
    8
    >>> ledger.snapshot(8).expected[-1].ids
    {'orders': ['m1', 'm3']}
    """

    def __init__(
        self, *, identified: bool = True, most_acknowledged: int = 20_000, acknowledged_for: int = ACKNOWLEDGED_FOR
    ) -> None:
        self._identified, self._most_acknowledged = identified, most_acknowledged
        self._acknowledged_for = acknowledged_for
        self._broker, self._within, self._queues = "", 0, frozenset[str]()
        # Of this connection.
        self._delivered: deque[_Delivery] = deque()
        self._done: deque[_Delivery] = deque()
        self._done_at: deque[int] = deque()
        # Of earlier ones, the oldest first.
        self._lost: list[_Lost] = []
        # When the broker will have everything back, including what the last connection of an earlier run was given.
        self._began = self._returned = 0
        # How many messages the queues held when they had everything back and that were not received since, and the
        # connections whose messages that included.
        self._owed: dict[str, int] | None = None
        self._looked_for: list[_Lost] = []
        self._position = 0

    @property
    def position(self) -> int:
        """The position of the next message."""
        return self._position

    @property
    def unacknowledged(self) -> int:
        """The number of messages that this connection was given and has not acknowledged."""
        return len(self._delivered)

    @property
    def remembered(self) -> int:
        """The number of messages of earlier connections that may come again."""
        return sum(len(rows) for each in self._lost for rows in each.rows.values())

    def connect(self, broker: str, within: int, queues: Iterable[str]) -> None:
        """Begin a connection.

        Args:
            broker: The broker it leads to.
            within: Microseconds after which the broker has noticed at the latest that the connection is gone.
            queues: The queues that are read.
        """
        self._broker, self._within, self._queues = broker, within, frozenset(queues)
        self._returned = max(self._returned, self._began + within)

    def receive(self, messages: Sequence[Message], hold: Callable[[Sequence[Message]], object]) -> None:
        """Give the next positions to the new messages, once their rows are held, and drop the others.

        Args:
            messages: The messages that this connection was given, in order.
            hold: Stores the rows of the new ones. If it fails, no message has a position, and this ledger is unusable.

        Raises:
            MissingIdError: A message has none, and the guarantee is exactly-once.
        """
        if self._identified:
            for message in messages:
                if not message.id:
                    raise _missing_id(message)
        known = map(self._row, messages) if self._lost else repeat(None)
        delivered: list[_Delivery] = []
        new: list[Message] = []
        for message, row in zip(messages, known):  # noqa: B905 - without end
            if row is None:
                row = self._position + len(new)  # noqa: PLW2901 - of a new message
                new.append(message)
            delivered.append((message.origin or message.queue, message.id or "", row))
        if new:
            hold(new)
        # Not before: a message whose position has no row would be decided and acknowledged, but nowhere.
        self._delivered.extend(delivered)
        self._position += len(new)
        if self._owed:
            received = Counter(message.queue for message in messages)
            self._owed = {queue: count - received[queue] for queue, count in self._owed.items()}
            self._forget()

    def is_due(self, position: int) -> bool:
        """Whether the row of the oldest unacknowledged message lies before a position."""
        return bool(self._delivered) and self._delivered[0][2] < position

    def due(self, position: int) -> int:
        """The number of this connection's oldest messages whose rows lie before a position.

        If the engine has decided up to there, they may be acknowledged, even those read on an earlier connection.
        """
        count = 0
        for _, _, row in self._delivered:
            if row >= position:
                break
            count += 1
        return count

    def acknowledge(self, count: int, now: int) -> None:
        """Forget, after a while, this many of the oldest messages; call it only once the broker has confirmed."""
        for _ in range(count):
            self._done.append(self._delivered.popleft())
        self._done_at.extend([now] * count)
        kept = self._most_acknowledged if self._identified else 0
        while self._done and (self._done_at[0] <= now - self._acknowledged_for or len(self._done) > kept):
            self._done.popleft()
            self._done_at.popleft()

    def disconnect(self, now: int) -> None:
        """Expect unacknowledged messages again: the connection to which they were delivered is lost."""
        if self._identified and (self._done or self._delivered):
            self._lost.append(_Lost(self._broker, self._within, now, chain(self._done, self._delivered)))
        for each in (self._done, self._done_at, self._delivered):
            each.clear()
        # What it was given goes back to where it was, before what was counted.
        self._returned, self._owed = max(self._returned, now + self._within), None

    def wants_look(self, now: int) -> bool:
        """Whether it is time for :meth:`look`, even if messages keep coming."""
        return bool(self._lost) and self._owed is None and now >= self._returned

    def look(self, ready: Mapping[str, int], now: int, *, alone: bool = False) -> None:
        """Learn how many undelivered messages each queue holds, including those that were returned to it.

        Args:
            ready: The number by queue.
            now: When they were counted.
            alone: Whether no other client had any then, so that runs shorter than the broker needs to notice a dead
                client forget as well; otherwise each would leave its ids to all later ones.
        """
        if not self._owed:
            is_returned = alone or now >= self._returned
            # Dead letters take their time, and a broker that is killed may forget what it has confirmed, even to a
            # connection that was lost right afterwards.
            self._looked_for = [
                each
                for each in self._lost
                if is_returned and now >= each.since + max(each.within, self._acknowledged_for)
            ]
            if not self._looked_for:
                return
            self._owed = dict(ready)
        else:
            # Others may have taken them, or they have expired.
            self._owed = {queue: min(count, ready.get(queue, count)) for queue, count in self._owed.items()}
        self._forget()
        self._lost = [each for each in self._lost if self._owed or now < each.since + UNREAD_FOR]

    def snapshot(self, position: int) -> LedgerState:
        """The state that the next run needs if this one ends after an epoch up to the position was decided."""
        if not self._identified:
            return LedgerState(position)
        found = [each.snapshot(position) for each in self._lost]
        # Not those of later rows, which are not decided: the next run would drop them, and they would be lost.
        ids = _by_queue(chain(self._done, self._delivered), position)
        found.append(Expected(self._broker, self._within, None, ids))
        return LedgerState(position, expected=[each for each in found if each.ids])

    def restore(self, state: LedgerState, now: int) -> None:
        """Continue where an earlier run ended, whose connection is gone by now; before the first message."""
        self._position, self._began = state.position, now
        if not self._identified:
            # With at-least-once, a redelivered message counts as a message.
            return
        expected = [*state.expected]
        if state.ids:
            expected.insert(0, Expected("", round(NOTICES_WITHIN * 1e6), None, {"": state.ids}))
        for each in expected:
            deliveries = [(queue, id_, _DECIDED_BEFORE) for queue, ids in each.ids.items() for id_ in ids]
            self._lost.append(_Lost(each.broker, each.within, now if each.since is None else each.since, deliveries))
            self._returned = max(self._returned, now + each.within)

    def _row(self, message: Message) -> int | None:
        """The position of the row that a message already has; None if the message is new."""
        if not message.redelivered:
            return None
        queue = message.origin or message.queue
        # The newest: of two messages with one id, the undecided one must not be acknowledged for the other.
        for each in reversed(self._lost):
            if self._is_here(each):
                row = each.take((queue, message.id or ""), ("", message.id or ""))
                if row is not None:
                    return row
        return None

    def _is_here(self, lost: _Lost) -> bool:
        return lost.broker in {"", self._broker}

    def _forget(self) -> None:
        if self._owed is None or any(count > 0 for count in self._owed.values()):
            return
        self._owed = {}
        for each in self._looked_for:
            if self._is_here(each):
                each.forget(self._queues)
        self._lost = [each for each in self._lost if each.rows]


class _Lost:
    """The messages that a lost connection was given."""

    def __init__(self, broker: str, within: int, since: int, deliveries: Iterable[_Delivery]) -> None:
        self.broker, self.within, self.since = broker, within, since
        self.rows: dict[tuple[str, str], list[int]] = {}
        for queue, id_, row in deliveries:
            self.rows.setdefault((queue, id_), []).append(row)

    def take(self, *keys: tuple[str, str]) -> int | None:
        for key in keys:
            rows = self.rows.get(key)
            if rows:
                row = max(rows)
                rows.remove(row)
                if not rows:
                    del self.rows[key]
                return row
        return None

    def forget(self, queues: frozenset[str]) -> None:
        # Those of queues that are not currently read may be read again, or arrive through a dead-letter queue.
        self.rows = {key: rows for key, rows in self.rows.items() if key[0] and key[0] not in queues}

    def snapshot(self, position: int) -> Expected:
        deliveries = ((*key, row) for key, rows in self.rows.items() for row in rows)
        return Expected(self.broker, self.within, self.since, _by_queue(deliveries, position))


def _by_queue(deliveries: Iterable[_Delivery], position: int) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    last, ids = None, [""]
    for queue, id_, row in deliveries:
        if row < position:
            if queue != last:
                last, ids = queue, found.setdefault(queue, [])
            ids.append(id_)
    return found


def _missing_id(message: Message) -> MissingIdError:
    text = (
        f"A message of queue {message.queue!r} has no id, so exactly-once could not tell it from its own redelivery. "
        'Have its producer set one, unlike any other, or set option("processingGuarantee", "at-least-once").'
    )
    return MissingIdError(text)
