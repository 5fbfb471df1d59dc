"""One substream: its policy, its watermark, and how long it has been silent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from sparkjet.time.frames import MIN
from sparkjet.time.processing_time import moved
from sparkjet.time.states import Json, entry, optional_entry

if TYPE_CHECKING:
    from sparkjet.time.policies import PolicySettings


@runtime_checkable
class ResumablePolicy(Protocol):
    """A policy that measures silence, and is told when a query goes on after it was down."""

    def resume(self, now: int) -> None:
        """Count silence from ``now``; called on the driver once per start, after ``restore``."""
        ...


@runtime_checkable
class ClockedPolicy(Protocol):
    """A policy that keeps clock readings, and is told when processing time is set back."""

    def set_back(self, before: int, now: int) -> None:
        """Go on at ``now``, which is less than ``before``, the last reading; called on the driver."""
        ...


@dataclass(frozen=True)
class SubstreamProgress:
    """What a query's progress says of a substream.

    ``watermark`` is MIN before the first, ``last_data_at`` the clock reading of the last report (None: never), and
    ``holds`` whether no other active substream is further behind: it is one of those that everybody waits for.
    ``caught_up`` is what the source last said of it, None where it cannot tell.
    """

    id: str
    watermark: int
    idle: bool
    holds: bool
    last_data_at: int | None
    caught_up: bool | None


class Substream:
    """State of a substream; the tracker owns it and passes processing times, which go back after :meth:`set_back` only.

    Args:
        policy: Settings that create its own policy.
        now: When it was added; its silence counts from here.

    >>> from sparkjet.time.policies import limiting_lag
    >>> substream = Substream(limiting_lag(3), now=0)
    >>> substream.report(10, now=1)
    >>> substream.poll(now=1, cap=100), substream.silent_since
    (7, 1)
    """

    def __init__(self, policy: PolicySettings, now: int) -> None:
        self._settings = policy
        self._policy = policy.create()
        self.watermark = MIN
        self.silent_since = now
        self.last_data_at: int | None = None
        self.caught_up: bool | None = None
        self.idle = False

    def report(self, timestamp: int, now: int) -> None:
        """Take note of data; it makes an idle substream active again, with the watermark it had."""
        self._policy.report(timestamp, now)
        self.silent_since = self.last_data_at = now
        self.idle = False

    def poll(self, now: int, cap: int) -> int:
        """The watermark: what the policy says, at most ``cap``, and never less than before."""
        self.watermark = max(self.watermark, min(self._policy.current(now), cap))
        return self.watermark

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

    def progress(self, name: str, *, holds: bool) -> SubstreamProgress:
        """What to say of this substream."""
        return SubstreamProgress(name, self.watermark, self.idle, holds, self.last_data_at, self.caught_up)

    def snapshot(self) -> Json:
        """Everything but the settings, whose type is noted to know the policy's snapshot by."""
        return {
            "watermark": self.watermark,
            "silent_since": self.silent_since,
            "last_data_at": self.last_data_at,
            "caught_up": self.caught_up,
            "idle": self.idle,
            "policy_type": type(self._settings).__qualname__,
            "policy": self._policy.snapshot(),
        }

    @staticmethod
    def restored(policy: PolicySettings, snapshot: Json) -> Substream:
        """A substream as it was.

        Under settings of another type the policy starts anew, and only the watermark remains, as in Jet.

        Raises:
            RecoveryError: It is not the snapshot of a substream.
        """
        substream = Substream(policy, entry(snapshot, "silent_since", int, "a substream"))
        substream.watermark = entry(snapshot, "watermark", int, "a substream")
        substream.last_data_at = optional_entry(snapshot, "last_data_at", int, "a substream")
        substream.caught_up = optional_entry(snapshot, "caught_up", bool, "a substream")
        substream.idle = entry(snapshot, "idle", bool, "a substream")
        if entry(snapshot, "policy_type", str, "a substream") == type(policy).__qualname__:
            # A policy written by a user may have nothing to save and say so with None.
            substream._policy.restore(snapshot.get("policy"))
        return substream
