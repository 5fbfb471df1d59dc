"""The table of ratios, on a terminal and on the page of figures."""

from __future__ import annotations

from pathlib import Path

from rich.table import Table

from benchmarks.ratio import Ratio

PAGE = Path(__file__).parent.parent / "docs" / "benchmarks.md"
BEGIN, END = "<!-- figures -->\n", "<!-- end of figures -->"
HEADING = "| | workload | against | sparkjet, M rows/s | the other | before | ratio | goal | met |\n"
ROWS = 1000.0
"""Rates below are no rows a second, but times in a second."""
PEERS = {"jet": "Jet", "spark": "Spark's own", "flink": "Flink", "streams": "Kafka Streams"}


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


def write_page(ratios: list[Ratio], before: list[Ratio], page: Path = PAGE) -> None:
    """Put the ratios into the page of figures, next to earlier ones."""
    earlier = {(pair.id, pair.what, pair.goal.other): pair.median for pair in before}
    lines = [_line(pair, earlier.get((pair.id, pair.what, pair.goal.other))) for pair in ratios]
    head, rest = page.read_text().split(BEGIN)
    table = HEADING + "|---|---|---|---|---|---|---|---|---|\n" + "".join(lines)
    page.write_text(f"{head}{BEGIN}{table}{END}{rest.split(END)[1]}")


def _line(pair: Ratio, before: float | None) -> str:
    engine, _, work = pair.goal.other.partition("@")
    rates = [f"{rate / 1e6:.3g}" if rate >= ROWS else "" for rate in (pair.ours, pair.theirs)]
    least = pair.goal.at_least
    if pair.median is None:
        ratio = "none: results differ, or one of both failed"
    else:
        ratio = f"**{pair.median:.3g}** ({min(pair.rounds):.3g} to {max(pair.rounds):.3g})"
    cells = [pair.id, pair.what, work or PEERS.get(engine, engine), *rates, "" if before is None else f"{before:.3g}"]
    cells += [ratio, f"{least:.2f}" if least else "none", ("yes" if pair.met else "no") if least else ""]
    return f"| {' | '.join(cells)} |\n"
