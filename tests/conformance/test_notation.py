from __future__ import annotations

from fractions import Fraction

import pytest

from sparkjet.time import MAX, MIN
from tests.conformance.notation import call, integer, show, split, tokens, value
from tests.conformance.verdicts import NotationError


@pytest.mark.parametrize(
    "text",
    ["e(a,0,1) w(4) end", "e(a,0,1);w(4);end", "e(a,0,1)<br>w(4)<br/>end", " e(a,0,1)  ;  w(4) <BR /> end ; "],
)
def test_tokens_are_separated_by_blanks_semicolons_and_breaks(text: str) -> None:
    assert tokens(text) == ["e(a,0,1)", "w(4)", "end"]


def test_tokens_with_parentheses_are_whole_and_bare_ones_are_comments() -> None:
    assert tokens("restore(win(3, 1) off=1) late = 1 (one, however many; f(x) too)") == [
        "restore(win(3, 1) off=1)",
        "late=1",
    ]


@pytest.mark.parametrize("text", ["@1 idle -> -", "@1 idle->-", "@1<br>idle ->\t-"])
def test_arrows_are_tokens(text: str) -> None:
    assert tokens(text) == ["@1", "idle", "->", "-"]


@pytest.mark.parametrize("text", ["e(a,0", "e(a,0))", ")(", "((a)"])
def test_parentheses_must_match(text: str) -> None:
    with pytest.raises(NotationError, match="parentheses"):
        split(text, " ")


@pytest.mark.parametrize(
    ("token", "name", "arguments"),
    [
        ("e(a,0,1)", "e", ("a", "0", "1")),
        ("e( a , 0 )", "e", ("a", "0")),
        ("restore(win(3,1))", "restore", ("win(3,1)",)),
        ("emit_by_frame()", "emit_by_frame", ()),
    ],
)
def test_calls(token: str, name: str, arguments: tuple[str, ...]) -> None:
    assert (call(token).name, call(token).arguments) == (name, arguments)


@pytest.mark.parametrize("token", ["e", "e(a", "(a)", "e(a)b", "e(a,,1)", "e(a,)", "1e(a)", "e(a)f(b)x"])
def test_a_token_that_is_not_a_call(token: str) -> None:
    with pytest.raises(NotationError):
        call(token)


def test_arguments_are_counted() -> None:
    assert call("e(a,0)").take(2, 3) == ("a", "0")
    for least, most in ((1, None), (3, 4)):
        with pytest.raises(NotationError, match=r"e\(a,0\): wrong number"):
            call("e(a,0)").take(least, most)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("7", 7),
        ("-7", -7),
        ("+7", 7),
        ("MIN", MIN),
        ("MAX", MAX),
        ("MIN5", MIN + 5),
        ("MIN+5", MIN + 5),
        ("MAX-5", MAX - 5),
        ("MAX5", MAX - 5),
    ],
)
def test_whole_numbers(text: str, number: int) -> None:
    assert integer(text) == number


@pytest.mark.parametrize("text", ["", "-", "x", "1.5", "MINUS", "MIN 5", "--1", "1 2", "IDLE", "NaN"])
def test_a_token_that_is_not_a_whole_number(text: str) -> None:
    with pytest.raises(NotationError):
        integer(text)


def test_numbers_are_shown_as_they_are_written() -> None:
    assert [show(integer(text)) for text in ("MIN", "MAX", "-3")] == ["MIN", "MAX", "-3"]


def test_values_may_have_decimals() -> None:
    assert value("2.5") == value("+2.50") == Fraction(5, 2)
    assert value("-3") == -3
    assert value("1e-3") == Fraction(1, 1000)
    assert value("MIN") == MIN
    with pytest.raises(NotationError):
        value("2,5")
