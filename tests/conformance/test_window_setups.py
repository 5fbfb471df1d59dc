from __future__ import annotations

import pytest

from sparkjet.time import WindowGrid
from tests.conformance.verdicts import NotationError
from tests.conformance.window_setups import Aggregate, window_grid, window_setup


@pytest.mark.parametrize(
    ("text", "window", "aggregate"),
    [
        ("win(4,4) SUM", WindowGrid(4, 4), Aggregate("SUM")),
        ("win(4,2) SUM-nd", WindowGrid(4, 2), Aggregate("SUM", deduct=False)),
        ("win(4,2) off=1 AVG", WindowGrid(4, 2, 1), Aggregate("AVG")),
        ("win(4,2) off = 1 MAX", WindowGrid(4, 2, 1), Aggregate("MAX")),
        ("win(4,2) CNT offset 1", WindowGrid(4, 2, 1), Aggregate("CNT")),
        ("CNT-ND, off 1, win(4, 2)", WindowGrid(4, 2, 1), Aggregate("CNT", deduct=False)),
        ("win(4,2,1) cnt", WindowGrid(4, 2, 1), Aggregate("CNT")),
        ("win(4,2) off(1) MIN", WindowGrid(4, 2, 1), Aggregate("MIN")),
        ("win(8,4) SUM-nd (f(key,frameEnd,partial))", WindowGrid(8, 4), Aggregate("SUM", deduct=False)),
    ],
)
def test_windows(text: str, window: WindowGrid, aggregate: Aggregate) -> None:
    setup = window_setup(text)
    assert (setup.window, setup.session, setup.aggregate) == (window, None, aggregate)


def test_sessions() -> None:
    setup = window_setup("session(10) CNT")
    assert (setup.window, setup.session) == (None, 10)


@pytest.mark.parametrize(
    "text",
    [
        "win(4,4)",
        "SUM",
        "win(4,4) SUM CNT",
        "win(4,4) session(3) SUM",
        "win(4,4) win(2,2) SUM",
        "win(4) SUM",
        "win(4,4,0,0) SUM",
        "win(a,4) SUM",
        "win(4,4) SUM offset",
        "win(4,4) SUM off=x",
        "win(4,4) SUMM",
        "win(4,4) MEDIAN",
        "win[4,4] SUM",
        "session() CNT",
    ],
)
def test_an_item_that_is_not_a_setup(text: str) -> None:
    with pytest.raises(NotationError):
        window_setup(text)


def test_windows_of_restores() -> None:
    assert window_grid("win(3,1)") == WindowGrid(3, 1)
    assert window_grid("win(4,2) off=1") == WindowGrid(4, 2, 1)
    for text in ("session(3)", "win(3,1) SUM", "win"):
        with pytest.raises(NotationError):
            window_grid(text)
