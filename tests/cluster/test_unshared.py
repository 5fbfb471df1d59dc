"""Paths that the executors do not share: no epoch is decided whose files the driver cannot see."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.unshared import FORMATS, LATER, PLACES, SHORT
from tests.feed import Feed, rows
from tests.servers.spark import NAMESPACE

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.crash, pytest.mark.timeout(1800)]

JAVA = """#!/bin/sh
# The executors' Java: mounts an empty file system over what this executor is not to share.
java={java} id= before=
for argument in "$@"; do
    [ "$before" = --executor-id ] && id=$argument
    before=$argument
done
case "$id" in
0) hidden="{root}/both" ;;
1) hidden="{root}/both {root}/one" ;;
2) hidden="{root}/{later}" ;;
*) hidden= ;;
esac
export hidden java
exec {namespace} sh -c 'for path in $hidden; do mount -t tmpfs tmpfs "$path" || exit; done; exec "$java" "$@"' sh "$@"
"""
EVENTS = 6 * 8


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Directories, some of which the executors do not share, and input for a query."""
    allowed = subprocess.run([*NAMESPACE, "true"], capture_output=True, text=True, check=False)
    assert allowed.returncode == 0, f"a mount namespace of its own is needed: {allowed.stderr}"
    root = tmp_path_factory.mktemp("unshared")
    for name in (*PLACES, LATER):
        (root / name).mkdir()
    feed = Feed(root / "shared" / "in")
    for batch in range(6):
        feed.add(*rows([batch * 10 + n for n in range(8)], p="a", k="x", v=1))
    java = root / "java" / "bin" / "java"
    java.parent.mkdir(parents=True)
    found = shutil.which("java", path=f"{os.environ.get('JAVA_HOME', '')}/bin{os.pathsep}{os.environ['PATH']}")
    assert found is not None
    java.write_text(JAVA.format(java=found, root=root, later=LATER, namespace=" ".join(NAMESPACE)))
    java.chmod(0o755)
    return root


def run(root: Path, what: str) -> dict[str, Any]:
    """Run the driver; returns its report."""
    command = [sys.executable, "-m", "tests.cluster.unshared", str(root), what]
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    with (root / "driver.log").open("wb") as log:
        status = subprocess.run(
            command, cwd=ROOT, env={**os.environ, "PYTHONPATH": path}, stdout=log, stderr=log, check=False
        ).returncode
    assert status == 0, (root / "driver.log").read_text()[-8000:]
    report: dict[str, Any] = json.loads((root / "report.json").read_text())
    return report


@pytest.fixture(scope="module")
def report(places: Path) -> dict[str, Any]:
    """The outcome of the cases of CI, all in one application."""
    return run(places, "short")


def test_no_writer_relies_on_files_that_the_driver_cannot_see(places: Path, report: dict[str, Any]) -> None:
    """Even if the check before the start did not find it: an executor may join later."""
    assert len(report["writers"]) == 3 * 6
    for case, (error, text) in report["writers"].items():
        name, place = case.split()
        if place == "shared":
            assert error == "", (case, text)
            assert int(text) >= 8, case
        else:
            assert error == ("StorageError" if name == "delta" else "SinkError"), (case, text)
            assert f"{places}/{place}/direct" in text, case
            assert "hosts" in text, case
            # The JSON files are in directories by a column of three values.
            files = 24 if name == "json" else 8
            assert f" of {files} files" in text, (case, text)
            assert (f"{files} of {files} files" in text) == (place == "both"), (case, text)


def check_refused(places: Path, starts: dict[str, list[str]]) -> None:
    """Every start was refused with the option, the path and the remedy."""
    for case, (error, text) in starts.items():
        _, option, place = case.split()
        assert error == "AnalysisError", (case, text)
        assert text.startswith(
            "[SPARKJET_ANALYSIS] " + ("checkpointLocation is missing" if option == "nowhere" else f"{option}: ")
        ), (case, text)
        assert f"{places}/{place}" in text, case
        assert "under the same path" in text, case


def test_a_query_is_refused_before_it_starts_and_leaves_nothing(places: Path, report: dict[str, Any]) -> None:
    assert len(report["starts"]) == len(SHORT) + 1
    check_refused(places, report["starts"])
    assert report["left"] == []


@pytest.mark.long
def test_an_executor_that_joins_later_with_another_directory_ends_the_query(places: Path) -> None:
    """The query continues once that executor is gone: exactly once."""
    joined = run(places, "joined")["joined"]
    error, text = joined["ended"]
    assert error == "SinkError", text
    assert f"{places}/{LATER}/out" in text
    assert joined["after"] == EVENTS


@pytest.mark.long
def test_every_format_and_option_is_refused(places: Path) -> None:
    starts = run(places, "long")["starts"]
    assert len(starts) == 2 * (2 * len(FORMATS) + 2) + 1
    check_refused(places, starts)
