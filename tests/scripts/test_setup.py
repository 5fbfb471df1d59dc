from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

GOOD_PYTHON = "exit 0"
OLD_PYTHON = 'case "$2" in *print*) echo 3.9 ;; *) exit 1 ;; esac'
NO_VENV_PYTHON = 'case "$2" in *ensurepip*) exit 1 ;; *print*) echo 3.12 ;; esac'
# pip is the only thing asked of the new environment's python in a run with stubs.
FAILING_PYTHON = """case "$2" in
venv) mkdir -p "$4/bin" && cp "$0" "$4/bin/python" ;;
pip) echo "{}" >&2; exit 1 ;;
esac"""


def java(version: str, before: str = "") -> str:
    return f"""echo '{before}openjdk version "{version}" 2025-04-15' >&2"""


JAVA_17 = java("17.0.15")


class Checkout:
    """A directory with the script, and a PATH that holds nothing but stubs."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.bin = home / "bin"
        self.bin.mkdir()
        (home / "scripts").mkdir()
        shutil.copy(ROOT / "scripts" / "setup.sh", home / "scripts")
        for tool in ("cat", "cp", "mkdir", "sh"):
            found = shutil.which(tool)
            assert found, tool
            (self.bin / tool).symlink_to(found)

    def stub(self, name: str, body: str, directory: str = "bin") -> Path:
        path = self.home / directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!{shutil.which('sh')}\n{body}\n")
        path.chmod(0o755)
        return path

    def run(self, *arguments: str, **environment: str) -> tuple[int, list[str]]:
        """The exit status and the lines on stderr."""
        done = subprocess.run(
            [str(self.bin / "sh"), str(self.home / "scripts" / "setup.sh"), *arguments],
            env={"PATH": str(self.bin), **environment},
            cwd="/",
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return done.returncode, done.stderr.splitlines()


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    return Checkout(tmp_path)


def refused(result: tuple[int, list[str]], *words: str) -> bool:
    """Whether exactly one message was given, with these words in it."""
    status, lines = result
    assert status == 1, result
    assert len(lines) == 1, lines
    assert lines[0].startswith("sparkjet: ")
    return all(word in lines[0] for word in words)


def test_all_is_well(checkout: Checkout) -> None:
    checkout.stub("python3", GOOD_PYTHON)
    checkout.stub("java", JAVA_17)
    assert checkout.run("--check") == (0, [])


def test_no_java(checkout: Checkout) -> None:
    checkout.stub("python3", GOOD_PYTHON)
    assert refused(checkout.run("--check"), "Java 17", "there is none", "apt-get install openjdk-17-jre-headless")


@pytest.mark.parametrize("version", ["11.0.22", "1.8.0_292", "9", "16-ea"])
def test_old_java(checkout: Checkout, version: str) -> None:
    checkout.stub("python3", GOOD_PYTHON)
    checkout.stub("java", java(version))
    assert refused(checkout.run("--check"), "Java 17", f"is {version}", "apt-get install openjdk-17-jre-headless")


@pytest.mark.parametrize("version", ["17", "17.0.15", "21-ea", "25.0.1"])
def test_new_enough_java(checkout: Checkout, version: str) -> None:
    checkout.stub("python3", GOOD_PYTHON)
    checkout.stub("java", java(version, before="Picked up JAVA_TOOL_OPTIONS: -Xmx1g\n"))
    assert checkout.run("--check") == (0, [])


def test_java_that_does_not_run(checkout: Checkout) -> None:
    checkout.stub("python3", GOOD_PYTHON)
    checkout.stub("java", "echo 'Unable to locate a Java Runtime.' >&2; exit 1")
    assert refused(checkout.run("--check"), "does not run", "apt-get install openjdk-17-jre-headless")


def test_java_home_wins_over_the_path_as_it_does_in_spark(checkout: Checkout) -> None:
    checkout.stub("python3", GOOD_PYTHON)
    checkout.stub("java", JAVA_17)
    checkout.stub("java", java("11.0.22"), directory="jdk/bin")
    assert refused(checkout.run("--check", JAVA_HOME=str(checkout.home / "jdk")), "jdk/bin/java is 11.0.22")
    assert refused(checkout.run("--check", JAVA_HOME=str(checkout.home / "gone")), "JAVA_HOME", "gone", "unset it")


def test_no_python(checkout: Checkout) -> None:
    checkout.stub("java", JAVA_17)
    assert refused(checkout.run("--check"), "Python 3.10", "apt-get install python3 python3-venv")


def test_old_python(checkout: Checkout) -> None:
    checkout.stub("java", JAVA_17)
    checkout.stub("python3", OLD_PYTHON)
    assert refused(checkout.run("--check"), "Python 3.10", "python3 is 3.9")
    checkout.stub("python3.11", GOOD_PYTHON)
    assert checkout.run("--check") == (0, [])


def test_python_named_by_the_user(checkout: Checkout) -> None:
    checkout.stub("java", JAVA_17)
    checkout.stub("python3", GOOD_PYTHON)
    old = checkout.stub("old", OLD_PYTHON)
    assert refused(checkout.run("--check", PYTHON=str(old)), "PYTHON=", "is Python 3.9", "unset it")
    assert refused(checkout.run("--check", PYTHON="no-such-python"), "PYTHON=no-such-python", "no Python that runs")
    assert checkout.run("--check", PYTHON=sys.executable) == (0, [])


def test_python_without_venv(checkout: Checkout) -> None:
    checkout.stub("java", JAVA_17)
    checkout.stub("python3", NO_VENV_PYTHON)
    assert refused(checkout.run("--check"), "apt-get install python3-venv", "python3.12-venv")


def test_everything_missing_is_named_at_once(checkout: Checkout) -> None:
    checkout.stub("python3", NO_VENV_PYTHON)
    checkout.stub("java", java("11.0.22"))
    status, lines = checkout.run()
    assert status == 1
    assert len(lines) == 2
    assert "python3-venv" in lines[0]
    assert "11.0.22" in lines[1]


def test_what_needs_no_java_does_not_ask_for_it(checkout: Checkout) -> None:
    checkout.stub("python3", NO_VENV_PYTHON)
    assert refused(checkout.run("--install"), "python3-venv")


def test_no_network(checkout: Checkout) -> None:
    checkout.stub("java", JAVA_17)
    checkout.stub("python3", FAILING_PYTHON.format("NewConnectionError: Failed to establish a new connection"))
    assert refused(checkout.run(), "is there a network?", "PIP_INDEX_URL", "PIP_FIND_LINKS")


def test_any_other_failure_shows_the_words_of_pip(checkout: Checkout) -> None:
    checkout.stub("java", JAVA_17)
    checkout.stub("python3", FAILING_PYTHON.format("error: no such file"))
    status, lines = checkout.run()
    assert status == 1
    assert lines == ["sparkjet: pip could not install the packages; its own words:", "error: no such file"]


def test_unknown_option(checkout: Checkout) -> None:
    status, lines = checkout.run("--chekc")
    assert status == 2
    assert "--chekc" in lines[0]


def test_is_executable() -> None:
    assert os.access(ROOT / "scripts" / "setup.sh", os.X_OK)
    assert os.access(ROOT / ".ci" / "run", os.X_OK)
