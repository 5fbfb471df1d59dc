from __future__ import annotations

import pytest

from tests.conformance.verdicts import MismatchError, NotationError
from tests.conformance.window_rows import read_outputs


def judge(expected: str, actual: str) -> None:
    came = read_outputs(actual)
    read_outputs(expected).require(came.items, came.late)


@pytest.mark.parametrize(
    ("expected", "actual"),
    [
        ("r(0,4,a,1) w(4)", "r(0,4,a,1) w(4)"),
        ("r(0,4,a,1) r(0,4,b,2) w(4)", "r(0,4,b,2) r(0,4,a,1) w(4)"),
        ("w(4)", "w(4) late=0"),
        ("r(0,4,a,2.5)", "r(0,4,a,2.5)"),
        ("r(0,4,a,2)", "r(0,4,a,2.0)"),
        ("r(0,4,a,0.3)", "r(0,4,a,0.30000000000000004)"),
        ("r(0,4,a,1.333)", "r(0,4,a,1.3333333333333333)"),
        ("w(4) IDLE ; late=2 (of these, two)", "w(4) IDLE late=2"),
    ],
)
def test_the_same(expected: str, actual: str) -> None:
    judge(expected, actual)


@pytest.mark.parametrize(
    ("expected", "actual"),
    [
        ("r(0,4,a,1)", "r(0,4,a,2)"),
        ("r(0,4,a,1)", "r(0,4,b,1)"),
        ("r(0,4,a,1)", "r(1,4,a,1)"),
        ("r(0,4,a,1)", "r(0,5,a,1)"),
        ("r(0,4,a,1)", "early(0,4,a,1)"),
        ("r(0,4,a,1)", ""),
        ("w(4)", "w(4) w(5)"),
        ("w(4) r(0,4,a,1)", "r(0,4,a,1) w(4)"),
        ("r(0,4,a,1) r(4,8,a,1)", "r(4,8,a,1) r(0,4,a,1)"),
        ("r(0,4,a,1)", "r(0,4,a,1) r(0,4,a,1)"),
        ("w(4)", "w(4) late=1"),
        ("w(4) late=1", "w(4)"),
        ("IDLE", "w(4)"),
        ("r(0,4,a,2)", "r(0,4,a,2.4)"),
        ("r(0,4,a,2.5)", "r(0,4,a,2.54)"),
        ("r(0,4,a,1.333)", "r(0,4,a,1.334)"),
        ("r(0,4,a,9007199254740993)", "r(0,4,a,9007199254740992)"),
    ],
)
def test_not_the_same(expected: str, actual: str) -> None:
    with pytest.raises(MismatchError, match="expected"):
        judge(expected, actual)


@pytest.mark.parametrize(
    "text", ["r(0,4,a)", "r(0,4,a,x)", "r(0,4,a,1,1)", "w()", "w(x)", "s(4)", "late", "late=x", "late=1 late=2", "w"]
)
def test_an_item_that_is_not_an_output(text: str) -> None:
    with pytest.raises(NotationError):
        read_outputs(text)
