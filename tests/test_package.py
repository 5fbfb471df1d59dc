"""``import sparkjet``: what it gives is imported on use, and packages below it without the rest."""

from __future__ import annotations

import ast
import re
import subprocess
import sys

import pytest
from hatchling.metadata.core import ProjectMetadata

import sparkjet as sj
from sparkjet.snapshots.record import FORMAT, STEPS
from tests.wheels import GRID, ROOT

WITHOUT_PYSPARK = """
import sys
sys.modules["pyspark"] = None
from sparkjet import errors, cli
import sparkjet
print(errors.__name__, cli.__name__, sparkjet.cli is cli, hasattr(sparkjet, "__wrapped__"))
print(sorted({name.split(".")[1] for name in sys.modules if name.startswith("sparkjet.")}))
try:
    sparkjet.stream
except ModuleNotFoundError as error:
    print(error)
"""

WITHOUT_GRID = """
import importlib, pkgutil, sys
class Refused:
    def find_spec(self, name, path=None, target=None):
        if name == "sparkjet_grid":
            raise ModuleNotFoundError("no grid", name=name)
sys.meta_path.insert(0, Refused())
import sparkjet as sj
from sparkjet import cli
from sparkjet.storage.schemes import directory_at

wanting = []
for module in pkgutil.walk_packages(sj.__path__, "sparkjet."):
    if module.name != "sparkjet.__main__":
        try:
            importlib.import_module(module.name)
        except ModuleNotFoundError as error:
            wanting.append((module.name.removeprefix("sparkjet."), error.name))
print(sorted({error for _, error in wanting}))
print(sorted(name for name, _ in wanting))
print(callable(sj.stream), issubclass(sj.StorageError, sj.SparkjetError), cli.main(["grid", "status"]))
try:
    directory_at("grid://10.0.0.1:5710/orders", "snapshotStore", None)
except sj.AnalysisError as error:
    print(error)
"""


def run(program: str) -> list[str]:
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert found.stderr == ""
    return found.stdout.splitlines()


def test_packages_are_imported_where_there_is_no_pyspark() -> None:
    first, packages, error = run(WITHOUT_PYSPARK)
    assert first == "sparkjet.errors sparkjet.cli True False"
    assert packages == "['cli', 'errors', 'platforms']"
    assert "pyspark" in error


def test_sparkjet_is_imported_where_there_is_no_grid_and_says_how_to_install_it() -> None:
    found = subprocess.run([sys.executable, "-c", WITHOUT_GRID], capture_output=True, text=True, check=False)
    missing, wanting, works, error = found.stdout.splitlines() or [found.stderr] * 4
    assert missing == "['sparkjet_grid']"
    rooms = {name.rpartition(".")[0]: None for name in ast.literal_eval(wanting) if "grid" not in name}
    assert rooms == {}, wanting
    assert works == "True True 1"
    assert error.endswith('snapshotStore: grid: needs sparkjet_grid: pip install "sparkjet[grid]".')
    assert 'pip install "sparkjet[grid]"' in found.stderr


def test_the_grid_is_a_distribution_of_the_same_version_that_lists_what_it_imports() -> None:
    own, grid = (ProjectMetadata(str(folder), None).core for folder in (ROOT, GRID))
    assert f"sparkjet-grid=={grid.version}" in own.optional_dependencies["grid"]
    assert grid.version == own.version
    for same in ("LICENSE", "NOTICE"):
        assert (GRID / same).read_bytes() == (ROOT / same).read_bytes()
    nodes = [node for path in GRID.glob("*.py") for node in ast.walk(ast.parse(path.read_text()))]
    names = {each.name for node in nodes if isinstance(node, ast.Import) for each in node.names}
    names |= {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    imported = {name.partition(".")[0] for name in names} - {"sparkjet_grid", *sys.stdlib_module_names}
    required = {re.split("[^a-z-]", each)[0].replace("-", "_") for each in grid.dependencies}
    assert imported == required


def test_the_page_says_which_version_writes_and_reads_which_records() -> None:
    """A patch must not raise the format, and what a page promises to read must have a way to be read."""
    page = (ROOT / "docs" / "guide" / "releases.md").read_text()
    found = re.findall(r"^\| (\d+) \| (\d+\.\d+) \| (\d+\.\d+) and later \|$", page, re.MULTILINE)
    formats = [int(number) for number, _, _ in found]
    assert formats == list(range(formats[0], FORMAT + 1)), "each format since the first that was released has a row"
    assert min(STEPS, default=FORMAT) == formats[0], "the oldest one can still be read"
    assert all((ROOT / "tests" / "snapshots" / "homes" / f"format-{number}").is_dir() for number in formats)
    writers = [tuple(map(int, writer.split("."))) for _, writer, _ in found]
    assert writers == sorted(set(writers)), "one format a minor release"
    version = ProjectMetadata(str(ROOT), None).core.version
    assert writers[-1] <= tuple(map(int, version.split(".")[:2])), "it is written by a release that there is"


def test_packages_are_there_without_their_own_import() -> None:
    assert run(
        "import sparkjet as sj; print(sj.functions.__name__, callable(sj.functions.top_n), callable(sj.stream))"
    ) == ["sparkjet.functions True True"]


def test_all_names_are_imported_and_shown() -> None:
    told = run(
        "from sparkjet import *; import sparkjet; print(callable(stream), {*sparkjet.__all__} <= {*dir(sparkjet)})"
    )
    assert told == ["True True"]


def test_an_unknown_name_is_refused_by_python_and_by_tools() -> None:
    with pytest.raises(AttributeError, match=r"^module 'sparkjet' has no attribute 'streem'$"):
        _ = sj.streem  # type: ignore[attr-defined]
