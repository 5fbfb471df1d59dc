"""The plot of the ratios."""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl

from benchmarks.ratio import Ratio

mpl.use("Agg")

from matplotlib import pyplot as plt


def draw(ratios: list[Ratio], file: Path) -> None:
    """Draw each pair's ratios over the rounds, relative to its goal: on or right of the line, the goal is met.

    Without a goal, the line is the peer's throughput.
    """
    pairs = [pair for pair in reversed(ratios) if pair.median is not None]
    figure, axes = plt.subplots(figsize=(9, 1.5 + 0.35 * len(pairs)), layout="constrained")
    for place, pair in enumerate(pairs):
        parts = [ratio / (pair.goal.at_least or 1.0) for ratio in pair.rounds]
        colour = "tab:green" if pair.met else "tab:red"
        axes.plot([min(parts), max(parts)], [place, place], color=colour, linewidth=2)
        axes.plot(sorted(parts)[len(parts) // 2], place, "o", color=colour)
    axes.axvline(1.0, color="black", linewidth=1)
    axes.set_xscale("log")
    goals = [f" (goal {pair.goal.at_least:.3g})" if pair.goal.at_least else "" for pair in pairs]
    labels = [f"{pair.id} / {pair.goal.other}{goal}" for pair, goal in zip(pairs, goals, strict=True)]
    axes.set_yticks(range(len(pairs)), labels)
    axes.set_xlabel("ratio of throughputs as a part of its goal: least, median, greatest")
    figure.savefig(file, dpi=120)
    plt.close(figure)
