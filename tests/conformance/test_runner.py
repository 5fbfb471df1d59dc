from __future__ import annotations

import pytest

from tests.conformance import GROUPS, Case, Outcome, Verdict, read_cases, run_case, run_cases
from tests.conformance.corruption import CASES, corruptions
from tests.conformance.model import ModelDrivers
from tests.conformance.verdicts import summary

KNOWN = [case for case in CASES if case.group in GROUPS]
READ = {"FR": [3], "SW": [2, 3], "SES": [2, 3], "E2E": [2, 3], "MAP": [2], "COA": [2], "POL": []}
"""Cells that the runner reads, except for setups, whose comments may contain anything."""
PROSE = "## FR. x\n| X | clamping (prose) | limits | {} |\n"


def verdict(row: tuple[str, ...]) -> Verdict:
    """The verdict on a row, from its group and the cells after its id."""
    group, *cells = row
    text = f"## {group}. Heading\n| X | {' | '.join(cells)} |"
    (only,) = run_cases(read_cases(text), ModelDrivers())
    return only


@pytest.mark.parametrize("case", KNOWN, ids=lambda case: case.id)
def test_a_row_passes(case: Case) -> None:
    judged = run_case(case, ModelDrivers())
    assert judged == Verdict(case.id, Outcome.PASSED)


@pytest.mark.parametrize("case", KNOWN, ids=lambda case: case.id)
def test_a_row_with_anything_else_expected_fails(case: Case) -> None:
    falsified = list(corruptions(case))
    assert falsified
    for other in falsified:
        judged = run_case(other, ModelDrivers())
        assert judged.outcome is Outcome.FAILED, other.cells


@pytest.mark.parametrize("case", [case for case in KNOWN if case.id != "F4"], ids=lambda case: case.id)
def test_a_row_that_lost_something_fails(case: Case) -> None:
    broken = [case.cells[:length] for length in (1, 2)]
    for position in READ[case.group]:
        before, bracket, after = case.cells[position].rpartition(")")
        if bracket:
            broken.append((*case.cells[:position], before + after, *case.cells[position + 1 :]))
    for cells in broken:
        judged = run_case(Case(case.group, cells, case.line), ModelDrivers())
        assert judged.outcome is Outcome.FAILED, cells
        assert "cannot be read" in judged.why


@pytest.mark.parametrize(
    "row",
    [
        ("FR", "frame 4, offset 5", "", "0->(0,4)"),
        ("FR", "frame 4", "", "0->(0,4) and more"),
        ("FR", "frame 4", "", "0->(0)"),
        ("FR", "frames", "", "0->(0,4)"),
        ("SW", "win(5,2) CNT", "w(4)", "w(4)"),
        ("SW", "win(4,2) CNT", "w(4) x", "w(4)"),
        ("SW", "win(4,2) CNT", "e(a)", "w(4)"),
        ("SW", "win(4,2) CNT", "e(a,1,2,3)", "w(4)"),
        ("SW", "win(4,2) CNT", "restore(win(5,2))", "w(4)"),
        ("SW", "win(4,2) AVG", "f(a,4,1)", "w(4)"),
        ("SW", "win(4,2) CNT", "w(4)", "w(4) w"),
        ("SES", "session(10)", "e(a,1)", "w(4)"),
        ("SES", "session(10) CNT", "e(a,1", "w(4)"),
        ("SES", "session(10) CNT", "e(a,1)", "q(4)"),
        ("SES", "win(4,4) CNT", "e(a,1)", "w(4)"),
        ("SES", "session(0) CNT", "e(a,1)", "w(4)"),
        ("SES", "session(10) off=1 CNT", "e(a,1)", "w(4)"),
        ("SES", "session(10) CNT", "e(a,1) restore(win(4,2))", ""),
        ("POL", "limitingLag(10)", "rep(0)", ""),
        ("POL", "limitingLag(10)", "at(0)", ""),
        ("POL", "limitingLag(10)", "cur=soon", ""),
        ("POL", "limitingLag(10)", "ask(3)=4", ""),
        ("POL", "limitingLag(-10)", "cur=MIN", ""),
        ("POL", "unlimitedLag(10)", "cur=MIN", ""),
        ("POL", "timestamp history(6, 3)", "1->MIN", ""),
        ("POL", "emit_by_frame(3)", "as given", "as given"),
        ("POL", "emit_by_frame(3)", "3->3 4 ->", ""),
        ("MAP", "lag 3, throttle 1", "@0 idle -> -"),
        ("MAP", "lag 3, throttle 1, 1 partition(s), more", "@0 idle -> -"),
        ("MAP", "lag 3, throttle 1, 1 partition(s)", "idle -> -"),
        ("MAP", "lag 3, throttle 1, 1 partition(s)", "@0 idle ->"),
        ("MAP", "lag 3, throttle 1, 1 partition(s)", "@0 idle"),
        ("MAP", "lag 3, throttle 1, 1 partition(s)", "@0 sleep(1) -> -"),
        ("MAP", "lag 3, throttle 1, 1 partition(s)", "@0 ev(1,5) -> e(5)"),
        ("MAP", "lag 3, throttle 1, 1 partition(s)", "@0 rem(-1) -> -"),
        ("MAP", "lag 3, throttle 1, 1 partition(s)", "@0 idle -> x(5)"),
        ("COA", "inputs", "poll -> -"),
        ("COA", "2 inputs", "wait -> -"),
        ("COA", "2 inputs", "poll -> nothing"),
        ("COA", "2 inputs", "wm(0) -> -"),
        ("E2E", "lag 0, win(4,4) CNT", "@0 A 5", "w(4)"),
        ("E2E", "lag 0, throttle 1, win(4,4) CNT", "@0 A", "w(4)"),
        ("E2E", "lag 0, throttle 1, win(4,4) CNT", "0 A 5", "w(4)"),
        ("E2E", "lag 0, throttle 1, win(4,4) CNT", "@0 A soon", "w(4)"),
        ("E2E", "lag 0, throttle 1, win(4,4) CNT", "@0 A done ; @0 A 5", "w(4)"),
        ("E2E", "lag 0, throttle 1, session(4) CNT", "@0 A 5", "q(4)"),
    ],
)
def test_a_row_that_cannot_be_read_has_failed(row: tuple[str, ...]) -> None:
    judged = verdict(row)
    assert (judged.case, judged.outcome) == ("X", Outcome.FAILED)
    assert judged.why


@pytest.mark.parametrize(
    "row",
    [
        ("FR", "frame 7 off 3", "", "MIN->(MIN,MIN+4); 3 -> (3, 10)"),
        ("FR", "frame=7", "", "3->(0,7)<br>7->(7,14)"),
        ("POL", "no_throttling", "5->5 5->- 4->-<br>6->6", ""),
        ("POL", "emit_by_min_step(3)", "in order", "`MIN->- -2->-2 0->- 1->1`"),
        ("POL", "timestamp_history(3, 1 sample)", "in order", "0:0->MIN 1:MIN->MIN 3:3->MIN"),
        ("POL", "limiting_real_time_lag(3)", "at(10) rep(99)=7; at(9) cur=6", ""),
        ("MAP", "limitingRealTimeLag(3), throttle none, 2 partitions", "@9 ev(0,4) -> w(4) e(4) @9 idle -> w(6)"),
        ("MAP", "lag 0, throttle min step 3, 1 partition", "@0 ev(0,4) -> w(4) e(4) @0 ev(0,6) -> e(6)"),
        ("MAP", "lag 0, throttle 1, 1 partition", "@0 rem(0) -> IDLE @0 add(2) -> - @0 ev(1,4) -> e(4)"),
        ("COA", "1 input", "wm(0,5)->5; wm(0,IDLE)->IDLE; wm(0,IDLE)->IDLE; wm(0,5)->ERR"),
        (
            "SW",
            "win(4,2) off=1 AVG-nd",
            "e(a,0,1) e(a,1,2) w(3) restore(win(4,4) off=1) end",
            "r(-3,1,a,1) r(-1,3,a,1.5) w(3) r(1,5,a,2)",
        ),
        ("SW", "win(4,4) CNT", "f(a,4,3) f(a,3,2) e(a,1,9) w(4) f(a,4,7)", "r(0,4,a,6) w(4) ; late=1"),
        (
            "SES",
            "session(10) CNT",
            "e(k,0) e(j,1) early early e(k,3) restore w(11) end",
            "early(1,11,j,1) early(0,10,k,1) early(0,10,k,1) early(1,11,j,1) w(11) r(0,13,k,2) r(1,11,j,1)",
        ),
        ("SW", "win(4,4) CNT", "e(a,1) early restore e(a,2) early end", "early(0,4,a,1) early(0,4,a,2) r(0,4,a,2)"),
        ("SW", "win(4,4) MIN", "e(a,0,0.25) e(a,1,-0.5) end", "r(0,4,a,-0.5)"),
        (
            "E2E",
            "limitingLagAndLull(0, 2), throttle none, win(4,4) CNT",
            "@0 A 1; @1 A idle; @6 A idle; end",
            "w(1) r(0,4,x,1) w(5)",
        ),
        (
            "E2E",
            "lag 0, throttle 10, win(10,10) CNT, idle timeout 5",
            "@0 A 5 ; @0 B 17 ; @9 A 25 ; @14 A idle ; @14 B idle ; @15 A done ; @16 B done ; end",
            "w(0) r(0,10,k,1) w(10) r(10,20,k,1) w(20) IDLE r(20,30,k,1)",
        ),
    ],
)
def test_other_rows_of_the_notation(row: tuple[str, ...]) -> None:
    judged = verdict(row)
    assert judged.outcome is Outcome.PASSED, judged.why


def test_a_partial_counts_once_however_much_is_in_it() -> None:
    drivers = ModelDrivers()
    text = "## SW. x\n| X | win(4,4) CNT | f(a,4,3) e(a,0) w(4) f(a,4,9) | r(0,4,a,4) w(4) late=1 |"
    assert [each.outcome for each in run_cases(read_cases(text), drivers)] == [Outcome.PASSED]
    assert [driver.disposed for driver in drivers.opened] == [True]


def test_rows_of_other_groups_are_not_counted() -> None:
    assert list(run_cases(read_cases("## BAR. x\n| B1 | any | rows |\n## Other\n| a | b |"), ModelDrivers())) == []


@pytest.mark.parametrize(
    "text",
    [
        "far from the limits nothing is clamped",
        "frame 4 off 3: floor(MIN+2)=MIN and so on",
        "frame 4 off 3: floor(MIN+2)=MIN; see the notes",
        "frame 4: middle(3)=2",
        "frame 4: floor(now)=MIN",
        "frame 4:",
    ],
)
def test_prose_that_cannot_be_read_is_skipped(text: str) -> None:
    drivers = ModelDrivers()
    (judged,) = run_cases(read_cases(PROSE.format(text)), drivers)
    assert (judged.outcome, drivers.opened) == (Outcome.SKIPPED, [])


@pytest.mark.parametrize("group", sorted(GROUPS - {"FR"}))
def test_prose_of_other_groups_is_skipped(group: str) -> None:
    judged = verdict((group, "early rows (prose)", "some", "none"))
    assert judged.outcome is Outcome.SKIPPED


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ("frame 4: floor(3)=0, higher(3)=4; frame 4 off 1: floor(0) = -3", Outcome.PASSED),
        ("frame 4: floor(3)=0, higher(3)=5; frame 4 off 1: floor(0) = -3", Outcome.FAILED),
        ("frame 4: floor(3)=0, higher(3)=4; frame 4 off 1: floor(0) = -4", Outcome.FAILED),
        ("frame 4 off 4: floor(3)=0", Outcome.FAILED),
    ],
)
def test_prose_that_can_be_read_is_judged(text: str, outcome: Outcome) -> None:
    (judged,) = run_cases(read_cases(PROSE.format(text)), ModelDrivers())
    assert judged.outcome is outcome


def test_a_fault_of_the_operator_is_the_cases_failure_and_frees_it() -> None:
    drivers = ModelDrivers()
    opened = drivers.open

    def failing(*arguments: object) -> object:
        driver = opened(*arguments)  # type: ignore[arg-type]
        driver.close = lambda _: 1 // 0  # type: ignore[assignment, return-value]
        return driver

    drivers.open = failing  # type: ignore[assignment]
    text = "## SW. x\n| X | win(4,4) CNT | w(4) | w(4) |"
    (judged,) = run_cases(read_cases(text), drivers)
    assert str(judged) == "X failed ZeroDivisionError: integer division or modulo by zero"
    assert drivers.opened[0].disposed


def test_state_left_at_the_end_is_a_failure() -> None:
    drivers = ModelDrivers()
    opened = drivers.open

    def leaking(*arguments: object) -> object:
        driver = opened(*arguments)  # type: ignore[arg-type]
        driver.is_empty = lambda: False  # type: ignore[method-assign]
        return driver

    drivers.open = leaking  # type: ignore[assignment]
    (judged,) = run_cases(read_cases("## SW. x\n| X | win(4,4) CNT | e(a,0) end | r(0,4,a,1) |"), drivers)
    assert str(judged) == "X failed state is left after the end of the input"


def test_a_verdict_is_one_line() -> None:
    assert str(Verdict("X", Outcome.FAILED, "first\n  second\n")) == "X failed first second"
    assert str(Verdict("X", Outcome.PASSED)) == "X passed"


def test_the_whole_file() -> None:
    verdicts = list(run_cases(CASES, ModelDrivers()))
    assert summary(verdicts) == "93 passed, 0 failed, 0 skipped"
