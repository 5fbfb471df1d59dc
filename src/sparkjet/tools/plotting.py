"""Plots of a watermark: event time over processing time, the watermark line, and late events; what lags lose.

Runs on the driver or without Spark; needs matplotlib, which ``pip install "sparkjet[plots]"`` installs.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from sparkjet.errors import AnalysisError, nearest
from sparkjet.time.durations import format_duration, parse_duration
from sparkjet.tools.replay import WatermarkChange

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from sparkjet.time.durations import Duration
    from sparkjet.tools.lag import LagReport
    from sparkjet.tools.replay import Arrival, Replay

# Distinguishable for the colour-blind; red is reserved for late events.
_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#8C6D31")
_RED = "#C1121F"
_DARK = "#333333"


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

    Each substream has a colour for its events and, if there are several, its own dotted watermark. The watermark is
    the dark step line, shaded on its late side. Red crosses are ``found.late``: events behind the watermark when they
    arrived, exactly or by frame, as passed to :func:`replay`. The same replay yields the same bytes with the same
    version of matplotlib.

    Args:
        found: The replay to draw.
        target: A file, whose suffix is the format (``.svg``, ``.png``, ``.pdf``), or axes to draw into.
        title: Title of the plot.
        unit: Length of one unit on both axes.
        origin: The time at 0 on both axes.
        against: A name and another replay of the same events: its watermark is dashed, its late events are ringed.

    Returns:
        The axes, for additions.

    Raises:
        AnalysisError: matplotlib is not installed, or cannot write files of this format.
    """
    scale = _Scale(parse_duration(unit, "unit", minimum=1), origin)
    return _drawn(target, "plot_watermark", lambda axes: _draw(axes, found, scale, title, against))


def plot_losses(
    found: LagReport, target: str | os.PathLike[str] | Axes, *, title: str = "", unit: Duration = "1 second"
) -> Axes:
    """Draw the share of rows that a lag loses: of each substream, and of all; with the lag that is recommended.

    Args:
        found: What :func:`~sparkjet.tools.lag_for` has found.
        target: As for :func:`plot_watermark`.
        title: Title of the plot.
        unit: Length of one unit of the lag's axis.

    Returns:
        The axes, for additions.

    Raises:
        AnalysisError: matplotlib is not installed, or cannot write files of this format.
    """
    scale = _Scale(parse_duration(unit, "unit", minimum=1), 0)
    return _drawn(target, "plot_losses", lambda axes: _draw_losses(axes, found, scale, title))


def _drawn(target: str | os.PathLike[str] | Axes, caller: str, draw: Callable[[Axes], None]) -> Axes:
    """Draw into axes, or into a new file."""
    if not isinstance(target, str | os.PathLike):
        draw(target)
        return target
    try:
        from matplotlib import rc_context  # noqa: PLC0415 - an extra: replay must work without it
        from matplotlib.figure import Figure  # noqa: PLC0415
    except ImportError as error:
        raise AnalysisError(
            f'{caller}: drawing needs matplotlib, which is not installed; pip install "sparkjet[plots]"'
        ) from error
    # Without the salt, ids inside an SVG are random, and every plot would differ from the committed one.
    with rc_context({"svg.hashsalt": "sparkjet", "svg.fonttype": "path"}):
        figure = Figure(figsize=(9, 4.4), layout="constrained")
        axes = figure.add_subplot()
        draw(axes)
        _save(figure, Path(target), caller)
    return axes


class _Scale(NamedTuple):
    """Converts times to numbers on the axes."""

    unit: int
    origin: int

    def __call__(self, times: Iterable[int]) -> list[float]:
        return [(time - self.origin) / self.unit for time in times]


def _draw(axes: Axes, found: Replay, scale: _Scale, title: str, against: tuple[str, Replay] | None) -> None:
    """Draw everything, from back to front."""
    names = sorted({*found.substreams, *(each.substream for each in found.arrivals)})
    colours = {name: _COLOURS[position % len(_COLOURS)] for position, name in enumerate(names)}
    shown = scale([each.event_time for each in found.arrivals] + [step.watermark for step in found.watermarks])
    bottom, top = min(shown[: len(found.arrivals)]), max(shown)
    margin = 0.06 * (top - bottom) or 1.0
    # Set explicitly: a watermark may start far below the first event.
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
    unit = _unit(scale)
    axes.set(xlabel=f"processing time ({unit})", ylabel=f"event time ({unit})")
    axes.grid(visible=True, color="#DDDDDD", linewidth=0.6)
    axes.set_axisbelow(True)
    # Beside the plot: inside, it would hide events.
    axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False)


def _draw_losses(axes: Axes, found: LagReport, scale: _Scale, title: str) -> None:
    names, lags, best = list(found.rows), found.lags, found.lag
    for position, name in enumerate(names if len(names) > 1 else ()):
        style: dict[str, Any] = {"color": _COLOURS[position % len(_COLOURS)], "linestyle": ":", "linewidth": 1.4}
        axes.step(scale(lags), [100 * found.share(lag, name) for lag in lags], where="post", label=name, **style)
    shares = [100 * found.share(lag) for lag in lags]
    axes.step(scale(lags), shares, where="post", label="all rows", color=_DARK, linewidth=1.8)
    axes.axvline(scale([best])[0], color=_RED, linestyle="--", label=f"lag for {float(100 * found.allowed):g} %")
    unit = _unit(scale)
    axes.set(xlabel=f"lag ({unit})", ylabel="rows lost (%)")
    axes.set_title(title, loc="left")
    axes.set_ylim(bottom=0)
    axes.grid(visible=True, color="#DDDDDD", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.legend(loc="upper right", frameon=False)


def _unit(scale: _Scale) -> str:
    return f"{format_duration(scale.unit)}s".removeprefix("1 ").replace("ss", "s")


def _line(
    axes: Axes, steps: Sequence[WatermarkChange], end: int, scale: _Scale, label: str, **style: Any
) -> tuple[list[float], list[float]]:
    """A step line that is extended to the end; returns its corners."""
    held = [*steps, *(WatermarkChange(end, step.watermark) for step in steps[-1:])]
    corners = scale(step.at for step in held), scale(step.watermark for step in held)
    axes.step(*corners, where="post", label=label, **style)
    return corners


def _mark(axes: Axes, events: Sequence[Arrival], scale: _Scale, label: str, **style: Any) -> None:
    """One artist for all events of a kind; without events none, and no entry in the legend."""
    if events:
        places = scale(each.at for each in events), scale(each.event_time for each in events)
        axes.plot(*places, linestyle="none", label=label, **style)


def _save(figure: Figure, path: Path, caller: str) -> None:
    """Write the file without metadata that would differ from run to run."""
    ending, known = path.suffix.removeprefix(".").lower(), figure.canvas.get_supported_filetypes()
    if ending not in known:
        raise AnalysisError(f"{caller}: cannot write {str(path)!r}: {nearest(ending, known)}")
    dates = {"svg": {"Date": None, "Creator": None}, "pdf": {"CreationDate": None}}
    figure.savefig(path, metadata=dates.get(ending), dpi=150)
