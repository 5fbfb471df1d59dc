"""``python -m benchmarks [--quick] [--rounds N] [--plot] [ID…]``: run works on all their peers and print ratios.

Studies of sparkjet alone come after the rounds.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
import time

from rich.console import Console

from benchmarks import run, studies
from benchmarks.contest import Contest, Once
from benchmarks.ratio import RESULTS, Ratio, write
from benchmarks.report import Report
from benchmarks.run import PeerError
from benchmarks.table import table
from benchmarks.work import WORKS, Goal, Work, work_of

ROUNDS = 3
MINUTES = 60
QUICK_MINUTES = 5
"""A round that is longer than what is left of these is left out; how long a work takes its first round shows.

The studies take less than half an hour after that.
"""

IDS = [*[work.id for work in WORKS], *studies.STUDIES]
QUICK = dataclasses.replace(work_of("T1"), warm_up=20, measured=8, goals=(Goal("jet", 1.0), Goal("spark", 50.0)))


def arguments() -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("works", nargs="*", metavar="ID", help=f"of {', '.join(IDS)}")
    parser.add_argument("--quick", action="store_true", help="T1 against Jet and Spark only")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"rounds in which the engines alternate ({ROUNDS})")
    parser.add_argument("--plot", action="store_true", help="also draw the picture next to the figures")
    return parser.parse_args()


def chosen(quick: bool, names: list[str]) -> tuple[list[Work], list[str]]:
    """The works and the studies to run: those named, else all studies and all works that are set against something."""
    if quick:
        return [QUICK], []
    if not names:
        return [work for work in WORKS if work.goals], list(studies.STUDIES)
    return [work_of(name) for name in names if name not in studies.STUDIES], [
        name for name in names if name in studies.STUDIES
    ]


def main() -> int:
    """Run, print and write; 1 if a pair has no ratio."""
    given = arguments()
    console = Console(width=150)

    def runner(peer: str, work: Work) -> Report:
        started = time.perf_counter()
        report = run.run(peer, work)
        took = time.perf_counter() - started
        console.print(f"  {work.id:8} {peer:9} {report.rate / 1e6:8.3f} M rows/s   ({took:.0f} s)")
        return report

    once = Once(runner)
    works, alone = chosen(given.quick, given.works)
    contests = [Contest(work, once) for work in works]
    file = RESULTS / ("quick.json" if given.quick else "latest.json")
    started = time.monotonic()
    ratios: list[Ratio] = []
    for number in range(given.rounds):
        once.next_round()
        for contest in contests:
            taken = time.monotonic() - started
            if taken + contest.longest > 60 * (QUICK_MINUTES if given.quick else MINUTES):
                console.print(f"{contest.work.id}: no time for round {number + 1}")
                continue
            console.print(f"{contest.work.id} {contest.work.what}: round {number + 1} of {given.rounds}")
            contest.round()
            # After every contest: a run that is broken off has kept what it found.
            ratios = [ratio for done in contests if done.rounds for ratio in done.ratios()]
            write(ratios, file)
    for name in alone:
        console.print(f"{name}: {studies.STUDIES[name]}")
        try:
            ratios += studies.run(name)
        except PeerError as error:
            ratios.append(Ratio(name, studies.STUDIES[name], Goal("itself"), wrong=str(error)))
        write(ratios, file)
    console.print(table(ratios))
    for wrong in [pair for pair in ratios if pair.wrong is not None]:
        console.print(f"{wrong.id} against {wrong.goal.other}: no ratio. {wrong.wrong}", style="red", markup=False)
    if given.plot and not given.quick:
        # matplotlib is an extra that only the picture needs.
        from benchmarks.plot import draw  # noqa: PLC0415

        draw(ratios, RESULTS / "latest.png")
    return int(any(pair.wrong is not None for pair in ratios))


if __name__ == "__main__":
    sys.exit(main())
