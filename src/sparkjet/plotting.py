"""Pictures of a watermark: made-up or recorded arrivals, replayed through a real policy and drawn.

:func:`replay` runs on the driver or without Spark at all and is pure; :func:`plot_watermark` needs matplotlib, which
``pip install "sparkjet[plots]"`` brings. Neither starts a query.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from sparkjet.errors import AnalysisError, nearest
from sparkjet.time import MIN, FrameGrid, PolicySettings, SubstreamTracker, Throttle, limiting_lag
from sparkjet.time.durations import Duration, format_duration, parse_duration

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_POLLS = 1_000_000
"""Polls that a replay makes at most; more are a mistaken unit, not a picture."""

# Told apart by the colour-blind too; red is kept for late events.
_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#8C6D31")
_RED = "#C1121F"
_DARK = "#333333"


class Arrival(NamedTuple):
    """An event: when it came, from which substream, and its event time; times in the unit of the policy."""

    at: int
    substream: str
    event_time: int


class Step(NamedTuple):
    """A watermark that holds from a clock reading on."""

    at: int
    watermark: int


class Silence(NamedTuple):
    """A time in which a substream was idle, up to its return or the end of the replay."""

    substream: str
    since: int
    until: int


@dataclass(frozen=True)
class Replay:
    """What :func:`replay` found, in the order of processing time, which goes up to ``end``.

    ``watermarks`` are the changes of the emitted watermark, ``substreams`` those of each substream's own, and ``late``
    is what a window or session would have dropped.
    """

    arrivals: tuple[Arrival, ...]
    watermarks: tuple[Step, ...]
    substreams: Mapping[str, tuple[Step, ...]]
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
    """Run arrivals through the policy, throttle and substreams that a query would use.

    Arrivals at the same time are one epoch, as in a query: they are judged by the watermark in force before it, each
    substream's policy is told its highest event time, and the watermark moves once. An event is late if its time is
    below that watermark, exactly, as for sessions; with ``frames`` only if its whole frame is, as for windows.

    Args:
        arrivals: :class:`Arrival` or plain tuples, in any order; microseconds if the policy has durations as strings.
        policy: As in ``withWatermark``; a bare duration means ``limiting_lag``.
        throttle: Which watermarks are emitted; None emits every new one.
        idle_timeout: Silence after which a substream is not waited for; its source counts as read to the end.
        substreams: Those to wait for from the start; others from their first event on.
        frames: The frames of a window: ``FrameGrid(slide)``.
        poll_every: How often the clock is read where nothing arrives, for policies that use it; None: never.
        until: When to end, the last arrival by default; later shows what the clock does afterwards.

    Raises:
        AnalysisError: No arrivals, times that are no whole numbers, an end before the last arrival, too many polls.

    >>> found = replay([(0, "a", 10), (1, "a", 20), (2, "a", 12)], 5, poll_every=None)
    >>> found.watermarks[-1], found.late
    (Step(at=1, watermark=15), (Arrival(at=2, substream='a', event_time=12),))
    """
    epochs = _epochs([Arrival(*each) for each in arrivals], poll_every, until)
    start, end = min(epochs), max(epochs)
    settings = policy if isinstance(policy, PolicySettings) else limiting_lag(policy)
    tracker = SubstreamTracker(settings, throttle, idle_timeout)
    for name in substreams:
        tracker.add(name, start)
    emitted: list[Step] = []
    own: dict[str, list[Step]] = {}
    late: list[Arrival] = []
    idle: list[Silence] = []
    idle_since: dict[str, int] = {}
    for now, batch in epochs.items():
        late += [arrival for arrival in batch if _is_late(arrival.event_time, tracker.watermark, frames)]
        # Ascending, so that the last one of a substream is its highest.
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


def plot_watermark(
    found: Replay,
    target: str | os.PathLike[str] | Axes,
    *,
    title: str = "",
    unit: Duration = "1 second",
    origin: int = 0,
    against: tuple[str, Replay] | None = None,
) -> Axes:
    """Draw event time over processing time: events, the watermark, and what is late.

    Each substream has a colour for its events and, if there are several, its own watermark, dotted. The watermark is
    the dark step line, shaded on its late side. Red crosses are ``found.late``: what was behind the watermark when it
    came, at the level (exact or by frame) that :func:`replay` was asked for. The same replay gives the same bytes under
    the same version of matplotlib.

    Args:
        found: What to draw.
        target: A file, whose name ends in the format (``.svg``, ``.png``, ``.pdf``), or axes to draw into.
        title: Above the picture.
        unit: The time that is 1 on both axes.
        origin: The time that is 0 on both axes.
        against: A name and another replay of the same events: its watermark is dashed, what it finds late is ringed.

    Returns:
        The axes, to add to.

    Raises:
        AnalysisError: matplotlib is not installed, or cannot write such a file.
    """
    scale = _Scale(parse_duration(unit, "unit", minimum=1), origin)
    if not isinstance(target, str | os.PathLike):
        _draw(target, found, scale, title, against)
        return target
    try:
        from matplotlib import rc_context  # noqa: PLC0415 - an extra: replay must work without it
        from matplotlib.figure import Figure  # noqa: PLC0415
    except ImportError as error:
        raise AnalysisError(
            'plot_watermark: drawing needs matplotlib, which is not installed; pip install "sparkjet[plots]"'
        ) from error
    # Without the salt the ids inside an SVG are random, and every picture would differ from the committed one.
    with rc_context({"svg.hashsalt": "sparkjet", "svg.fonttype": "path"}):
        figure = Figure(figsize=(9, 4.4), layout="constrained")
        axes = figure.add_subplot()
        _draw(axes, found, scale, title, against)
        _save(figure, Path(target))
    return axes


class _Scale(NamedTuple):
    """From times to numbers on the axes."""

    unit: int
    origin: int

    def __call__(self, times: Iterable[int]) -> list[float]:
        return [(time - self.origin) / self.unit for time in times]


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
        raise AnalysisError(f"replay: until = {end} is before the last arrival, at {last}; leave until away")
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


def _note(steps: list[Step], now: int, watermark: int) -> None:
    if watermark > MIN and (not steps or steps[-1].watermark != watermark):
        steps.append(Step(now, watermark))


def _draw(axes: Axes, found: Replay, scale: _Scale, title: str, against: tuple[str, Replay] | None) -> None:
    """Everything, from the back to the front."""
    names = sorted({*found.substreams, *(each.substream for each in found.arrivals)})
    colours = {name: _COLOURS[position % len(_COLOURS)] for position, name in enumerate(names)}
    shown = scale([each.event_time for each in found.arrivals] + [step.watermark for step in found.watermarks])
    bottom, top = min(shown[: len(found.arrivals)]), max(shown)
    margin = 0.06 * (top - bottom) or 1.0
    # Set, not left to the data: a watermark may start far below the first event.
    axes.set_ylim(bottom - margin, top + margin)
    axes.set_xmargin(0.02)
    for name, *times in found.idle:
        axes.axvspan(*scale(times), color=colours[name], alpha=0.12, linewidth=0, label=f"{name} idle")
    if against is not None:
        name, other = against
        _line(axes, other.watermarks, other.end, scale, f"watermark of {name}", color=_RED, linestyle="--")
        ring = {"marker": "o", "markersize": 11, "markerfacecolor": "none", "color": _RED}
        _mark(axes, other.late, scale, f"late for {name}", **ring)
    stairs = _line(axes, found.watermarks, found.end, scale, "watermark", color=_DARK, linewidth=1.8)
    axes.fill_between(*stairs, bottom - margin, step="post", color=_DARK, alpha=0.08, linewidth=0)
    for name, steps in found.substreams.items() if len(names) > 1 else ():
        _line(axes, steps, found.end, scale, f"watermark of {name}", color=colours[name], linestyle=":", linewidth=1.4)
    for name in names:
        events = [each for each in found.arrivals if each.substream == name]
        _mark(axes, events, scale, f"events of {name}", marker="o", color=colours[name], markersize=5.5)
    _mark(axes, found.late, scale, "late", marker="x", color=_RED, markersize=10, markeredgewidth=2.2)
    axes.set_title(title, loc="left")
    unit = f"{format_duration(scale.unit)}s".removeprefix("1 ").replace("ss", "s")
    axes.set(xlabel=f"processing time ({unit})", ylabel=f"event time ({unit})")
    axes.grid(visible=True, color="#DDDDDD", linewidth=0.6)
    axes.set_axisbelow(True)
    # Beside the picture: inside it would hide events sooner or later.
    axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False)


def _line(
    axes: Axes, steps: Sequence[Step], end: int, scale: _Scale, label: str, **style: Any
) -> tuple[list[float], list[float]]:
    """A step line whose last step is held to the end; the answer is its corners."""
    held = [*steps, *(Step(end, step.watermark) for step in steps[-1:])]
    corners = scale(step.at for step in held), scale(step.watermark for step in held)
    axes.step(*corners, where="post", label=label, **style)
    return corners


def _mark(axes: Axes, events: Sequence[Arrival], scale: _Scale, label: str, **style: Any) -> None:
    """One artist for all events of a kind; none, and no entry in the legend, where there are no events."""
    if events:
        places = scale(each.at for each in events), scale(each.event_time for each in events)
        axes.plot(*places, linestyle="none", label=label, **style)


def _save(figure: Figure, path: Path) -> None:
    """Write the file without what would differ from run to run."""
    ending, known = path.suffix.removeprefix(".").lower(), figure.canvas.get_supported_filetypes()
    if ending not in known:
        raise AnalysisError(f"plot_watermark: cannot write {str(path)!r}: {nearest(ending, known)}")
    dates = {"svg": {"Date": None, "Creator": None}, "pdf": {"CreationDate": None}}
    figure.savefig(path, metadata=dates.get(ending), dpi=150)
