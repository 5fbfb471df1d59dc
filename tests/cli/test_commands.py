"""The command line as such: how commands end, what they say, and how fast they answer."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer.main
from typer.core import TyperGroup

from sparkjet.cli import main, snapshots
from sparkjet.cli.commands import FAILED, NOT_UNDERSTOOD, app
from sparkjet.errors import RecoveryError

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "command-line.md"
SILENT = {"run", "start"}
"""They print nothing of their own but the log."""


def commands(group: TyperGroup, *path: str) -> Iterator[tuple[tuple[str, ...], list[str]]]:
    """Each command by its path, with its options."""
    for name, each in group.commands.items():
        if isinstance(each, TyperGroup):
            yield from commands(each, *path, name)
        else:
            yield (*path, name), [option for parameter in each.params for option in parameter.opts]


def all_commands() -> dict[tuple[str, ...], list[str]]:
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    return dict(commands(group))


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "sparkjet", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **environment})


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ((), "sparkjet: Missing command."),
        (("nothing",), "sparkjet: No such command 'nothing'."),
        (("snapshots", "list"), "sparkjet snapshots list: Missing argument 'HOME'."),
        (("page", "--port", "8080"), "sparkjet page: Invalid value: --host, --port, --token and --token-file are for"),
        (("page", "--host", "0.0.0.0"), "sparkjet page: Invalid value: --host, --port"),  # noqa: S104 - refused
        (("page", "home", "--port", "many"), "sparkjet page: Invalid value for '--port':"),
        (("grid", "map", "scan", "--colour"), "sparkjet grid map scan: No such option: --colour"),
        (("txns", "home", "--dsn", "a", "--kafka", "b"), "sparkjet txns: Invalid value: --dsn and --kafka exclude"),
        (
            ("txns", "home", "--settle", "--refused", "b"),
            "sparkjet txns: Invalid value: --settle and --refused exclude",
        ),
        (("grid", "reform", "127.0.0.1:1"), "sparkjet grid reform: Invalid value: Give --others-are-dead"),
    ],
)
def test_an_unknown_command_gets_one_line(
    arguments: tuple[str, ...], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == NOT_UNDERSTOOD
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith(told)
    assert err.endswith("--help shows what there is.\n")


def test_a_failure_has_its_condition_in_json_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["snapshots", "list", str(tmp_path), "--json"]) == FAILED
    out, err = capsys.readouterr()
    assert json.loads(out)["error"]["condition"] == "SPARKJET_RECOVERY"
    assert err.startswith("sparkjet: [SPARKJET_RECOVERY] ")
    assert "contains no record of a query" in json.loads(out)["error"]["message"]


@pytest.mark.parametrize("command", [(), ("grid",), *all_commands()], ids=" ".join)
def test_what_is_not_understood_has_its_condition_in_json_too(
    command: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command, "--colour", "--json"]) == NOT_UNDERSTOOD
    out, err = capsys.readouterr()
    error = json.loads(out)["error"]
    assert error["condition"] == "SPARKJET_ANALYSIS"
    assert error["message"] == f"[SPARKJET_ANALYSIS] {err.rstrip()}"
    assert err.count("\n") == 1


def test_what_is_quoted_does_not_move_the_cursor(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top", "no\x1b[2Jhome"]) == FAILED
    assert "no\\x1b[2Jhome" in capsys.readouterr().err


def test_json_of_an_application_is_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "/no/such/program", "--json"]) == FAILED
    out, err = capsys.readouterr()
    assert (out, "cannot be started" in err) == ("", True)


def test_a_password_in_a_location_is_not_quoted(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise RecoveryError("hdfs://ann:pw@nn/x contains no record")

    monkeypatch.setattr(snapshots, "home_at", refused)
    assert main(["snapshots", "list", "hdfs://ann:pw@nn/x", "--json"]) == FAILED
    out, err = capsys.readouterr()
    assert ("hdfs://nn/x" in out, "hdfs://nn/x" in err, "pw" in out + err) == (True, True, False)


def test_whatever_prints_has_json() -> None:
    assert {path for path, options in all_commands().items() if "--json" not in options} == {
        path for path in all_commands() if path[-1] in SILENT
    }


def test_the_page_names_each_command() -> None:
    text = PAGE.read_text()
    hidden = {("snapshots", "import"), ("snapshots", "export"), ("snapshots", "list")}
    missing = [" ".join(path) for path in all_commands() if f"sparkjet {' '.join(path)}" not in text]
    assert set(missing) <= {" ".join(path) for path in hidden}


def test_help_needs_neither_spark_nor_a_terminal() -> None:
    """Nor does it load what only a command needs: it answers at once."""
    program = (
        "import sys\nfrom sparkjet.cli import main\nassert main(['top', '--help']) == 0\n"
        "loaded = {name.partition('.')[0] for name in sys.modules}\n"
        "print(sorted(loaded & {'pyspark', 'py4j', 'pyarrow', 'starlette', 'rich'}))"
    )
    narrow = {**os.environ, "COLUMNS": "40", "NO_COLOR": "1"}
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, env=narrow)
    assert found.stderr == ""
    *shown, loaded = found.stdout.splitlines()
    assert loaded == "[]"
    # Words are no longer broken below 50 columns.
    assert max(map(len, shown)) <= 50
    assert "\x1b" not in found.stdout


def test_completion_is_installed_and_completes(tmp_path: Path) -> None:
    # Otherwise it asks which shell has started it, which is none in CI.
    named = {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "true"}
    done = run("--install-completion", "bash", HOME=str(tmp_path), **named)
    assert done.returncode == 0, done.stderr
    scripts = [path.read_text() for path in tmp_path.rglob("*") if path.is_file()]
    assert any("_SPARKJET_COMPLETE=complete_bash" in text for text in scripts)
    words = {"COMP_WORDS": "sparkjet gri", "COMP_CWORD": "1", "_SPARKJET_COMPLETE": "complete_bash"}
    assert run(**words).stdout.split() == ["grid"]


def test_a_token_is_in_no_help_and_no_error(tmp_path: Path) -> None:
    for arguments in (("page", "--help"), ("page", str(tmp_path)), ("page",)):
        done = run(*arguments, SPARKJET_PAGE_TOKEN="never-shown", SPARKJET_GRID_TOKEN="never-shown")
        assert "never-shown" not in done.stdout + done.stderr
    done = run("page", str(tmp_path), "--token-file", str(tmp_path / "none"))
    assert (done.returncode, 'none" cannot be read: No such file' in done.stderr) == (FAILED, True)


@pytest.mark.parametrize(
    ("package", "line"),
    [
        ("typer", "sparkjet: the command line needs typer: pip install typer"),
        ("pyspark", r"sparkjet: \[SPARKJET_ANALYSIS\] pyspark is not installed for .*: pip install .*"),
    ],
)
def test_without_what_it_needs_there_is_one_line(package: str, line: str) -> None:
    program = f"import sys\nsys.modules['{package}'] = None\nfrom sparkjet.cli import main\nsys.exit(main(['doctor']))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert re.fullmatch(f"{line}\n", done.stderr)
