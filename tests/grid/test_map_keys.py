"""Keys of maps: different keys have different texts, the same ones as in what Arrow has stored."""

from __future__ import annotations

from datetime import date, datetime, timedelta, timezone
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkjet_grid.errors import AnalysisError
from sparkjet_grid.map_keys import key_of, kind_of, text_of, texts_of, texts_of_keys

MOMENTS = st.datetimes(datetime(1, 1, 3), datetime(9999, 12, 28)).map(lambda each: each.replace(tzinfo=timezone.utc))
VALUES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "integer": (pa.int64(), st.integers(-(1 << 63), (1 << 63) - 1)),
    "text": (pa.string(), st.text(max_size=5)),
    "boolean": (pa.bool_(), st.booleans()),
    "date": (pa.date32(), st.dates()),
    "moment": (pa.timestamp("us", "UTC"), MOMENTS),
}
KINDS = tuple(VALUES)
ROW = st.tuples(*(values for _, values in VALUES.values()))


@given(st.lists(ROW, max_size=3))
def test_what_is_asked_for_has_the_text_of_what_is_stored(rows: list[tuple[Any, ...]]) -> None:
    columns = [pa.array([row[place] for row in rows], kind) for place, (kind, _) in enumerate(VALUES.values())]
    assert texts_of(columns) == texts_of_keys(rows, KINDS) == [text_of(row, KINDS) for row in rows]


@given(st.tuples(st.text(max_size=4), st.text(max_size=4)), st.tuples(st.text(max_size=4), st.text(max_size=4)))
def test_two_keys_have_two_texts(one: tuple[str, str], other: tuple[str, str]) -> None:
    assert (text_of(one, ["text", "text"]) == text_of(other, ["text", "text"])) == (one == other)


def test_a_stored_key_that_is_not_text_is_refused_by_name() -> None:
    """Spark makes such text of bytes: the task that looked for its change ended with a traceback."""
    column = pa.array([b"a", b"\xff"], pa.binary()).view(pa.string())
    with pytest.raises(AnalysisError, match=r"key: b'\\xff' is not Unicode text: it is not in UTF-8"):
        texts_of([column])


def test_a_moment_is_the_same_in_every_zone() -> None:
    here = datetime(2026, 3, 1, 12, tzinfo=timezone(timedelta(hours=2)))
    assert text_of([here], ["moment"]) == text_of([here.astimezone(timezone.utc)], ["moment"])


@pytest.mark.parametrize(
    ("key", "kinds", "said"),
    [
        (("a", "b"), ["text"], "has 2 values"),
        ((1,), ["text"], "1 is int, and the map's key is a str"),
        ((True,), ["integer"], "True is bool, and the map's key is an int"),
        ((None,), ["text"], "None is NoneType"),
        (("a\udcff",), ["text"], r"'a\\udcff' is not Unicode text"),
        ((datetime(2026, 3, 1),), ["moment"], "a datetime with a time zone"),
        ((datetime(2026, 3, 1),), ["date"], "the map's key is a date"),
    ],
)
def test_a_key_of_another_type_is_refused_by_name(key: tuple[object, ...], kinds: list[str], said: str) -> None:
    with pytest.raises(AnalysisError, match=said):
        texts_of_keys([("x",) if kinds == ["text"] else (0,), key], kinds)


@pytest.mark.parametrize("given", [["a", None], ["a", ["b"]], ["a", {"b": 1}], "ab", {"a": 1, "b": 2}, 1])
def test_what_is_not_a_list_of_values_is_not_a_key(given: object) -> None:
    """As texts no row has them, and the answer would be that there is none."""
    with pytest.raises(ValueError, match="is not a list of values"):
        key_of(given, ["text", "text"])


def test_only_types_with_one_text_can_be_keys() -> None:
    assert [kind_of(kind) for kind, _ in VALUES.values()] == list(KINDS)
    others = [pa.float64(), pa.decimal128(10, 2), pa.binary(), pa.timestamp("us"), pa.list_(pa.int64())]
    assert [kind_of(kind) for kind in others] == [None] * len(others)
    assert text_of([date(1970, 1, 2)], ["date"]) == "1:1"
