"""Watermark policies: how far the event time of a substream has come, given its timestamps and the clock.

Two objects, as everywhere in sparkjet: frozen *settings*, which users write, and the *policy* that they create, one per
substream, which has the state. Both are protocols that users may implement. The first five are Jet's (Jet manual 004,
``WatermarkPolicies``; ``limitingRealTimeLag`` came with 4.3); the sixth takes the watermark that comes with the rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Protocol, runtime_checkable

from sparkjet.errors import AnalysisError
from sparkjet.time.durations import Duration, parse_duration
from sparkjet.time.policy_states import (
    CarriedPolicy,
    LagAndDelayPolicy,
    LagAndLullPolicy,
    LagPolicy,
    RealTimeLagPolicy,
    TimestampAndWallClockLagPolicy,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparkjet.time.states import Json

DEFAULT_SAMPLES = 16
"""Number of samples in the delay history (same as in Jet)."""


@runtime_checkable
class WatermarkPolicy(Protocol):
    """The state of a policy for one substream, on the driver; all times are in one unit, including the clock's.

    In an epoch the engine calls :meth:`report` at most once, with the substream's highest timestamp of the batch, and
    then :meth:`current` once unless the substream is idle. The clock readings do not go back, not even across a
    restart, unless the machine's clock was set back by more than ten seconds. A policy that measures silence may have a
    method ``resume(now)``, which is called after a restart, and a method ``set_back(before, now)``, which is called
    when the clock was set back: anything scheduled later than ``now`` would be delayed by that much. A policy with a
    method ``carry(watermark)`` gets the watermarks that a source carries.
    """

    def report(self, timestamp: int, now: int) -> None:
        """Take note of an event with that timestamp."""
        ...

    def current(self, now: int) -> int:
        """The watermark, MIN if there is none yet; it may go back, as the tracker keeps the highest."""
        ...

    def snapshot(self) -> Json:
        """Everything that :meth:`restore` needs, as JSON values that share nothing with this object."""
        ...

    def restore(self, snapshot: Json) -> None:
        """Take over the state in a :meth:`snapshot`; the settings may have changed since."""
        ...


@runtime_checkable
class PolicySettings(Protocol):
    """Settings, as users write them, that create a policy with its own state for every substream.

    An attribute ``uses_clock = False`` declares that the policy needs no ticks in a lull; see :func:`uses_clock`. An
    attribute ``lag``, in microseconds, says how far an event may be behind others without being late:
    ``dropDuplicatesWithinWatermark`` keeps its keys for that long, and refuses a policy without it. Where the settings
    have such a field, that is it; where they have not, or have several lags, it is a property.
    """

    def create(self) -> WatermarkPolicy:
        """A policy that has seen nothing yet."""
        ...


def uses_clock(settings: PolicySettings) -> bool:
    """Whether a policy's watermark can move without events; True if its settings do not specify it.

    >>> uses_clock(limiting_lag(5)), uses_clock(limiting_real_time_lag(5))
    (False, True)
    """
    return bool(getattr(settings, "uses_clock", True))


def delay_of(settings: PolicySettings) -> int | None:
    """How far an event may be behind others without being late: what Spark calls the delay of a watermark.

    The ``lag`` of the settings, or the greater of two; None if they have no such attribute.

    >>> delay_of(limiting_lag_and_lull(5, 9)), delay_of(limiting_timestamp_and_wall_clock_lag(5, 9))
    (5, 9)
    """
    found: object = getattr(settings, "lag", None)
    return found if isinstance(found, int) else None


@dataclass(frozen=True)
class LimitingLag:
    """Settings of :func:`limiting_lag`."""

    lag: int
    uses_clock: ClassVar[bool] = False

    def __post_init__(self) -> None:
        parse_duration(self.lag, "limiting_lag: lag")

    def create(self) -> WatermarkPolicy:
        """A policy that has seen nothing yet."""
        return LagPolicy(self.lag)


@dataclass(frozen=True)
class LimitingLagAndDelay:
    """Settings of :func:`limiting_lag_and_delay`."""

    lag: int
    delay: int
    samples: int = DEFAULT_SAMPLES
    uses_clock: ClassVar[bool] = True

    def __post_init__(self) -> None:
        parse_duration(self.lag, "limiting_lag_and_delay: lag")
        parse_duration(self.delay, "limiting_lag_and_delay: delay", minimum=1)
        # Created only as a check: a wrong number of samples must be found when the query is written.
        self.create()

    def create(self) -> WatermarkPolicy:
        """A policy that has seen nothing yet."""
        return LagAndDelayPolicy(self.lag, self.delay, self.samples)


@dataclass(frozen=True)
class LimitingLagAndLull:
    """Settings of :func:`limiting_lag_and_lull`."""

    lag: int
    lull: int
    uses_clock: ClassVar[bool] = True

    def __post_init__(self) -> None:
        parse_duration(self.lag, "limiting_lag_and_lull: lag")
        parse_duration(self.lull, "limiting_lag_and_lull: lull")

    def create(self) -> WatermarkPolicy:
        """A policy that has seen nothing yet."""
        return LagAndLullPolicy(self.lag, self.lull)


@dataclass(frozen=True)
class LimitingTimestampAndWallClockLag:
    """Settings of :func:`limiting_timestamp_and_wall_clock_lag`."""

    timestamp_lag: int
    wall_clock_lag: int
    uses_clock: ClassVar[bool] = True

    @property
    def lag(self) -> int:
        """The greater of the two: an event may be within either of them."""
        return max(self.timestamp_lag, self.wall_clock_lag)

    def __post_init__(self) -> None:
        parse_duration(self.timestamp_lag, "limiting_timestamp_and_wall_clock_lag: timestamp_lag")
        parse_duration(self.wall_clock_lag, "limiting_timestamp_and_wall_clock_lag: wall_clock_lag")

    def create(self) -> WatermarkPolicy:
        """A policy that has seen nothing yet."""
        return TimestampAndWallClockLagPolicy(self.timestamp_lag, self.wall_clock_lag)


@dataclass(frozen=True)
class LimitingRealTimeLag:
    """Settings of :func:`limiting_real_time_lag`."""

    lag: int
    uses_clock: ClassVar[bool] = True

    def __post_init__(self) -> None:
        parse_duration(self.lag, "limiting_real_time_lag: lag")

    def create(self) -> WatermarkPolicy:
        """A policy that has seen nothing yet."""
        return RealTimeLagPolicy(self.lag)


@dataclass(frozen=True)
class Carried:
    """Settings of :func:`carried`."""

    otherwise: PolicySettings | None = None
    without: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.otherwise is not None and not isinstance(self.otherwise, PolicySettings):
            raise AnalysisError(
                f"carried: otherwise={self.otherwise!r} is not a policy; write e.g. "
                f'carried(otherwise=limiting_lag("1 minute"))'
            )

    def leaves_out(self, writer: str) -> bool:
        """Whether the rows of a writer do not count, by its name: of one of sparkjet's ``QUERY/OUTPUT``."""
        return not {writer, writer.split("/", maxsplit=1)[0]}.isdisjoint(self.without)

    @property
    def uses_clock(self) -> bool:
        """Whether the other policy needs ticks."""
        return self.otherwise is not None and uses_clock(self.otherwise)

    @property
    def lag(self) -> int | None:
        """The lag of the other policy; it is not known how far out of order the writer's events were."""
        return None if self.otherwise is None else delay_of(self.otherwise)

    def create(self) -> CarriedPolicy:
        """A policy that has seen nothing yet."""
        return CarriedPolicy(self.otherwise)


def limiting_lag(lag: Duration) -> LimitingLag:
    """The watermark stays ``lag`` behind the highest timestamp; in a lull it stands still.

    >>> policy = limiting_lag("1 second").create()
    >>> policy.report(5_000_000, now=0)
    >>> policy.current(now=0)
    4000000
    """
    return LimitingLag(parse_duration(lag, "limiting_lag: lag"))


with_fixed_lag = limiting_lag
"""Name of :func:`limiting_lag` in Jet manual 004."""


def limiting_lag_and_delay(lag: Duration, delay: Duration, samples: int = DEFAULT_SAMPLES) -> LimitingLagAndDelay:
    """Like :func:`limiting_lag`, and the watermark reaches every timestamp within ``delay`` of its arrival.

    Needs no relation between event time and the clock. In a lull the watermark reaches the highest timestamp, but never
    exceeds it. The clock must be polled about every ``delay / samples``.
    """
    return LimitingLagAndDelay(
        parse_duration(lag, "limiting_lag_and_delay: lag"),
        parse_duration(delay, "limiting_lag_and_delay: delay", minimum=1),
        samples,
    )


def limiting_lag_and_lull(lag: Duration, lull: Duration) -> LimitingLagAndLull:
    """Like :func:`limiting_lag`, and after a lull of that length the watermark moves on with the clock.

    It then passes the highest timestamp. A substream that has never had an event has no watermark, however long it
    waits.
    """
    return LimitingLagAndLull(
        parse_duration(lag, "limiting_lag_and_lull: lag"), parse_duration(lull, "limiting_lag_and_lull: lull")
    )


def limiting_timestamp_and_wall_clock_lag(
    timestamp_lag: Duration, wall_clock_lag: Duration
) -> LimitingTimestampAndWallClockLag:
    """The watermark stays at most ``timestamp_lag`` behind the events and ``wall_clock_lag`` behind the clock.

    Event time must follow the clock. A clock that jumps forward makes events late until it is right again and has come
    as far as it had jumped.
    """
    return LimitingTimestampAndWallClockLag(
        parse_duration(timestamp_lag, "limiting_timestamp_and_wall_clock_lag: timestamp_lag"),
        parse_duration(wall_clock_lag, "limiting_timestamp_and_wall_clock_lag: wall_clock_lag"),
    )


def limiting_real_time_lag(lag: Duration) -> LimitingRealTimeLag:
    """The watermark stays ``lag`` behind the clock, whatever the events say; even for substreams without events."""
    return LimitingRealTimeLag(parse_duration(lag, "limiting_real_time_lag: lag"))


def carried(otherwise: PolicySettings | None = None, *, without: Sequence[str] = ()) -> Carried:
    """The watermark of the query that wrote the rows, as carried by the source: no lag has to be guessed.

    A partition has it whether or not it got rows, so an idle one holds nothing back. It holds for the writer's own
    event time: for results with windows, the end of the window less a microsecond, as in ``window_time``.

    Args:
        otherwise: The policy for substreams that have no watermark in the source; without it they wait for one.
        without: Writers of a directory or a table whose rows do not count, as in :meth:`Completeness.without`: by their
            names, or of a query all outputs. For one that will never write again, and holds the watermark back.

    Raises:
        AnalysisError: ``otherwise`` is not a policy, or ``without`` not a list of names.

    >>> policy = carried(otherwise=limiting_lag("1 second")).create()
    >>> policy.report(5_000_000, now=0)
    >>> policy.current(now=0)
    4000000
    >>> policy.carry(3_000_000), policy.current(now=0)
    (True, 3000000)
    """
    if isinstance(without, str) or not all(isinstance(name, str) for name in without):
        raise AnalysisError(f'carried: without={without!r} is not a list of names; write e.g. without=["QUERY"]')
    return Carried(otherwise, tuple(without))
