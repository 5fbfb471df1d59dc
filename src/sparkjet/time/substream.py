"""One substream: its policy, and how long it has been silent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from sparkjet.time.policy_states import CarryingPolicy, ClockedPolicy, ResumablePolicy
from sparkjet.time.processing_time import moved
from sparkjet.time.states import Json

if TYPE_CHECKING:
    from sparkjet.time.policies import PolicySettings


@dataclass(frozen=True)
class SubstreamProgress:
    """A substream's part of a query's progress.

    ``watermark`` is MIN before the first, ``last_data_at`` the clock reading of the last report (None: never), and
    ``holds`` whether no other active substream is further behind, so that it holds the watermark back. ``caught_up`` is
    what the source last reported about it, None if it cannot know.
    """

    id: str
    watermark: int
    idle: bool
    holds: bool
    last_data_at: int | None
    caught_up: bool | None


class SubstreamState(msgspec.Struct, frozen=True):
    """Snapshot of a substream; ``policy_type`` names the settings that can read ``policy``, the policy's snapshot."""

    silent_since: int
    last_data_at: int | None
    caught_up: bool | None
    policy_type: str
    policy: Json


class Substream:
    """A substream without its watermark, which is in the tracker's frontier.

    The tracker owns it and passes processing times, which go back only after :meth:`set_back`.

    Args:
        policy: Settings that create its policy.
        now: The time it was added; its silence counts from here.

    >>> from sparkjet.time.policies import limiting_lag
    >>> substream = Substream(limiting_lag(3), now=0)
    >>> substream.report(10, now=1)
    >>> substream.poll(now=1), substream.silent_since
    (7, 1)
    """

    def __init__(self, policy: PolicySettings, now: int) -> None:
        self._settings = policy
        self._policy = policy.create()
        self.silent_since = now
        self.last_data_at: int | None = None
        self.caught_up: bool | None = None

    def report(self, timestamp: int, now: int) -> None:
        """Take note of data."""
        self._policy.report(timestamp, now)
        self.silent_since = self.last_data_at = now

    def hold(self, now: int) -> None:
        """Count silence from ``now``: its rows are not read, so that it can only be silent."""
        self.silent_since = now

    def carry(self, watermark: int | None, now: int) -> bool:
        """Take note of a watermark that the source carries; a new one is a sign of life, just as data is.

        Returns:
            Whether it is new, and the policy asks for it.
        """
        if not isinstance(self._policy, CarryingPolicy) or not self._policy.carry(watermark):
            return False
        self.silent_since = now
        return True

    def poll(self, now: int) -> int:
        """The policy's watermark, which may be below an earlier one."""
        return self._policy.current(now)

    def resume(self, now: int) -> None:
        """Count silence from ``now``, after a restart."""
        self.silent_since = now
        if isinstance(self._policy, ResumablePolicy):
            self._policy.resume(now)

    def set_back(self, before: int, now: int) -> None:
        """Count silence by a clock that was set back."""
        self.silent_since = moved(self.silent_since, before, now)
        if self.last_data_at is not None:
            self.last_data_at = moved(self.last_data_at, before, now)
        if isinstance(self._policy, ClockedPolicy):
            self._policy.set_back(before, now)

    def snapshot(self) -> SubstreamState:
        """Everything but the settings."""
        return SubstreamState(
            self.silent_since,
            self.last_data_at,
            self.caught_up,
            type(self._settings).__qualname__,
            self._policy.snapshot(),
        )

    @staticmethod
    def restored(policy: PolicySettings, state: SubstreamState) -> Substream:
        """A substream as it was; if the type of the settings has changed the policy restarts, as in Jet.

        Raises:
            RecoveryError: The policy cannot read its snapshot.
        """
        substream = Substream(policy, state.silent_since)
        substream.last_data_at = state.last_data_at
        substream.caught_up = state.caught_up
        if state.policy_type == type(policy).__qualname__:
            substream._policy.restore(state.policy)
        return substream
