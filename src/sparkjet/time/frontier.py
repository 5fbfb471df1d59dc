"""The frontier: the watermark of several members, each of which has its own."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from sparkjet.time.frames import MIN


class Member(msgspec.Struct, frozen=True):
    """How far a member has come (MIN: nowhere yet), and whether it is waited for."""

    watermark: int = MIN
    idle: bool = False


class FrontierState(msgspec.Struct, frozen=True):
    """Snapshot of a frontier."""

    members: dict[str, Member]
    top: int
    quiet: bool


class Ideal(NamedTuple):
    """The frontier's watermark, None if it has not changed since it went idle, and whether it just did."""

    watermark: int | None
    went_idle: bool


class Frontier:
    """The minimum of the members' watermarks; idle members do not count.

    Used twice: for the substreams of an input, and for the inputs of a query. Once every member is idle, the highest
    watermark wins instead, and going idle is reported once.

    >>> frontier = Frontier()
    >>> frontier.insert("a"); frontier.insert("b")
    >>> frontier.advance("a", 20); frontier.advance("b", 10)
    >>> frontier.least, frontier.ideal()
    (10, Ideal(watermark=10, went_idle=False))
    >>> frontier.mark_idle("b"); frontier.mark_idle("a")
    >>> frontier.least, frontier.ideal(), frontier.ideal()
    (None, Ideal(watermark=20, went_idle=True), Ideal(watermark=None, went_idle=False))
    """

    def __init__(self, state: FrontierState | None = None) -> None:
        self._members = {} if state is None else dict(state.members)
        self._top = MIN if state is None else state.top
        self.quiet = False if state is None else state.quiet
        """Whether going idle was reported, and no member has been active since."""

    def __contains__(self, member: str) -> bool:
        return member in self._members

    def __getitem__(self, member: str) -> Member:
        return self._members[member]

    @property
    def members(self) -> dict[str, Member]:
        """All members in insertion order."""
        return dict(self._members)

    @property
    def top(self) -> int:
        """The highest watermark that any member has advanced to, including removed ones; MIN if there was none."""
        return self._top

    @property
    def least(self) -> int | None:
        """The minimum of the active members' watermarks, None if no member is active."""
        return min((member.watermark for member in self._members.values() if not member.idle), default=None)

    def insert(self, member: str, watermark: int = MIN) -> None:
        """Wait for a member, from its known watermark; this alone does not end being quiet."""
        self._members[member] = Member(watermark)

    def remove(self, member: str) -> None:
        """Stop waiting for a member, and forget its watermark."""
        del self._members[member]

    def advance(self, member: str, watermark: int) -> None:
        """Move a member up to a watermark, never back, and count it as active."""
        reached = max(self._members[member].watermark, watermark)
        self._members[member] = Member(reached)
        self._top = max(self._top, reached)
        self.quiet = False

    def mark_idle(self, member: str) -> None:
        """Do not wait for a member; it keeps its watermark."""
        self._members[member] = Member(self._members[member].watermark, idle=True)

    def mark_active(self, member: str) -> None:
        """Wait for a member again, from the watermark it had."""
        self._members[member] = Member(self._members[member].watermark)
        self.quiet = False

    def ideal(self) -> Ideal:
        """The current position; call it once after each change of the members."""
        least = self.least
        if least is not None:
            self.quiet = False
            return Ideal(least, went_idle=False)
        if self.quiet:
            return Ideal(None, went_idle=False)
        self.quiet = True
        # The highest: the member that went idle last must not decide how far the watermark gets.
        return Ideal(self._top, went_idle=True)

    def snapshot(self) -> FrontierState:
        """The entire state."""
        return FrontierState(dict(self._members), self._top, self.quiet)
