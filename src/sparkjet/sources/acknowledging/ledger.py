"""The ledger: which messages of a queue were received, which a decided epoch holds, and which must be dropped."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import msgspec

from sparkjet.errors import SourceError

RESTORED_FOR = 60_000_000
"""Microseconds that restored ids are kept after the first message of a run, as Jet keeps them."""
ACKNOWLEDGED_FOR = 10_000_000
"""Microseconds that ids are kept after they were acknowledged."""


class LedgerState(msgspec.Struct, frozen=True):
    """Snapshot of a ledger: the next position, and the ids that the broker may deliver once more."""

    position: int
    ids: list[str]


class MissingIdError(SourceError):
    """A message without an id, which cannot be told from its own redelivery."""


class Ledger:
    """Numbers the messages of a run, remembers the ids of those not acknowledged, and drops redelivered ones once.

    A position is the number that a message gets when it arrives, whether it is dropped or not; a micro-batch is a range
    of them. Messages below the position of a decided epoch may be acknowledged. Until the broker has heard that, it
    may deliver them again: to the next run, which restores their ids from the record, or to the next connection of this
    one, whose spool has their rows. Each of them is dropped once.

    That is what Jet's JMS source does (rules J01 to J10 of the tests). Ids of one connection are never compared with
    each other: a broker delivers a message twice to one consumer only if a producer has sent it twice. Beyond Jet, ids
    are kept for a while after the broker has confirmed them: one that is killed may forget what it has confirmed.

    Args:
        identified: Whether messages are told apart by their ids: with exactly-once. Otherwise nothing is dropped.
        restored_for: Microseconds after the first message of a connection in which ids of earlier ones are dropped.
        most_acknowledged: Number of acknowledged ids to keep at most.

    >>> ledger = Ledger()
    >>> ledger.restore(LedgerState(position=7, ids=["m1", "m2"]))
    >>> ledger.receive(["m1", "m3", "m1"], now=0)
    [8, 9]
    >>> ledger.snapshot(9)
    LedgerState(position=9, ids=['m1', 'm3', 'm2'])
    """

    def __init__(
        self, *, identified: bool = True, restored_for: int = RESTORED_FOR, most_acknowledged: int = 20_000
    ) -> None:
        self._identified = identified
        self._restored_for, self._most_acknowledged = restored_for, most_acknowledged
        # Of all, with the position of its row: a copy that is dropped has another one.
        self._delivered: deque[tuple[str, int]] = deque()
        self._done: deque[tuple[str, int]] = deque()
        self._done_at: deque[int] = deque()
        self._restored: dict[str, int] = {}
        self._expires: int | None = None
        self._acknowledged = self._position = 0

    @property
    def position(self) -> int:
        """The position of the next message."""
        return self._position

    @property
    def unacknowledged(self) -> int:
        """How many messages this connection was given and has not acknowledged."""
        return self._position - self._acknowledged

    @property
    def held(self) -> int:
        """How many ids are remembered, beside acknowledged ones; a receiver with a bound waits when it is reached."""
        return len(self._delivered) + len(self._restored)

    def receive(self, ids: Sequence[str | None], now: int) -> list[int]:
        """Give messages the next positions.

        Args:
            ids: The id that the producer gave each message.
            now: Microseconds.

        Returns:
            The positions of those that are new; the rows of the others were read before, and they must be dropped.

        Raises:
            MissingIdError: One has no id, and the guarantee is exactly-once. Nothing has changed.
        """
        first, end = self._position, self._position + len(ids)
        if not self._identified:
            self._position = end
            return list(range(first, end))
        given = [each for each in ids if each]
        if len(given) < len(ids):
            message = (
                "A message has no id, so exactly-once could not tell it from its own redelivery. Have its producer set "
                'one, unlike any other, or set option("processingGuarantee", "at-least-once").'
            )
            raise MissingIdError(message)
        self.expire(now)
        new = []
        for position, each in enumerate(given, first):
            # Only once: a second message of this id is another one.
            known = self._restored.pop(each, None)
            self._delivered.append((each, position if known is None else known))
            if known is None:
                new.append(position)
        self._position = end
        return new

    def expire(self, now: int) -> None:
        """Forget the restored ids when their time has come, which begins with the first call of a connection."""
        if self._expires is None:
            self._expires = now + self._restored_for
        elif now >= self._expires:
            self._restored.clear()

    def due(self, position: int) -> int:
        """How many of this connection's oldest messages arrived before a position, and are to be acknowledged.

        A position that was acknowledged before has none: a commit may be repeated.
        """
        if position > self._position:
            message = f"position {position} cannot be acknowledged: only {self._position} messages were received"
            raise ValueError(message)
        return max(position - self._acknowledged, 0)

    def acknowledge(self, position: int, now: int) -> None:
        """Forget, in a while, what arrived before a position; not before the broker has confirmed that it has, too."""
        done = self.due(position)
        for _ in range(done if self._identified else 0):
            self._done.append(self._delivered.popleft())
            self._done_at.append(now)
        while self._done and (self._done_at[0] <= now - ACKNOWLEDGED_FOR or len(self._done) > self._most_acknowledged):
            self._done.popleft()
            self._done_at.popleft()
        self._acknowledged += done

    def reconnect(self) -> None:
        """Expect what was not acknowledged once more: the broker has lost the connection that it was delivered to."""
        for each, row in (*self._done, *self._delivered):
            # The oldest row of a message that a producer has sent twice: once it is decided, one copy is dropped.
            self._restored.setdefault(each, row)
        for ids in (self._done, self._done_at, self._delivered):
            ids.clear()
        self._acknowledged = self._position
        self._expires = None

    def snapshot(self, position: int) -> LedgerState:
        """What the next run must know if this one ends after an epoch up to the position was decided."""
        held = (*self._delivered, *self._done, *self._restored.items())
        # Not those of later rows, which are decided nowhere: the next run would drop them, and they would be lost.
        return LedgerState(position, list(dict.fromkeys(each for each, row in held if row < position)))

    def restore(self, state: LedgerState) -> None:
        """Go on where an earlier run ended; before the first message."""
        self._acknowledged = self._position = state.position
        # With at-least-once a message that is delivered again is a message.
        self._restored = dict.fromkeys(state.ids, -1) if self._identified else {}
