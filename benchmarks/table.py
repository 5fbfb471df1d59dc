"""The table of ratios."""

from __future__ import annotations

from rich.table import Table

from benchmarks.ratio import Ratio


def table(ratios: list[Ratio]) -> Table:
    """One line per ratio: median, minimum and maximum over the rounds, next to the goal."""
    shown = Table(title="sparkjet's throughput as a multiple of others'")
    for heading in ("", "work", "against", "ours, M rows/s", "theirs", "min", "median", "max", "goal", "met"):
        shown.add_column(heading, justify="left" if heading in {"", "work", "against"} else "right")
    for ratio in ratios:
        rates = [f"{rate / 1e6:.3f}" for rate in (ratio.ours, ratio.theirs)]
        if ratio.median is None:
            numbers = ["", "", "no ratio", "", ""]
        else:
            numbers = [*rates, *[f"{number:.2f}" for number in (min(ratio.rounds), ratio.median, max(ratio.rounds))]]
        line = [ratio.id, ratio.what, ratio.goal.other, *numbers]
        least = ratio.goal.at_least
        shown.add_row(*line, *([f"{least:.2f}", "yes" if ratio.met else "no"] if least else ["", ""]))
    return shown
