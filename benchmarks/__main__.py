"""``python -m benchmarks [--quick | --more] [--rounds N] [--plot] [ID…]``: run works on all peers and print ratios.

Studies of sparkjet alone run after the rounds.
"""

from __future__ import annotations

import argparse
import dataclasses
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from benchmarks import run, studies
from benchmarks.contest import Contest
from benchmarks.process import PeerError
from benchmarks.ratio import RESULTS, Ratio, read, write
from benchmarks.report import Stretch
from benchmarks.table import table, write_page
from benchmarks.work import WORKS, Goal, Work, work_of

ROUNDS = 5
MINUTES, QUICK_MINUTES = 50, 5
"""No contest begins after this time."""
ALL_MINUTES = 85
"""No study begins after this time, unless it was named or runs with ``--more``."""

IDS = [*[work.id for work in WORKS], *studies.STUDIES]
GOALS = ("T1", "T11c", "T2", "T2m", "T5", "T9", "T9-100k", "Q5", "Q7", "Q8")
GOALS_OF_STUDIES = ("T6", "ST", "T12", "T18", "T19", "MK", "T20", "C1", "KW", "RQ", "GR")
"""What runs without a name; the others, which have long been met, run with ``--more``, as all of it takes hours."""
HEADLINES = ("T1", "T2", "T9", "Q5", "Q7", "Q8")
"""What the README shows."""
LATEST = RESULTS / "latest.json"
QUICK = dataclasses.replace(work_of("T1"), warm_up=20, goals=(Goal("jet", 1.0), Goal("spark", 50.0)))


def arguments() -> argparse.Namespace:
    """The parsed command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("works", nargs="*", metavar="ID", help=f"of {', '.join(IDS)}")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--quick", action="store_true", help="T1 against Jet and Spark only")
    which.add_argument("--more", action="store_true", help="the works and studies that do not run by default")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"rounds in which the engines take turns ({ROUNDS})")
    parser.add_argument(
        "--plot", action="store_true", help="also draw the picture next to the figures, and write the page's table"
    )
    return parser.parse_args()


def chosen(quick: bool, more: bool, names: Sequence[str]) -> tuple[list[Work], list[str]]:
    """The works and studies to run: the named ones, else those that run by default, or with ``more`` all others."""
    if quick:
        return [QUICK], []
    usual = {*GOALS, *GOALS_OF_STUDIES}
    alone = {work.id for work in WORKS if not work.goals}
    names = names or [name for name in IDS if name not in alone and (name in usual) != more]
    works = [work_of(name) for name in names if name not in studies.STUDIES]
    return works, [name for name in names if name in studies.STUDIES]


def families(works: Sequence[Work]) -> list[list[Work]]:
    """The works that take turns, in the order of the first of each."""
    found: dict[str, list[Work]] = {}
    for work in works:
        found.setdefault(work.family or work.id, []).append(work)
    return list(found.values())


def show(file: Path) -> None:
    """Draw the figures of a file, and write those of the usual run into the page."""
    # matplotlib is an extra, needed only for the plot.
    from benchmarks.plot import draw  # noqa: PLC0415

    found, before = read(file), read(RESULTS / "before.json")
    draw(found, file.with_suffix(".png"), before)
    if file == LATEST:
        write_page(found, before)
        draw([pair for pair in found if pair.id in HEADLINES], RESULTS / "headlines.png", [])


def main() -> int:
    """Run, print and write; returns 1 if a pair has no ratio."""
    # Suspended peers outlive this process unless it unwinds.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))
    given = arguments()
    console = Console(width=150)
    works, alone = chosen(given.quick, given.more, given.works)
    file = RESULTS / "quick.json" if given.quick else RESULTS / "more.json" if given.more else LATEST
    started = time.monotonic()
    ratios: list[Ratio] = []

    def progress(peer: str, work: Work, measured: Stretch) -> None:
        at = time.monotonic() - started
        console.print(f"{at / 60:6.1f} min  {work.id:13} {peer:9} {measured.rate / 1e6:8.3f} M rows/s")

    for family in families(works):
        if time.monotonic() - started > 60 * (QUICK_MINUTES if given.quick else MINUTES):
            console.print(f"no time for {', '.join(work.id for work in family)}")
            continue
        for work in family:
            console.print(f"{work.id}: {work.what}")
        ratios += Contest(family, run.start, progress).run(given.rounds)
        # After every contest, so that an interrupted run keeps its results.
        write(ratios, file)
    usual = not (given.works or given.more)
    for study in alone:
        at = (time.monotonic() - started) / 60
        if usual and at > ALL_MINUTES:
            console.print(f"no time for {study}")
            continue
        console.print(f"{at:6.1f} min  {study}: {studies.STUDIES[study]}")
        try:
            ratios += studies.run(study)
        except PeerError as error:
            ratios.append(Ratio(study, studies.STUDIES[study], Goal("itself"), wrong=str(error)))
        write(ratios, file)
    console.print(table(ratios))
    console.print(f"{(time.monotonic() - started) / 60:6.1f} min in all")
    for wrong in [pair for pair in ratios if pair.wrong is not None]:
        console.print(f"{wrong.id} against {wrong.goal.other}: no ratio. {wrong.wrong}", style="red", markup=False)
    if given.plot and not given.quick:
        show(file)
    return int(any(pair.wrong is not None for pair in ratios))


if __name__ == "__main__":
    sys.exit(main())
