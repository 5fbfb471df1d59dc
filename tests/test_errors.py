"""The conditions of errors: each class has one of its own, and the page lists all with their way out."""

from __future__ import annotations

import importlib
import pickle
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import sparkjet
from sparkjet.errors import AnalysisError, SinkError, SparkjetError, StorageError
from sparkjet_grid.errors import FallenBehindError, QuorumLostError

PAGE = Path(__file__).parents[1] / "docs" / "guide" / "errors.md"
ROW = re.compile(r"\| `(\w+(?:\.\w+)?)` \| `(\w+)` \| ([^|]+) \| ([^|]+) \|")


def classes() -> Iterator[type[BaseException]]:
    """All of ours that have a condition."""
    for module in pkgutil.walk_packages(sparkjet.__path__, "sparkjet."):
        if module.name == "sparkjet.__main__":
            continue
        for found in vars(importlib.import_module(module.name)).values():
            ours = isinstance(found, type) and issubclass(found, BaseException) and found.__module__ == module.name
            if ours and hasattr(found, "condition"):
                yield found


def test_each_class_has_a_condition_of_its_own_and_a_way_out_on_the_page() -> None:
    found = sorted((vars(each).get("condition", "none"), each.__name__) for each in classes())
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


@pytest.mark.parametrize("kind", [SparkjetError, AnalysisError])
def test_an_error_without_a_text(kind: type[SparkjetError]) -> None:
    assert str(kind()) == f"[{kind.condition}] "


def test_an_error_with_attributes_comes_back_from_another_process() -> None:
    error = FallenBehindError("rows are gone", {0: 3}, {0: 5})
    found = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own
    assert (str(found), found.asked, found.first, found.rows) == (str(error), {0: 3}, {0: 5}, 2)
