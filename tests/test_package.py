"""``import sparkjet``: what it gives is imported on use, and packages below it without the rest."""

from __future__ import annotations

import subprocess
import sys

import pytest

import sparkjet as sj

WITHOUT_PYSPARK = """
import sys
sys.modules["pyspark"] = None
from sparkjet import errors, grid
import sparkjet
print(errors.__name__, grid.__name__, sparkjet.grid is grid, hasattr(sparkjet, "__wrapped__"))
print(sorted({name.split(".")[1] for name in sys.modules if name.startswith("sparkjet.")}))
try:
    sparkjet.stream
except ModuleNotFoundError as error:
    print(error)
"""


def run(program: str) -> list[str]:
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert found.stderr == ""
    return found.stdout.splitlines()


def test_packages_are_imported_where_there_is_no_pyspark() -> None:
    first, packages, error = run(WITHOUT_PYSPARK)
    assert first == "sparkjet.errors sparkjet.grid True False"
    assert packages == "['errors', 'grid']"
    assert "pyspark" in error


def test_packages_are_there_without_an_import_of_their_own() -> None:
    assert run(
        "import sparkjet as sj; print(sj.functions.__name__, callable(sj.functions.top_n), callable(sj.stream))"
    ) == ["sparkjet.functions True True"]


def test_all_names_are_imported_and_shown() -> None:
    told = run(
        "from sparkjet import *; import sparkjet; print(callable(stream), {*sparkjet.__all__} <= {*dir(sparkjet)})"
    )
    assert told == ["True True"]


def test_a_name_that_is_none_is_refused_by_python_and_by_tools() -> None:
    with pytest.raises(AttributeError, match=r"^module 'sparkjet' has no attribute 'streem'$"):
        _ = sj.streem  # type: ignore[attr-defined]
