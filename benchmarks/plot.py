"""The plot of the ratios."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib as mpl

from benchmarks.ratio import Ratio

mpl.use("Agg")

from matplotlib import pyplot as plt

if TYPE_CHECKING:
    from matplotlib.axes import Axes

GROUPS = {
    "jet": "Hazelcast Jet",
    "flink": "Apache Flink",
    "streams": "Kafka Streams",
    "spark": "Spark's own operators and sinks",
    "sparkjet": "sparkjet on another workload",
}
OTHERS = "A bare client, or a limit"
MET, MISSED, WITHOUT = "tab:green", "tab:red", "tab:blue"
ROW, TITLE = 0.3, 1.4
"""Inches of a line, and the lines that a group's title and axis take."""
WIDTH = 62
"""Characters of a label."""


def draw(ratios: list[Ratio], file: Path, before: list[Ratio]) -> None:
    """Draw each pair's ratio with its goal, in a panel for each peer: minimum, median and maximum over the rounds.

    Args:
        ratios: The ratios.
        file: The picture.
        before: Earlier ones, of which the median is drawn as a circle.
    """
    earlier = {(pair.id, pair.goal.other): pair.median for pair in before}
    pairs = sorted((pair for pair in ratios if pair.median is not None), key=lambda pair: _place(_group(pair)))
    panels = [(name, list(each)) for name, each in groupby(pairs, _group)]
    heights = [len(each) + TITLE for _, each in panels]
    figure, axes = plt.subplots(
        len(panels),
        figsize=(11, ROW * sum(heights) + 1),
        height_ratios=heights,
        sharex=True,
        squeeze=False,
        layout="constrained",
    )
    for (name, each), axis in zip(panels, axes[:, 0], strict=True):
        _panel(axis, name, each, earlier)
    axes[-1, 0].set_xlabel("times the throughput of the other: minimum, median, maximum; bar: goal; circle: before")
    figure.savefig(file, dpi=110)
    plt.close(figure)


def _panel(axis: Axes, name: str, pairs: list[Ratio], earlier: Mapping[tuple[str, str], float | None]) -> None:
    for place, pair in enumerate(pairs):
        median, goal = pair.median or 0.0, pair.goal.at_least
        colour = WITHOUT if not goal else MET if pair.met else MISSED
        axis.plot([min(pair.rounds), max(pair.rounds)], [place, place], color=colour, linewidth=2)
        axis.plot(median, place, "o", color=colour)
        was = earlier.get((pair.id, pair.goal.other))
        if was is not None:
            axis.plot(was, place, "o", markerfacecolor="none", color="tab:gray")
        if goal:
            axis.plot(goal, place, "|", color="black", markersize=11, markeredgewidth=1.5)
        axis.annotate(
            f"{median:.3g}", (max(*pair.rounds, goal), place), (8, 0), textcoords="offset points", va="center"
        )
    axis.axvline(1.0, color="tab:gray", linewidth=1)
    axis.set_xscale("log")
    axis.set_yticks(range(len(pairs)), [_label(pair) for pair in pairs])
    axis.set_ylim(len(pairs) - 0.4, -0.6)
    axis.set_title(name, loc="left", fontweight="bold")
    axis.xaxis.set_major_formatter(lambda ratio, _: f"{ratio:g} x")
    axis.tick_params(labelbottom=True)


def _group(pair: Ratio) -> str:
    engine = pair.goal.other.partition("@")[0]
    return GROUPS.get("spark" if engine.startswith("Spark's") else engine, OTHERS)


def _place(group: str) -> int:
    return [*GROUPS.values(), OTHERS].index(group)


def _label(pair: Ratio) -> str:
    return textwrap.shorten(f"{pair.id}: {pair.what}", WIDTH, placeholder=" …")
