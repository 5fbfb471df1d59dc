"""Wheels and source distributions of both packages, and the first steps where nothing else is installed."""

from __future__ import annotations

import json
import os
import subprocess
import tarfile
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from scripts.doc_examples import FENCE
from sparkjet_grid.access import Access, create_token
from sparkjet_grid.client import GridClient
from tests.grid.maps import MapWriter
from tests.grid.processes import MemberProcess
from tests.servers.programs import SMALL
from tests.wheels import GRID, ROOT, built, installed, link, metadata

if TYPE_CHECKING:
    from collections.abc import Mapping

FIRST_STEPS = """
import json, os, sys, tempfile
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

readme, pytest_site, tests = sys.argv[1:]
from pyspark.sql import SparkSession

spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
exec(compile(Path(readme).read_text(), readme, "exec"), {"spark": spark})
spark.stop()

from sparkjet.cli import main

said = StringIO()
with redirect_stdout(said):
    status = main(["doctor", tempfile.mkdtemp(), "--json"])
SparkSession.getActiveSession().stop()

# Only now: it brings packages that sparkjet must not need.
sys.path.append(pytest_site)
import pytest

with redirect_stdout(StringIO()) as tested:
    passed = pytest.main(["-q", "-p", "no:cacheprovider", tests])
found = {
    "doctor": [status, json.loads(said.getvalue())],
    "pytest": [passed, tested.getvalue()],
    "session": str(SparkSession.getActiveSession()),
}
print(json.dumps(found))
"""
READS = """
import sys
from importlib.util import find_spec
from sparkjet_grid.map_reader import Map

map_ = Map(sys.argv[1], "visits", token_file=sys.argv[2])
print(map_.get("k7"), map_.scan().read_all().num_rows, [find_spec(each) for each in ("pyspark", "sparkjet", "pandas")])
map_.close()
"""


def run(command: list[str], environment: Mapping[str, str] = os.environ) -> str:
    hidden = {"PYTHONPATH", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "TZ"}
    found = {name: value for name, value in environment.items() if name not in hidden}
    found["SPARK_SUBMIT_OPTS"] = " ".join(SMALL)
    # As after `activate`: workers run the first python3.
    found["PATH"] = os.pathsep.join([str(Path(command[0]).parent), found["PATH"]])
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=found)
    assert done.returncode == 0, done.stdout + done.stderr[-8000:]
    return done.stdout


def blocks(page: Path, language: str) -> list[str]:
    found = [block[0].split("\n", 1) for block in FENCE.finditer(page.read_text())]
    return [text.removesuffix("```") for fence, text in found if fence == f"```{language}"]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(ROOT, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def grid_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(GRID, tmp_path_factory.mktemp("grid-wheel"))


@pytest.mark.parametrize(("project", "name"), [(ROOT, "wheel"), (GRID, "grid_wheel")], ids=["sparkjet", "grid"])
def test_a_source_distribution_builds_the_same_wheel(
    project: Path, name: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    with tarfile.open(built(project, tmp_path / "sdist", "sdist")) as packed:
        packed.extractall(tmp_path, filter="data")
    (source,) = [each for each in tmp_path.iterdir() if each.name != "sdist"]
    again = built(source, tmp_path / "again")
    assert again.name == request.getfixturevalue(name).name
    assert again.read_bytes() == request.getfixturevalue(name).read_bytes()


def test_wheels_say_what_they_are(wheel: Path, grid_wheel: Path) -> None:
    for each, package in ((wheel, "sparkjet"), (grid_wheel, "sparkjet_grid")):
        said = metadata(each)
        assert said["License-Expression"] == "Apache-2.0"
        assert said.get_all("License-File") == ["LICENSE", "NOTICE"]
        assert said["Description-Content-Type"] == "text/markdown"
        assert len(str(said.get_payload())) > 500
        assert "Typing :: Typed" in said.get_all("Classifier", [])
        names = zipfile.ZipFile(each).namelist()
        assert f"{package}/py.typed" in names
        assert {name.split("/")[0] for name in names} == {package, f"{package}-{said['Version']}.dist-info"}
    # The page is in files of its own.
    assert any(name.startswith("sparkjet/monitoring/static/") for name in zipfile.ZipFile(wheel).namelist())


# A fresh environment is installed for it.
@pytest.mark.crash
@pytest.mark.spark
def test_the_first_steps_need_nothing_but_the_wheel(wheel: Path, tmp_path: Path) -> None:
    python = installed(wheel, tmp_path / "env")
    (tmp_path / "pytest").mkdir()
    link(["pytest"], tmp_path / "pytest")
    (tmp_path / "job").mkdir()
    for name, language in (("loads.py", "python no-run"), ("test_loads.py", "python test")):
        (text,) = blocks(ROOT / "docs" / "guide" / "testing.md", language)
        (tmp_path / "job" / name).write_text(text)
    (tmp_path / "readme.py").write_text(blocks(ROOT / "README.md", "python")[0])
    (tmp_path / "steps.py").write_text(FIRST_STEPS)
    arguments = [str(tmp_path / name) for name in ("steps.py", "readme.py", "pytest", "job")]
    found = json.loads(run([str(python), *arguments]).splitlines()[-1])
    status, findings = found["doctor"]
    assert (status, [each for each in findings if each["verdict"] == "BAD"]) == (0, [])
    assert "a local master" in str(findings)
    passed, said = found["pytest"]
    assert (passed, "4 passed" in said) == (0, True), said
    assert found["session"] == "None"
    assert "doctor" in run([str(python.parent / "sparkjet"), "--help"])


def test_a_map_is_read_where_there_is_nothing_but_the_grids_wheel(grid_wheel: Path, tmp_path: Path) -> None:
    python = installed(grid_wheel, tmp_path / "env")
    create_token(tmp_path / "token")
    with MemberProcess(tmp_path, tmp_path / "token") as member:
        client = GridClient([member.address], Access(str(tmp_path / "token")))
        MapWriter(client, "visits").write(3, {f"k{n}": n for n in range(10)})
        client.close()
        found = run([str(python), "-c", READS, f"grid://{member.address}", str(tmp_path / "token")])
    assert found == "{'k': 'k7', 'n': 7} 10 [None, None, None]\n"
