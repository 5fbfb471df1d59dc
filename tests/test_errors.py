"""The conditions of errors: each class has one of its own, and the page lists all with their way out."""

from __future__ import annotations

import importlib
import pickle
import pkgutil
import re
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest

import sparkjet
import sparkjet_grid
from sparkjet.errors import AnalysisError, SinkError, SparkjetError, StorageError
from sparkjet_grid import errors
from sparkjet_grid.errors import FallenBehindError, QuorumLostError

PAGE = Path(__file__).parents[1] / "docs" / "operations" / "runbook.md"
ROW = re.compile(r"\| `(\w+(?:\.\w+)?)` \| `(\w+)` \| ([^|]+) \| ([^|]+) \|")


def classes() -> Iterator[type[BaseException]]:
    """All of ours that have a condition."""
    packages = ((each.__path__, f"{each.__name__}.") for each in (sparkjet, sparkjet_grid))
    for module in chain.from_iterable(pkgutil.walk_packages(*each) for each in packages):
        if module.name == "sparkjet.__main__":
            continue
        for found in vars(importlib.import_module(module.name)).values():
            ours = isinstance(found, type) and issubclass(found, BaseException) and found.__module__ == module.name
            if ours and hasattr(found, "condition"):
                yield found


def test_each_class_has_its_own_condition_and_a_way_out_on_the_page() -> None:
    # Two of the grid's have the conditions of the classes of sparkjet that they are derived from.
    ours = [each for each in classes() if each not in {errors.AnalysisError, errors.StorageError}]
    found = sorted((vars(each).get("condition", "none"), each.__name__) for each in ours)
    listed = [match.groups() for line in PAGE.read_text().splitlines() if (match := ROW.match(line))]
    assert sorted((condition, name) for condition, name, _, _ in listed) == found
    assert len({condition for condition, _ in found}) == len(found)
    assert all(re.fullmatch(r"SPARKJET_[A-Z_]+(\.[A-Z_]+)?", condition) for condition, _ in found)


def test_an_error_has_its_condition_in_the_message_and_as_spark_has_it() -> None:
    error = QuorumLostError("10.0.0.1 is cut off.")
    assert str(error) == "[SPARKJET_GRID.QUORUM_LOST] 10.0.0.1 is cut off."
    assert error.getCondition() == error.getErrorClass() == error.condition == "SPARKJET_GRID.QUORUM_LOST"
    assert str(pickle.loads(pickle.dumps(error))) == str(error)  # noqa: S301 - our own


def test_an_error_that_quotes_another_has_one_condition() -> None:
    quoted = SinkError(str(StorageError(f"{QuorumLostError('cut off.')} Free space.")))
    assert str(quoted) == "[SPARKJET_SINK] cut off. Free space."
    assert str(SinkError("[OTHER] is no condition of ours")) == "[SPARKJET_SINK] [OTHER] is no condition of ours"


@pytest.mark.parametrize(
    ("of_the_grid", "of_sparkjet"), [(errors.AnalysisError, AnalysisError), (QuorumLostError, StorageError)]
)
def test_a_handler_of_sparkjets_errors_catches_those_of_the_grid(
    of_the_grid: type[Exception], of_sparkjet: type[SparkjetError]
) -> None:
    with pytest.raises(of_sparkjet, match=r"^\[SPARKJET_[A-Z_.]+\] text$") as caught:
        raise of_the_grid("text")
    assert isinstance(caught.value, ValueError) == issubclass(of_sparkjet, ValueError)
    assert caught.value.getErrorClass() == caught.value.condition
    # The class stays what it is: its attributes and its condition are not lost on the way.
    assert type(pickle.loads(pickle.dumps(caught.value))) is of_the_grid  # noqa: S301 - our own


@pytest.mark.parametrize("kind", [SparkjetError, AnalysisError])
def test_an_error_without_a_text(kind: type[SparkjetError]) -> None:
    assert str(kind()) == f"[{kind.condition}] "


def test_an_error_with_attributes_comes_back_from_another_process() -> None:
    error = FallenBehindError("rows are gone", {0: 3}, {0: 5})
    found = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own
    assert (str(found), found.asked, found.first, found.rows) == (str(error), {0: 3}, {0: 5}, 2)
