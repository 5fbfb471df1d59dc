"""Replays: synthetic or recorded arrivals through a real watermark policy, without Spark and without a clock."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sparkjet.errors import AnalysisError
from sparkjet.time import MIN, FrameGrid, PolicySettings, SubstreamTracker, Throttle, limiting_lag
from sparkjet.time.durations import Duration, parse_duration

MOST_POLLS = 1_000_000
"""Maximum number of polls of a replay; more indicate a wrong unit."""


class Arrival(NamedTuple):
    """An event: its processing time, substream and event time; times in the unit of the policy."""

    at: int
    substream: str
    event_time: int


class WatermarkChange(NamedTuple):
    """A watermark, and the clock reading from which it holds."""

    at: int
    watermark: int


class Silence(NamedTuple):
    """A period in which a substream was idle, up to its return or the end of the replay."""

    substream: str
    since: int
    until: int


@dataclass(frozen=True)
class Replay:
    """The result of :func:`replay`, in the order of processing time, up to ``end``.

    ``watermarks`` are the changes of the emitted watermark, ``substreams`` those of each substream's watermark, and
    ``late`` are the events that a window or session would have dropped.
    """

    arrivals: tuple[Arrival, ...]
    watermarks: tuple[WatermarkChange, ...]
    substreams: Mapping[str, tuple[WatermarkChange, ...]]
    late: tuple[Arrival, ...]
    idle: tuple[Silence, ...]
    end: int


def replay(
    arrivals: Iterable[tuple[int, str, int]],
    policy: PolicySettings | Duration,
    *,
    throttle: Throttle | None = None,
    idle_timeout: Duration | None = None,
    substreams: Sequence[str] = (),
    frames: FrameGrid | None = None,
    poll_every: Duration | None = "1 second",
    until: int | None = None,
) -> Replay:
    """Run arrivals through the same policy, throttle and substreams as a query.

    Arrivals at the same time are one epoch, as in a query: they are compared with the watermark before it, each
    substream's policy gets the maximum event time, and the watermark advances once. An event is late if its time is
    below that watermark, as for sessions; with ``frames`` only if its whole frame is, as for windows.

    Args:
        arrivals: :class:`Arrival` or tuples, in any order; in microseconds if the policy has durations as strings.
        policy: As in ``withWatermark``; a bare duration means ``limiting_lag``.
        throttle: Decides which watermarks are emitted; None emits every new one.
        idle_timeout: Time without events after which a substream is idle; its source counts as read to the end.
        substreams: Substreams to wait for from the start; others are known from their first event on.
        frames: The frames of a window: ``FrameGrid(slide)``.
        poll_every: How often the clock is read without arrivals, for policies that use it; None for never.
        until: End of the replay, by default the last arrival; a later end shows what the clock does afterwards.

    Raises:
        AnalysisError: No arrivals, times that are not whole numbers, an end before the last arrival, or too many polls.

    >>> found = replay([(0, "a", 10), (1, "a", 20), (2, "a", 12)], 5, poll_every=None)
    >>> found.watermarks[-1], found.late
    (WatermarkChange(at=1, watermark=15), (Arrival(at=2, substream='a', event_time=12),))
    """
    epochs = _epochs([Arrival(*each) for each in arrivals], poll_every, until)
    start, end = min(epochs), max(epochs)
    settings = policy if isinstance(policy, PolicySettings) else limiting_lag(policy)
    tracker = SubstreamTracker(settings, throttle, idle_timeout)
    for name in substreams:
        tracker.add(name, start)
    emitted: list[WatermarkChange] = []
    own: dict[str, list[WatermarkChange]] = {}
    late: list[Arrival] = []
    idle: list[Silence] = []
    idle_since: dict[str, int] = {}
    for now, batch in epochs.items():
        late += [arrival for arrival in batch if _is_late(arrival.event_time, tracker.watermark, frames)]
        # Ascending, so that the last event of a substream has the maximum time.
        highest = {each.substream: each.event_time for each in sorted(batch, key=lambda each: each.event_time)}
        for name, timestamp in highest.items():
            tracker.report(name, timestamp, now)
            if name in idle_since:
                idle.append(Silence(name, idle_since.pop(name), now))
        tracker.advance(now)
        _note(emitted, now, tracker.watermark)
        for substream in tracker.progress():
            _note(own.setdefault(substream.id, []), now, substream.watermark)
            if substream.idle:
                idle_since.setdefault(substream.id, now)
    idle += [Silence(name, since, end) for name, since in idle_since.items()]
    ordered = tuple(arrival for batch in epochs.values() for arrival in batch)
    own_steps = {name: tuple(steps) for name, steps in own.items()}
    return Replay(ordered, tuple(emitted), own_steps, tuple(late), tuple(idle), end)


def _epochs(arrivals: Sequence[Arrival], poll_every: Duration | None, until: int | None) -> dict[int, list[Arrival]]:
    """The arrivals by clock reading, ascending, with an empty list for each poll."""
    if not arrivals:
        raise AnalysisError("replay: no arrivals; give at least one (processing time, substream, event time)")
    for arrival in arrivals:
        if {type(arrival.at), type(arrival.event_time)} != {int}:
            raise AnalysisError(f"replay: {arrival}: times must be whole numbers, in a query microseconds; round them")
    start, last = min(each.at for each in arrivals), max(each.at for each in arrivals)
    end = last if until is None else until
    if end < last:
        raise AnalysisError(f"replay: until = {end} is before the last arrival, at {last}; omit until")
    period = end - start + 1 if poll_every is None else parse_duration(poll_every, "poll_every", minimum=1)
    polls = range(start, end + 1, period)
    if len(polls) > MOST_POLLS:
        raise AnalysisError(
            f"replay: poll_every = {poll_every!r} makes {len(polls)} polls from {start} to {end}, more than "
            f"{MOST_POLLS}; poll less often, or give all times in one unit"
        )
    epochs: dict[int, list[Arrival]] = {now: [] for now in sorted({*polls, *(each.at for each in arrivals), end})}
    for arrival in arrivals:
        epochs[arrival.at].append(arrival)
    return epochs


def _is_late(event_time: int, watermark: int, frames: FrameGrid | None) -> bool:
    if frames is None:
        return event_time < watermark
    return frames.floor_frame(event_time) < frames.floor_frame(watermark)


def _note(steps: list[WatermarkChange], now: int, watermark: int) -> None:
    if watermark > MIN and (not steps or steps[-1].watermark != watermark):
        steps.append(WatermarkChange(now, watermark))
