from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conformance.__main__ import main

ROOT = Path(__file__).parents[2]
GOOD = "## FR. x\n| id | setup | input | expected |\n|---|---|---|---|\n| F1 | frame 4 | | 0->(0,4) |\n"
BAD = "## COA. x\n| C1 | 2 inputs | poll -> 7 |\n"
SKIP = "## SES. x\n| N1 | restarts (prose) | two watermarks | the lower one |\n"


def written(directory: Path, name: str, text: str) -> str:
    path = directory / name
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_all_passed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [written(tmp_path, "good.md", GOOD), written(tmp_path, "skip.md", SKIP)]
    assert main(files) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "F1 passed"
    assert lines[1].startswith("N1 skipped prose")
    assert lines[2:] == ["1 passed, 0 failed, 1 skipped"]


def test_one_failed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [written(tmp_path, "bad.md", BAD), written(tmp_path, "good.md", GOOD)]
    assert main(files) == 1
    assert capsys.readouterr().out.splitlines() == [
        "C1 failed poll: expected 7, got -",
        "F1 passed",
        "1 passed, 1 failed, 0 skipped",
    ]


def test_a_file_that_cannot_be_read_has_failed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing = str(tmp_path / "missing.md")
    assert main([missing, str(tmp_path), written(tmp_path, "good.md", GOOD)]) == 1
    out = capsys.readouterr().out.splitlines()
    assert out[0] == f"{missing} failed cannot be read: No such file or directory"
    assert out[-1] == "1 passed, 2 failed, 0 skipped"


def test_bytes_that_are_not_text_do_not_stop_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "bytes.md"
    path.write_bytes(b"\xff\xfe\n" + GOOD.encode() + b"| F2 | \xff | | |\n")
    assert main([str(path)]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "1 passed, 1 failed, 0 skipped"


def test_an_empty_file_has_nothing_to_fail(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([written(tmp_path, "empty.md", "")]) == 0
    assert capsys.readouterr().out == "0 passed, 0 failed, 0 skipped\n"


@pytest.mark.parametrize(("text", "status"), [(GOOD, 0), (BAD, 1)])
def test_the_command_line(tmp_path: Path, text: str, status: int) -> None:
    command = [sys.executable, "-m", "tests.conformance", written(tmp_path, "cases.md", text)]
    source = str(ROOT / "src")
    # Without Java: these cases must not start Spark.
    environment = {**os.environ, "PYTHONPATH": source, "JAVA_HOME": str(tmp_path)}
    ran = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=ROOT)
    assert (ran.returncode, ran.stderr) == (status, "")
    assert ran.stdout.splitlines()[-1] == f"{1 - status} passed, {status} failed, 0 skipped"


def test_a_file_must_be_named() -> None:
    with pytest.raises(SystemExit) as ended:
        main([])
    assert ended.value.code == 2
