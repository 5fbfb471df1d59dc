"""Watermarks of a case: how one is written, and by the rule alone how far it has come."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

NEVER = -(1 << 63)
"""Before the first watermark."""


@dataclass(frozen=True)
class Mark:
    """A stream's settings of event time; all times in microseconds.

    Attributes:
        lag: How far it is behind the highest event time; of the policy that ignores events, behind the clock.
        by: Whether it is tracked by substream.
        listed: Whether the substreams are waited for from the start.
        policy: One of :data:`POLICY_CALLS`.
        other: The policy's second duration.
        idle: Silence after which a substream is not waited for.
        gone: Silence after which it is forgotten.
        discover: Time from the start in which the watermark stays where it is.
        throttle: ``usual``, ``none``, ``frame`` or ``step``.
        step: Of the throttle.
    """

    lag: int = 0
    by: bool = False
    listed: bool = True
    policy: str = "lag"
    other: int = 0
    idle: int | None = None
    gone: int | None = None
    discover: int | None = None
    throttle: str = "usual"
    step: int = 0

    def call(self, suffix: str, substreams: list[str]) -> str:
        """The call on the stream."""
        arguments = [f'"ts{suffix}"', POLICY_CALLS[self.policy].format(_long(self.lag), _long(self.other))]
        arguments += [f'by="sub{suffix}"'] if self.by else []
        arguments += [f"substreams={substreams!r}"] if self.by and self.listed else []
        timeouts = {"idleTimeout": self.idle, "substreamTimeout": self.gone, "discover": self.discover}
        arguments += [f"{name}={_long(value)}" for name, value in timeouts.items() if value is not None]
        arguments += [f"throttle={text.format(_long(self.step))}"] if (text := THROTTLES[self.throttle]) else []
        return f".withWatermark({', '.join(arguments)})"

    @property
    def clocked(self) -> bool:
        """Whether the clock moves it."""
        return self.policy != "lag" or {self.idle, self.gone, self.discover} != {None}

    def operators(self) -> list[str]:
        """Its features, for the coverage."""
        found = [f"policy {self.policy}", f"throttle {self.throttle}"]
        timeouts = {"idleTimeout": self.idle, "substreamTimeout": self.gone, "discover": self.discover}
        found += ["substreams not listed"] if self.by and not self.listed else []
        return found + [name for name, value in timeouts.items() if value is not None]


def _long(microseconds: int) -> str:
    return f'"{microseconds} microseconds"'


POLICY_CALLS = {
    "lag": "{0}",
    "delay": "sj.limiting_lag_and_delay({0}, {1})",
    "lull": "sj.limiting_lag_and_lull({0}, {1})",
    "wall clock": "sj.limiting_timestamp_and_wall_clock_lag({0}, {1})",
    "real time": "sj.limiting_real_time_lag({0})",
}
THROTTLES = {
    "usual": "",
    "none": "sj.no_throttling()",
    "frame": "sj.emit_by_frame({0})",
    "step": "sj.emit_by_min_step({0})",
}


@dataclass
class Part:
    """A substream: its highest event time, its watermark, and since when it has been silent."""

    since: int
    top: int = NEVER
    before: int = NEVER
    """The highest event time when the clock last went on."""
    mark: int = NEVER
    polled: int = NEVER
    """When it was last looked at."""
    idle: bool = False
    own: int = NEVER
    """Its policy's watermark, which counts while it is not idle."""


@dataclass
class Tracked:
    """A watermark on its way; copied, it is one that a restart finds.

    Attributes:
        settings: What it follows.
        start: What the clock said at first.
        parts: Its substreams.
        emitted: The watermark.
    """

    settings: Mark
    start: int
    parts: dict[str, Part] = field(default_factory=dict)
    emitted: int = NEVER
    gone: set[str] = field(default_factory=set)
    top: int = NEVER
    quiet: bool = False

    def wait_for(self, names: Iterable[str], now: int) -> None:
        """Substreams that are listed."""
        for name in names:
            if name not in self.gone:
                self.parts.setdefault(name, Part(now))

    def resume(self, now: int) -> None:
        """The query starts again: silence counts from zero again, and so does a lull."""
        for part in self.parts.values():
            part.since = now

    def report(self, name: str, time: int, now: int) -> None:
        """The highest event time of a substream in an epoch."""
        self.gone.discard(name)
        part = self.parts.setdefault(name, Part(now))
        if self.settings.policy == "lull":
            # What of a lull nobody has looked at is lost.
            part.polled = now
        self._look(part, now)
        part.since, part.idle, self.quiet = now, False, False
        part.top = max(part.top, time)
        if self.settings.policy != "real time":
            part.own = max(part.own, time - self.settings.lag)

    def advance(self, now: int) -> bool:
        """Where the watermark is now; says whether it has moved."""
        settings = self.settings
        if settings.gone is not None:
            silent = {name for name, part in self.parts.items() if part.since + settings.gone <= now}
            self.gone |= silent
            self.parts = {name: part for name, part in self.parts.items() if name not in silent}
        for part in self.parts.values():
            part.idle = settings.idle is not None and part.since + settings.idle <= now
            if not part.idle:
                self._look(part, now)
                part.mark = max(part.mark, part.own)
                self.top, self.quiet = max(self.top, part.mark), False
        if settings.discover is not None and now < self.start + settings.discover:
            self.quiet = False
            return False
        active = [part.mark for part in self.parts.values() if not part.idle]
        if not active and self.quiet:
            return False
        self.quiet = not active
        # The highest, once nobody is waited for.
        return self._emit(min(active, default=self.top))

    def _look(self, part: Part, now: int) -> None:
        settings = self.settings
        if now > part.polled:
            part.before = part.top
        if settings.policy == "delay":
            # Only if the clock goes on by more than the delay or not at all.
            part.own = max(part.own, part.before)
        elif settings.policy == "lull" and part.own > NEVER:
            lull = max(part.since + settings.other, part.polled)
            part.own += max(0, now - lull)
        elif settings.policy == "wall clock":
            part.own = max(part.own, now - settings.other)
        elif settings.policy == "real time":
            part.own = now - settings.lag
        part.polled = now

    def _emit(self, ideal: int) -> bool:
        if ideal <= self.emitted:
            return False
        step = self.settings.step
        if self.settings.throttle == "frame":
            ideal -= ideal % step
        elif self.settings.throttle == "step" and ideal < self.emitted + step:
            return False
        moved = ideal > self.emitted
        self.emitted = max(self.emitted, ideal)
        return moved
