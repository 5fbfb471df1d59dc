"""``sparkjet init``: what it makes runs."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sparkjet.cli import main

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.crash
@pytest.mark.interpreted
def test_the_job_and_its_test_run(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    project = tmp_path / "new" / "project"
    assert main(["init", str(project)]) == 0
    assert f"Next: cd {project} && make run && make test" in capsys.readouterr().out
    monkeypatch.syspath_prepend(str(project))
    job = runpy.run_path(str(project / "job.py"))
    job["main"]()
    assert "|{2026-01-01 12:00:00, 2026-01-01 12:01:00}|south|35  |" in capsys.readouterr().out
    runpy.run_path(str(project / "test_job.py"))["test_a_window_waits_for_the_site_that_lags"](spark)
    del sys.modules["job"]


def test_a_directory_with_files_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine").touch()
    assert main(["init", str(tmp_path)]) == 1
    assert "is not empty. Name a directory that is new." in capsys.readouterr().err
    assert [each.name for each in tmp_path.iterdir()] == ["mine"]
    assert main(["init", str(tmp_path / "mine")]) == 1
    assert "cannot be written: File exists" in capsys.readouterr().err


def test_what_is_next_can_be_pasted_into_a_shell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    project = tmp_path / "my project"
    assert main(["init", str(project)]) == 0
    assert f"Next: cd '{project}' && make run && make test" in capsys.readouterr().out
