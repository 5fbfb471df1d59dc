"""``python -m sparkjet doctor``: what it finds, and that it leaves nothing behind."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sparkjet.cli import doctor, main
from sparkjet.cli.doctor import (
    ADVICE,
    BAD,
    OK,
    Finding,
    disk,
    handles,
    home,
    java,
    packages,
    platform,
    postgres,
    python,
)
from sparkjet.errors import AnalysisError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def script(directory: Path, text: str) -> None:
    (directory / "bin").mkdir()
    program = directory / "bin" / "java"
    program.write_text(f"#!/bin/sh\n{text}\n")
    program.chmod(0o755)


@pytest.mark.parametrize(
    ("answer", "verdict", "told"),
    [
        ("echo 'openjdk version \"17.0.9\" 2023' >&2", OK, "Java 17 at"),
        ("echo 'openjdk version \"11.0.2\" 2019' >&2", BAD, "Java 11 at"),
        ("echo 'java version \"1.8.0_401\"' >&2", BAD, "Java 8 at"),
        ("echo 'openjdk version \"25\" 2025' >&2", ADVICE, "Java 25 at"),
        ("exit 3", BAD, "-version says: nothing"),
        ("printf '\\377' >&2", BAD, "-version says: \ufffd"),
    ],
)
def test_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str, verdict: str, told: str) -> None:
    script(tmp_path, answer)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    (found,) = java()
    assert (found.verdict, told in found.told, found.remedy is None) == (verdict, True, verdict == OK)


def test_a_java_that_cannot_be_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script(tmp_path, "")
    (tmp_path / "bin" / "java").write_bytes(b"of another machine")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    (found,) = java()
    assert (found.verdict, "cannot be started: Exec format error" in found.told, found.remedy is None) == (
        BAD,
        True,
        False,
    )


def test_no_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert [(each.verdict, "has no bin/java" in each.told) for each in java()] == [(BAD, True)]
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert [(each.verdict, each.told) for each in java()] == [(BAD, "there is no java on the PATH")]


def test_this_machine() -> None:
    assert [each.verdict for each in (*python(), *packages())] == [OK, OK, OK]
    assert all(each.verdict in {OK, ADVICE} for each in handles())


def test_a_directory_that_is_not_writable(tmp_path: Path) -> None:
    assert [each.verdict for each in disk(tmp_path / "missing", "home")] == [BAD]


def test_a_machine_without_room_for_temporary_files() -> None:
    """In a process that can write no byte to any file, as on a full disk."""
    program = (
        "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))\n"
        "from sparkjet.cli import doctor\n"
        "doctor.sys.stderr.write(str([each.verdict for each in doctor.temporary()]))"
    )
    ended = subprocess.run([sys.executable, "-c", program], stderr=subprocess.PIPE, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, "['BAD']")


def test_spark_runs_a_python_worker(spark: SparkSession) -> None:
    del spark
    (found,) = doctor.spark([])
    assert (found.verdict, f"Python {sys.version_info[0]}.{sys.version_info[1]} worker" in found.told) == (OK, True)


def test_why_spark_does_not_start_is_said_in_javas_words(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    jvm: Any = spark._jvm
    monkeypatch.setattr(doctor, "session", lambda _: jvm.java.util.ArrayList().get(0))
    (found,) = doctor.spark([])
    assert (found.verdict, "IndexOutOfBoundsException: Index 0" in found.told) == (BAD, True)
    assert "SPARK_HOME" in str(found.remedy)


def test_a_spark_that_queries_refuse_is_bad(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    # As where SPARK_HOME names another one.
    monkeypatch.setattr("sparkjet.spark_line.RELEASE", "3.9.9")
    found = [*doctor._findings("Spark", partial(doctor.spark, []))]
    assert [each.verdict for each in found] == [OK, BAD]
    assert f"PySpark is 3.9.9, and the Spark that it has started is {spark.version}" in found[1].told


def test_the_platform_is_named(spark: SparkSession, tmp_path: Path) -> None:
    (found,) = platform(str(tmp_path), [])
    assert (found.verdict, found.told) == (OK, f"a local master, Spark {spark.version}")


def test_what_does_not_work_on_a_platform_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    # Without a session: Spark has not started.
    monkeypatch.setattr(doctor, "_started", lambda: None)
    yarn = ["spark.master=yarn", "spark.app.name=x=y"]
    found = list(platform("file:/data/y/home", yarn, {"LOCAL_DIRS": "/data/y"}))
    assert [each.verdict for each in found] == [OK, BAD, ADVICE]
    assert found[1].told == "/data/y/home is in YARN's directory of this application, and is removed with it."
    assert [each.verdict for each in platform("hdfs://nn/home", yarn, {"LOCAL_DIRS": "/"})] == [OK, ADVICE]
    assert [each.verdict for each in platform(None, [], {"SPARK_REMOTE": "sc://host"})] == [OK, BAD]


def test_a_home_is_tried_and_nothing_stays(tmp_path: Path) -> None:
    place = tmp_path / "not yet" / "there"
    found = list(home(str(place), []))
    assert found[0] == Finding("home", OK, f"of two writers of one file, one wins in {place}")
    assert {each.verdict for each in found} <= {OK, ADVICE}
    assert list(tmp_path.iterdir()) == []


def test_a_server_and_one_that_is_not_there(postgres_dsn: str) -> None:
    (found,) = postgres(postgres_dsn)
    assert (found.verdict, "prepared transactions" in found.told) == (OK, True)
    (found,) = postgres("host=127.0.0.1 port=1 password=secret")
    assert (found.verdict, "secret" in str(found)) == (BAD, False)


def test_a_malformed_connection_string_is_not_quoted() -> None:
    with pytest.raises(AnalysisError, match="not a PostgreSQL connection string") as refused:
        list(postgres("postgresql//me:secret@127.0.0.1/db"))
    assert "secret" not in str(refused.value)


def test_the_exit_status_says_whether_something_is_bad(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    del spark
    assert main(["doctor", str(tmp_path)]) == 0
    assert "ok      Spark: Spark 4" in capsys.readouterr().out
    file = tmp_path / "file"
    file.touch()
    assert main(["doctor", str(file), "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert [each["subject"] for each in found if each["verdict"] == BAD] == ["home"]


def test_what_is_found_does_not_move_the_cursor_nor_has_passwords(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def looked() -> Iterator[Finding]:
        yield Finding("Java", BAD, "says \x1b[2J\nhdfs://ann:pw@nn/x", "none")

    for check in ("python", "packages", "java", "handles", "temporary"):
        monkeypatch.setattr(doctor, check, looked)
    monkeypatch.setattr(doctor, "spark", lambda _: looked())
    assert main(["doctor"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == ["BAD     Java: says \\x1b[2J", "        hdfs://nn/x", "        none"]


def test_a_grid_of_another_version_is_bad(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "version", {"pyspark": "4.3.0", "sparkjet": "0.1.0", "sparkjet-grid": "0.2.0"}.get)
    assert [each.verdict for each in packages()] == [OK, BAD, OK]


def test_each_extra_of_a_source_or_sink_is_looked_for() -> None:
    extras = (Path(__file__).parents[2] / "pyproject.toml").read_text().partition("[project.optional-dependencies]")[2]
    named = re.findall(r"^([a-z]+) = \[", extras.partition("[dependency-groups]")[0], re.MULTILINE)
    assert set(doctor.EXTRAS) == set(named) - {"examples", "plots"}
