"""A ratio is only printed for equal results."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

from benchmarks import beside, ratio, studies
from benchmarks.__main__ import families
from benchmarks.compare import EXACT, SKETCH, difference, tolerance
from benchmarks.contest import Contest
from benchmarks.process import PeerError, PeerProcess
from benchmarks.ratio import Ratio
from benchmarks.report import Results, Stretch, Totals
from benchmarks.table import BEGIN, END, write_page
from benchmarks.work import Goal, Work, work_of

ENDS = {1: Totals(1000, 77, 62437.5), 2: Totals(1000, 78, 62437.5), 3: Totals(1000, 79, 62437.5)}
RIGHT = Results(complete=3, ends=ENDS)


def changed(end: int, totals: Totals) -> Results:
    return msgspec.structs.replace(RIGHT, ends={**ENDS, end: totals})


def test_equal_results_have_no_difference() -> None:
    assert difference(RIGHT, RIGHT, EXACT) is None


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (changed(2, Totals(999, 78, 62437.5)), "1000 rows in ours, 999 in theirs"),
        (changed(2, Totals(1000, 80, 62437.5)), "78 in ours, 80 in theirs"),
        (changed(2, Totals(1000, 78, 62437.6)), "62437.6"),
        (msgspec.structs.replace(RIGHT, ends={1: ENDS[1], 3: ENDS[3]}), "ends at 2 s is only in ours"),
        (msgspec.structs.replace(RIGHT, complete=0), "no window is complete"),
    ],
)
def test_a_wrong_result_is_found(wrong: Results, message: str) -> None:
    assert message in str(difference(RIGHT, wrong, EXACT))


def test_only_windows_that_both_completed_count() -> None:
    shorter = Results(complete=2, ends={1: ENDS[1], 2: ENDS[2], 3: Totals(5, 5, 5.0)})
    assert difference(RIGHT, shorter, EXACT) is None
    assert difference(shorter, RIGHT, EXACT) is None


def test_a_sketch_may_be_a_little_off() -> None:
    near = changed(2, Totals(1000, 78, 62437.5 * 1.01))
    assert difference(RIGHT, near, tolerance(["percentile"])) is None
    assert difference(RIGHT, near, tolerance(["avg"])) is not None
    assert difference(RIGHT, changed(2, Totals(1000, 78, 62437.5 * (1 + 2 * SKETCH))), SKETCH) is not None


WORK = Work("X", "a test", goals=(Goal("jet", 0.5), Goal("spark", 2.0)))


@dataclass
class Told:
    """An engine that says what it is told to, and notes what it is asked."""

    name: str
    asked: list[str]
    found: Results = RIGHT
    seconds: float = 2.0
    fails: bool = False

    def stretch(self) -> Stretch:
        self.asked.append(self.name)
        if self.fails:
            raise PeerError(f"{self.name} has ended")
        return Stretch(rows=2_000_000, seconds=self.seconds)

    def results(self) -> Results:
        return self.found

    def end(self) -> None:
        self.asked.append(f"no {self.name}")


def contest(*works: Work, asked: list[str] | None = None, rounds: int = 2, **told: dict[str, Any]) -> list[Ratio]:
    """A contest of engines that say what they are told to, by name or by name and work."""
    noted = [] if asked is None else asked

    def start(peer: str, work: Work) -> Told:
        return Told(peer, noted, **told.get(f"{peer}_{work.id}", told.get(peer, {})))

    return Contest(works, start).run(rounds)


def test_ratios_are_paired_by_round_while_engines_take_turns(tmp_path: Path) -> None:
    asked: list[str] = []
    ratios = contest(WORK, asked=asked, jet={"seconds": 1.0})
    assert asked[:6] == ["sparkjet", "jet", "spark"] * 2
    assert asked[6:9] == ["no sparkjet", "no jet", "no spark"]
    assert [pair.rounds for pair in ratios] == [(0.5, 0.5), (1.0, 1.0)]
    assert [pair.met for pair in ratios] == [True, False]
    file = tmp_path / "latest.json"
    assert ratio.write(ratios, file) == ratios
    (entry,) = json.loads(file.read_text())
    assert entry["ratio_to"] == {"jet": 0.5, "spark": 1.0}
    assert entry["met"] is False


def test_a_run_of_some_works_leaves_the_figures_of_the_others(tmp_path: Path) -> None:
    file = tmp_path / "latest.json"
    first, second = (contest(dataclasses.replace(WORK, id=name)) for name in ("A", "B"))
    ratio.write(first + second, file)
    again = contest(dataclasses.replace(WORK, id="A"), jet={"fails": True})
    assert ratio.write(again, file) == again + second
    assert [entry["met"] for entry in json.loads(file.read_text())] == [False, False]


def test_a_wrong_result_leaves_no_ratio_for_that_pair() -> None:
    jet, spark = contest(WORK, spark={"found": changed(3, Totals(1000, 1, 62437.5))})
    assert jet.median == pytest.approx(1.0)
    assert spark.median is None
    assert not spark.met
    assert "checksum 79 in ours, 1 in theirs" in str(spark.wrong)


def test_a_peer_that_fails_leaves_no_ratio_and_is_not_tried_again() -> None:
    asked: list[str] = []
    ratios = contest(WORK, asked=asked, jet={"fails": True})
    assert [pair.wrong for pair in ratios] == ["jet has ended", None]
    assert asked.count("jet") == 1
    assert "no jet" in asked


def test_another_question_is_not_compared_but_the_same_one_is() -> None:
    wrong = {"found": changed(1, Totals(1, 1, 1.0))}
    for steps, same in ((work_of("T1").steps, True), (6, False)):
        work = dataclasses.replace(WORK, goals=(Goal("sparkjet@T1", 0.5),), steps=steps, cores=1)
        (pair,) = contest(work, sparkjet_T1=wrong)
        assert (pair.wrong is not None) == same


def test_what_two_works_of_a_family_ask_for_runs_once() -> None:
    asked: list[str] = []
    same = dataclasses.replace(WORK, id="Y", goals=(Goal("sparkjet@T8-none"), Goal("spark")))
    assert len(contest(WORK, same, asked=asked, rounds=1)) == len(WORK.goals + same.goals)
    assert asked[:4] == ["sparkjet", "jet", "spark", "sparkjet"]


def test_families_keep_the_order_of_their_first() -> None:
    works = [dataclasses.replace(WORK, id=name, family=family) for name, family in (("A", "f"), ("B", ""), ("C", "f"))]
    assert [[work.id for work in family] for family in families(works)] == [["A", "C"], ["B"]]


PEER = """
import subprocess, sys
child = subprocess.Popen(["sleep", "1000"])
print("noise", flush=True)
for number, _ in enumerate(sys.stdin):
    print(f'{{"rows": {number}, "seconds": 1.0}}', flush=True)
    if sys.argv[1:] == ["fail"]:
        sys.exit("a reason")
print('{"complete": 1, "ends": {}}', flush=True)
print(child.pid, file=sys.stderr)
"""


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="looks at processes as Linux shows them")
def test_a_process_stands_still_between_its_turns_and_leaves_nothing_behind() -> None:
    with PeerProcess([sys.executable, "-c", PEER], "a peer") as peer:
        assert [peer.stretch().rows for _ in range(2)] == [0, 1]
        pid = peer._process.pid
        group = [int(found.parent.name) for found in processes() if in_group(found, pid)]
        assert len(group) == 2
        # A signal takes its time to arrive.
        deadline = time.monotonic() + 60
        while any(state(each) != "T" for each in group):
            assert time.monotonic() < deadline
        assert peer.results() == Results(complete=1, ends={})
    deadline = time.monotonic() + 60
    while any(in_group(found, pid) and state(int(found.parent.name)) != "Z" for found in processes()):
        # Who is killed ends when the machine has time for it.
        assert time.monotonic() < deadline


def processes() -> list[Path]:
    return list(Path("/proc").glob("[0-9]*/stat"))


def in_group(found: Path, group: int) -> bool:
    with contextlib.suppress(FileNotFoundError, ProcessLookupError):
        return int(found.read_text().rpartition(") ")[2].split()[2]) == group
    return False


def test_a_process_that_ends_too_early_says_why() -> None:
    with PeerProcess([sys.executable, "-c", PEER, "fail"], "a peer") as peer:
        peer.stretch()
        with pytest.raises(PeerError, match=r"(?s)a peer has ended.*a reason"):
            peer.stretch()


@pytest.mark.parametrize("module", studies.STUDIES.values())
def test_each_study_is_a_program(module: str) -> None:
    assert hasattr(importlib.import_module(f"benchmarks.{module}"), "study")


def test_a_bare_process_that_fails_ends_the_study_rather_than_hanging_it(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="a bare process failed before it was ready"):
        beside.seconds_of(divmod, [(1, 0)])
    assert "TypeError" in capfd.readouterr().err


def test_ways_take_turns_and_the_warm_up_does_not_count() -> None:
    asked: list[tuple[str, int]] = []

    def way(name: str, round_: int) -> float:
        asked.append((name, round_))
        return float(round_)

    ways = {name: functools.partial(way, name) for name in ("ours", "theirs")}
    cleaned = iter(range(100))
    assert beside.in_turns(ways, 2, 1, lambda: next(cleaned)) == {"ours": [1.0, 2.0], "theirs": [1.0, 2.0]}
    assert asked == [(name, round_) for round_ in range(3) for name in ways]
    assert next(cleaned) == len(asked)


def test_the_page_gets_the_figures_and_keeps_its_text(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"Before.\n{BEGIN}| old |\n{END}\nAfter.\n")
    met = Ratio("T1", "60 steps", Goal("jet", 2.0), (3.0, 2.5, 3.5), 35_600_000.0, 10_300_000.0)
    missed = Ratio("T6", "latency", Goal("0.15 s", 1.0), (0.6,), 4.0, 6.7)
    failed = Ratio("T2", "many keys", Goal("sparkjet@T1", 1.0), wrong="it ended")
    for _ in range(2):
        write_page([met, missed, failed], [dataclasses.replace(met, rounds=(1.38,))], page)
    text = page.read_text()
    assert text.startswith(f"Before.\n{BEGIN}| | workload |")
    assert text.endswith(f"{END}\nAfter.\n")
    assert text.splitlines()[4:7] == [
        "| T1 | 60 steps | Jet | 35.6 | 10.3 | 1.38 | **3** (2.5 to 3.5) | 2.00 | yes |",
        "| T6 | latency | 0.15 s |  |  |  | **0.6** (0.6 to 0.6) | 1.00 | no |",
        "| T2 | many keys | T1 |  |  |  | none: results differ, or one of both failed | 1.00 | no |",
    ]
