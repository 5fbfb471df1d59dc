"""A ratio is only printed for equal results."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import json
from pathlib import Path

import msgspec
import pytest

from benchmarks import beside, ratio, studies
from benchmarks.compare import EXACT, SKETCH, difference, tolerance
from benchmarks.contest import Contest, Once
from benchmarks.report import Report, Totals
from benchmarks.run import PeerError
from benchmarks.work import Goal, Work, work_of

ENDS = {1: Totals(1000, 77, 62437.5), 2: Totals(1000, 78, 62437.5), 3: Totals(1000, 79, 62437.5)}
RIGHT = Report(rows=2_000_000, seconds=2.0, complete=3, ends=ENDS)


def changed(end: int, totals: Totals) -> Report:
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
def test_a_wrong_result_is_found(wrong: Report, message: str) -> None:
    assert message in str(difference(RIGHT, wrong, EXACT))


def test_only_windows_that_both_completed_count() -> None:
    shorter = Report(rows=1, seconds=1.0, complete=2, ends={1: ENDS[1], 2: ENDS[2], 3: Totals(5, 5, 5.0)})
    assert difference(RIGHT, shorter, EXACT) is None
    assert difference(shorter, RIGHT, EXACT) is None


def test_a_sketch_may_be_a_little_off() -> None:
    near = changed(2, Totals(1000, 78, 62437.5 * 1.01))
    assert difference(RIGHT, near, tolerance(["percentile"])) is None
    assert difference(RIGHT, near, tolerance(["avg"])) is not None
    assert difference(RIGHT, changed(2, Totals(1000, 78, 62437.5 * (1 + 2 * SKETCH))), SKETCH) is not None


WORK = Work("X", "a test", goals=(Goal("jet", 0.5), Goal("spark", 2.0)))


def contest(theirs: Report) -> Contest:
    reports = {"sparkjet": RIGHT, "jet": msgspec.structs.replace(RIGHT, seconds=1.0), "spark": theirs}
    result = Contest(WORK, lambda peer, _: reports[peer])
    result.round()
    result.round()
    return result


def test_ratios_are_paired_by_round(tmp_path: Path) -> None:
    ratios = contest(RIGHT).ratios()
    assert [pair.rounds for pair in ratios] == [(0.5, 0.5), (1.0, 1.0)]
    assert [pair.met for pair in ratios] == [True, False]
    ratio.write(ratios, tmp_path / "latest.json")
    (entry,) = json.loads((tmp_path / "latest.json").read_text())
    assert entry["ratio_to"] == {"jet": 0.5, "spark": 1.0}
    assert entry["met"] is False


def test_a_wrong_result_in_any_round_leaves_no_ratio_for_that_pair() -> None:
    jet, spark = contest(changed(3, Totals(1000, 1, 62437.5))).ratios()
    assert jet.median == pytest.approx(0.5)
    assert spark.median is None
    assert not spark.met
    assert "checksum 79 in ours, 1 in theirs" in str(spark.wrong)


def test_a_peer_that_fails_leaves_no_ratio_and_is_not_tried_again() -> None:
    asked = []

    def runner(peer: str, _: Work) -> Report:
        asked.append(peer)
        if peer == "jet":
            raise PeerError("jet ended with 1")
        return RIGHT

    failing = Contest(WORK, runner)
    failing.round()
    failing.round()
    assert [pair.wrong for pair in failing.ratios()] == ["jet ended with 1", None]
    assert asked.count("jet") == 1


def test_a_slow_one_runs_in_the_first_round_only() -> None:
    asked = []

    def runner(peer: str, _: Work) -> Report:
        asked.append(peer)
        return RIGHT

    slow = Contest(dataclasses.replace(WORK, goals=(Goal("jet"), Goal("spark", once=True))), runner)
    slow.round()
    slow.round()
    assert asked == ["sparkjet", "jet", "spark", "sparkjet", "jet"]
    assert [len(pair.rounds) for pair in slow.ratios()] == [2, 1]


def test_another_question_is_not_compared_but_the_same_one_is() -> None:
    goals = (Goal("sparkjet@T1", 0.5),)
    wrong = changed(1, Totals(1, 1, 1.0))

    def runner(_: str, work: Work) -> Report:
        return RIGHT if work.id == "X" else wrong

    for steps, same in ((work_of("T1").steps, True), (6, False)):
        pairs = Contest(dataclasses.replace(WORK, goals=goals, steps=steps), runner)
        pairs.round()
        assert (pairs.ratios()[0].wrong is not None) == same


def test_what_two_works_ask_for_is_run_once_a_round() -> None:
    asked = []

    def runner(peer: str, work: Work) -> Report:
        asked.append((peer, work.id))
        if peer == "jet":
            raise PeerError("jet ended with 1")
        return RIGHT

    once = Once(runner)
    same = dataclasses.replace(WORK, id="Y", goals=())
    assert once("spark", WORK) is once("spark", same)
    assert once("spark", dataclasses.replace(same, guarantee="none")) is RIGHT
    for work in (WORK, same):
        with pytest.raises(PeerError, match="ended with 1"):
            once("jet", work)
    assert asked == [("spark", "X"), ("spark", "Y"), ("jet", "X")]
    once.next_round()
    assert once("spark", same) is RIGHT
    assert asked[3:] == [("spark", "Y")]


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
