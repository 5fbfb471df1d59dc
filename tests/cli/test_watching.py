"""``python -m sparkjet top`` and ``page``: from records, and from the page of a driver."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from urllib.parse import quote

import msgspec
import pytest
from rich.console import Console

from sparkjet.cli import main, watching
from sparkjet.cli.watching import screen
from sparkjet.clock import ManualClock
from sparkjet.engine.progress_report import SinkReport
from sparkjet.monitoring import Run, Runs
from sparkjet.monitoring.open_pages import open_pages
from sparkjet.monitoring.page import Page
from sparkjet.monitoring.recorded import RecordedRun
from sparkjet.monitoring.view import details, sentence
from sparkjet.snapshots import DirectoryStore
from sparkjet.snapshots.record import EpochKind, Record, SparkPosition
from sparkjet.snapshots.record_log import RecordLog
from sparkjet.storage.posix_directory import PosixDirectory
from sparkjet.time import InputTracker, SubstreamTracker, limiting_lag
from tests.monitoring.reports import NOW, SECOND, report, substream


@pytest.fixture
def home(tmp_path: Path) -> Path:
    tracker = InputTracker({"": SubstreamTracker(limiting_lag(0))})
    for name, behind in (("a", 90), ("b", 30)):
        tracker.report(name, NOW - behind * SECOND, NOW)
    tracker.advance(NOW)
    said = {"reader": "r", "held": {"b": 60 * SECOND}, "slowest": "a"}
    offset = {"source": "s", "offsets": {"a": 1, "b": 1}, "watermarks": {}, "alignment": said}
    record = Record(
        kind=EpochKind.BATCH,
        query="q",
        takeover=0,
        run="r",
        epoch=7,
        fingerprint={},
        clock=NOW,
        watermarks=tracker.snapshot(),
        stages={},
        early_at={},
        spark=SparkPosition(0, {"offsets/0": f"v1\n{{}}\n{json.dumps(offset)}"}, {}),
        transactions=[],
    )
    store = DirectoryStore(PosixDirectory(tmp_path / "snapshots"))
    store.open("checkpointLocation")
    RecordLog(store).append(0, record)
    RecordLog(store).append(1, msgspec.structs.replace(record, epoch=8))
    return tmp_path


def shown(*runs: Run) -> str:
    console = Console(width=120, record=True, file=open(os.devnull, "w"))  # noqa: SIM115, PTH123 - recorded instead
    with console.file:
        console.print(screen([details(run, NOW) for run in runs]))
        return console.export_text()


def test_a_screen_has_a_sentence_and_a_line_for_each_substream() -> None:
    run = Run("query", "run", "flights", NOW)
    known = {"[red]a": substream(NOW - 252 * SECOND, holds=True), "b": substream(NOW), "c": substream(None, idle=True)}
    known["d"] = substream(NOW, held=(252 * SECOND, "[red]a"))
    known |= {f"p{i}": substream(NOW) for i in range(50)}
    run.history.add(report(3, known, late=1234, sinks=[SinkReport("results", 7, {"epoch": 3})]), NOW)
    text = shown(run, Run("query", "other", "new", NOW))
    assert "“[red]a” holds the stream back by 4 min 12 s." in text
    assert "epoch 3 · late rows 1,234 · without event time 0 · rows of state 5 · aggregate 40 ms  commit 7 ms" in text
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert "[red]a 4 min 12 s is waited for 0 0" in lines
    assert "d 0.0 s waits, 4 min 12 s ahead of [red]a 0 0" in lines
    assert "and 34 more, idle or less far behind" in lines
    assert "no epoch yet" in lines


def test_names_do_not_move_the_cursor() -> None:
    run = Run("query", "run", "q\x1b[2J", NOW)
    run.history.add(report(3, {"é\x1b]52;c;eA\x1b\\": substream(NOW)}), NOW)
    text = shown(run)
    assert "\x1b" not in text
    assert "é\\x1b]52;c;eA\\x1b\\" in text


def test_top_of_a_home(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top", str(home), "--json"]) == 0
    (run,) = json.loads(capsys.readouterr().out)
    assert (run["epoch"], run["state"]) == (8, "recorded")
    assert run["sentence"].startswith("“a” holds the stream back by 1 min. 1 substream ahead of it waits")
    assert [(each["heldBack"], each["heldBy"]) for each in run["substreams"]] == [(None, None), (60 * SECOND, "a")]
    assert main(["top", str(home), "--once"]) == 0
    assert "“a” holds the stream back by 1 min." in capsys.readouterr().out


def test_the_password_of_a_home_is_not_shown(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Remote(PosixDirectory):
        def __str__(self) -> str:
            return "hdfs://ann:pw@nn/home"

    monkeypatch.setattr(watching, "home_at", lambda *_: Remote(home))
    assert main(["top", "hdfs://ann:pw@nn/home", "--json"]) == 0
    told = capsys.readouterr().out
    (run,) = json.loads(told)
    assert (run["name"], run["run"], "pw" in told) == ("hdfs://nn/home", "hdfs%3A//nn/home", False)


def test_records_that_cannot_be_read_are_reported_and_tried_again(home: Path) -> None:
    store = DirectoryStore(PosixDirectory(home / "snapshots"))
    log = RecordLog(store)
    recorded = RecordedRun(log, "home", NOW)
    assert recorded.look()
    record = log.newest()
    assert record is not None
    store.put(2, b"of a later version")
    assert not recorded.look()
    assert sentence(recorded.run, NOW)[0].startswith("The records cannot be read. RecoveryError: ")
    log.append(3, record[1])
    assert recorded.look()
    assert sentence(recorded.run, NOW)[0].startswith("“a” holds")


def test_top_of_a_page(capsys: pytest.CaptureFixture[str]) -> None:
    runs, run = Runs(), Run("query", "a run/1", "flights", NOW)
    run.history.add(report(3, {"a": substream(NOW)}), NOW)
    runs.add(run)
    page = Page(token="known", runs=runs, clock=ManualClock(NOW))
    try:
        assert main(["top", page.url, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)[0]["name"] == "flights"
        # Its user needs no token, nor the address.
        for given in ([page.address], []):
            assert main(["top", *given, "--json"]) == 0
            assert "flights" in {each["name"] for each in json.loads(capsys.readouterr().out)}
        assert main(["page", "--json"]) == 0
        assert page.url in {each["url"] for each in json.loads(capsys.readouterr().out)}
        assert main(["top", page.address.replace("127.0.0.1", "localhost"), "--json"]) == 1
        assert "401" in capsys.readouterr().err
    finally:
        page.stop()
    assert main(["top", page.url, "--json"]) == 1
    assert "Give what query.page() prints" in capsys.readouterr().err


def test_a_driver_that_has_ended_does_not_hide_the_others(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = Runs()
    runs.add(Run("query", "run", "flights", NOW))
    pages = [Page(runs=runs, clock=ManualClock(NOW)) for _ in range(2)]
    ours = {page.url for page in pages}
    monkeypatch.setattr(watching, "open_pages", lambda: [each for each in open_pages() if each.url in ours])
    shown: list[list[str]] = []

    def looked(found: list[dict[str, str]]) -> str:
        shown.append([each["name"] for each in found])
        pages.pop().stop()
        return ""

    monkeypatch.setattr(watching, "screen", looked)
    monkeypatch.setattr(watching, "LOOK_SECONDS", 0)
    assert main(["top"]) == 1
    assert shown == [["flights"] * 2, ["flights"]]
    assert "No page of this user is open" in capsys.readouterr().err


def test_the_token_goes_to_the_page_and_nowhere_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str | None] = []

    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.headers["Authorization"])
            self.send_response(302)
            self.send_header("Location", f"http://localhost:{self.server.server_port}/elsewhere")  # type: ignore[attr-defined]
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Nothing."""

    (tmp_path / "token").write_text("known\n")
    with HTTPServer(("127.0.0.1", 0), Answers) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        page = Page(token="known", clock=ManualClock(NOW))
        # As companies set it, for all addresses.
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{server.server_port}")
        monkeypatch.delenv("no_proxy", raising=False)
        try:
            assert main(["top", page.address, "--json"]) == 0
            monkeypatch.setattr(watching, "open_pages", list)
            assert main(["top", page.address, "--token-file", str(tmp_path / "token"), "--json"]) == 0
            assert asked == []
            assert main(["top", f"http://127.0.0.1:{server.server_port}/#token=known", "--json"]) == 1
        finally:
            page.stop()
            server.shutdown()
            serving.join()
    assert asked[0] == "Bearer known"
    assert set(asked[1:]) == {None}
    capsys.readouterr()


@pytest.mark.parametrize(
    "address", ["http://127.0.0.1:port/", "http://[::1/#token=secret", "http://[::1/?token=secret", "http:///"]
)
def test_a_malformed_address_is_refused(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top", address, "--json"]) == 1
    error = capsys.readouterr().err
    assert ("Give what query.page() prints" in error, "secret" in error) == (True, False)


def test_what_is_not_a_home_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for command in ("top", "page"):
        assert main([command, str(tmp_path)]) == 1
        assert "contains no record of a query" in capsys.readouterr().err


def test_a_page_of_a_home_until_ctrl_c(home: Path) -> None:
    command = [sys.executable, "-m", "sparkjet", "page", "."]
    odd = os.fsencode(home) + b"\xff\nhome"
    home.rename(os.fsdecode(odd))
    with subprocess.Popen(command, cwd=odd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        address, _, token = process.stdout.readline().split()[0].partition("#token=")
        request = urllib.request.Request(f"{address}runs", headers={"Authorization": f"Bearer {token}"})  # noqa: S310
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310 - loopback
            (run,) = json.loads(answer.read())
        request.full_url = f"{address}runs/{quote(run['run'])}"
        with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310 - loopback
            assert json.loads(answer.read())["epoch"] == 8
        assert run["name"] == "."
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, "")


def test_top_in_a_pipe_tells_how_it_is_each_second(home: Path) -> None:
    command = [sys.executable, "-m", "sparkjet", "top", str(home)]
    # Of pytest's workers, for its own lines.
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == f"{home}  recorded\n"
        # As head does, which has seen enough.
        process.stdout.close()
        assert process.stderr is not None
        assert (process.wait(60), process.stderr.read()) == (1, "")


def test_a_full_output_is_reported_in_a_line(home: Path) -> None:
    command = [sys.executable, "-m", "sparkjet", "top", str(home), "--once"]
    with Path("/dev/full").open("wb") as full:
        ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (1, "sparkjet: [Errno 28] No space left on device\n")


def test_letters_that_the_terminal_does_not_have_are_escaped(home: Path) -> None:
    command = [sys.executable, "-m", "sparkjet", "top", str(home), "--once"]
    ended = subprocess.run(command, env=os.environ | {"PYTHONIOENCODING": "ascii"}, capture_output=True, check=False)
    assert (ended.returncode, b"\\u201ca\\u201d holds the stream back" in ended.stdout) == (0, True), ended.stderr


def test_another_server_is_not_a_page(capsys: pytest.CaptureFixture[str]) -> None:
    class Answers(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b'{"status": "ok"}')

        def log_message(self, format: str, *args: object) -> None:
            """Nothing."""

    with HTTPServer(("127.0.0.1", 0), Answers) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        try:
            assert main(["top", f"http://127.0.0.1:{server.server_port}/", "--json"]) == 1
        finally:
            server.shutdown()
            serving.join()
    assert "Give what query.page() prints" in capsys.readouterr().err
