"""The page: what it answers, to whom, and how it ends."""

from __future__ import annotations

import gc
import http.client
import json
import os
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparkjet.clock import ManualClock
from sparkjet.engine.progress_report import SinkReport
from sparkjet.errors import AnalysisError
from sparkjet.monitoring import Run, Runs, open_page
from sparkjet.monitoring.open_pages import open_pages
from sparkjet.monitoring.page import READERS, Page
from sparkjet_grid.errors import UnreachableError
from tests.monitoring.reports import NOW, SECOND, report, substream


def running(name: str = "flights") -> Run:
    run = Run("query", f"run of {name}/1", name, NOW - 60 * SECOND)
    run.history.add(report(1, {"<b>a</b>": substream(NOW - SECOND), "b": substream(NOW)}), NOW)
    return run


@pytest.fixture
def runs() -> Runs:
    runs = Runs()
    runs.add(running())
    return runs


@pytest.fixture
def page(runs: Runs) -> Iterator[Page]:
    page = Page(runs=runs, clock=ManualClock(NOW))
    yield page
    page.stop()


def asked(
    page: Page, path: str, *, knows: bool = True, method: str = "GET", **headers: str
) -> tuple[http.client.HTTPResponse, str]:
    """Its response, with or without the token."""
    headers |= _bearer(page) if knows else {}
    with closing(http.client.HTTPConnection("127.0.0.1", page.port, timeout=60)) as connection:
        connection.request(method, path, headers={"Connection": "close", **headers})
        answer = connection.getresponse()
        return answer, answer.read().decode()


def _bearer(page: Page) -> dict[str, str]:
    return {"Authorization": f"Bearer {page.url.partition('#token=')[2]}"}


def test_it_answers_with_the_page_and_what_the_page_asks_for(page: Page) -> None:
    for path, kind, content in (
        ("/", "text/html", "<!doctype html>"),
        ("/page.js", "text/javascript", "sessionStorage"),
        ("/page.css", "text/css", "prefers-color-scheme"),
        ("/metrics", "text/plain", 'sparkjet_up{query="flights"} 1.0'),
    ):
        answer, text = asked(page, path)
        assert (answer.status, kind in answer.headers["Content-Type"], content in text) == (200, True, True), path
    assert "script-src 'self'" in asked(page, "/")[0].headers["Content-Security-Policy"]
    (run,) = json.loads(asked(page, "/runs")[1])
    assert run["sentence"] == "“<b>a</b>” holds the stream back by 1.0 s."
    found = json.loads(asked(page, "/runs/run%20of%20flights/1")[1])
    assert [point["epoch"] for point in found["points"]] == [1]
    assert "points" not in json.loads(asked(page, "/runs/run%20of%20flights/1?points=no")[1])
    assert asked(page, "/runs/nobody")[0].status == 404
    assert asked(page, "/../page.py")[0].status == 404


def test_events_send_points_once_and_then_what_is_new(page: Page, runs: Runs) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", page.port, timeout=60)
    connection.request("GET", "/events", headers=_bearer(page))
    answer = connection.getresponse()

    def told() -> dict[str, object]:
        line = answer.readline().decode()
        assert answer.readline() == b"\n"
        found: dict[str, object] = json.loads(line.removeprefix("data: "))
        return found

    def epochs(points: object) -> list[int]:
        assert isinstance(points, list)
        return [point["epoch"] for point in points]

    assert answer.headers["X-Accel-Buffering"] == "no"
    assert epochs(told()["points"]) == [1]
    runs.all()[0].history.add(report(2), NOW + SECOND)
    seen: list[int] = []
    while not seen:
        seen = epochs(told()["more"])
    assert seen == [2]
    # With a reader who stays.
    page.stop()
    assert not page.is_open
    connection.close()


def test_points_of_a_run_that_begins_before_the_one_that_was_shown(page: Page, runs: Runs) -> None:
    """The clock was set back between the two, and the page was told of the second one before its first epoch."""
    with closing(http.client.HTTPConnection("127.0.0.1", page.port, timeout=60)) as connection:
        connection.request("GET", "/events", headers=_bearer(page))
        answer = connection.getresponse()

        def told() -> dict[str, Any]:
            line = answer.readline().decode() + answer.readline().decode()
            found: dict[str, Any] = json.loads(line.removeprefix("data: "))
            return found

        assert told()["run"]["name"] == "flights"
        second = Run("other", "second", "second", NOW - 7200 * SECOND)
        runs.add(second)
        assert told()["points"] == []
        second.history.add(report(1), NOW - 3600 * SECOND)
        assert [point["epoch"] for point in told()["more"]] == [1]


def test_a_page_that_shows_a_run_of_a_driver_before_goes_on_with_one_that_is_there(page: Page) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", page.port, timeout=60)
    connection.request("GET", "/events?run=gone", headers=_bearer(page))
    told = json.loads(connection.getresponse().readline().decode().removeprefix("data: "))
    assert told["run"]["name"] == "flights"
    connection.close()


def test_late_rows_are_looked_at_where_they_are_in_files(page: Page, runs: Runs, tmp_path: Path) -> None:
    path = "/late/run%20of%20flights/1"
    assert asked(page, path)[0].status == 404
    pq.write_table(pa.table({"v": [*range(30)], "_reason": ["late"] * 30}), tmp_path / "part 1")
    handle = {"directory": str(tmp_path), "epoch": 2, "format": "parquet", "files": [["staged", "part 1"]]}
    handle["schema"] = {"type": "struct", "fields": [{"name": "v"}, {"name": "_reason"}]}
    runs.all()[0].history.add(report(2, sinks=[SinkReport("late", 30, handle)]), NOW + SECOND)
    runs.all()[0].history.add(report(3, sinks=[SinkReport("results", 1, {"epoch": 3})]), NOW + 2 * SECOND)
    assert json.loads(asked(page, "/runs/run%20of%20flights/1")[1])["lateRowsShown"] is True
    told = json.loads(asked(page, path)[1])
    assert (told["epoch"], len(told["rows"]), told["rows"][7], told["why"]) == (
        2,
        20,
        {"v": "7", "_reason": "late"},
        None,
    )
    in_year_10000 = pa.array([253_402_300_800_000_000], pa.timestamp("us", "UTC"))
    pq.write_table(pa.table({"v": in_year_10000, "_reason": ["late"]}), tmp_path / "part 1")
    assert json.loads(asked(page, path)[1])["rows"] == [
        {"v": "cannot be shown: date value out of range", "_reason": "late"}
    ]
    no_text = pa.Array.from_buffers(pa.utf8(), 1, [None, pa.py_buffer(b"\0\0\0\0\1\0\0\0"), pa.py_buffer(b"\xff")])
    pq.write_table(pa.table({"v": no_text, "_reason": ["late"]}), tmp_path / "part 1")
    (row,) = json.loads(asked(page, path)[1])["rows"]
    assert row["v"].startswith("cannot be shown: 'utf-8' codec can't decode byte 0xff")
    (tmp_path / "part 1").unlink()
    assert "cannot be read" in json.loads(asked(page, path)[1])["why"]
    handle["directory"] = "s3a://bucket/late"
    assert "read them with sparkjet.read_files" in json.loads(asked(page, path)[1])["why"]


def test_the_grid_of_a_home_is_asked_and_its_failure_is_reported(page: Page, runs: Runs) -> None:
    path, run = "/grid/run%20of%20flights/1", runs.all()[0]
    assert asked(page, path)[0].status == 404
    run.grid = lambda: {"members": []}
    assert json.loads(asked(page, "/runs/run%20of%20flights/1")[1])["grid"] is True
    assert json.loads(asked(page, path)[1]) == {"members": []}

    def fails() -> dict[str, object]:
        raise UnreachableError("nobody answers")

    run.grid = fails
    assert json.loads(asked(page, path)[1])["error"] == {
        "condition": "SPARKJET_GRID.UNREACHABLE",
        "message": "[SPARKJET_GRID.UNREACHABLE] nobody answers",
    }
    run.end(NOW, None)
    assert asked(page, path)[0].status == 404


PUBLIC = {"/", "/page.html", "/page.js", "/page.css", "/alerts.yml", "/dashboard.json"}
"""The same in every installation."""


def test_without_the_token_nothing_of_a_query_is_read(page: Page) -> None:
    """By any way in that there is, on loopback too: a machine may have several users."""
    paths = {route.path.replace("{run:path}", "run%20of%20flights/1") for route in page._routes.all()}
    assert paths > PUBLIC
    for path in paths:
        for wrong in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic x"}, {"Cookie": "token=x"}):
            answer, text = asked(page, path, knows=False, **wrong)
            assert answer.status == (200 if path in PUBLIC else 401), path
            assert "flights" not in text
    token = page.url.partition("#token=")[2]
    assert len(token) >= 32
    assert token not in repr(page._routes)
    # Nor as a browser would send it by itself, or a proxy would log it.
    assert asked(page, f"/runs?token={token}", knows=False, Cookie=f"token={token}")[0].status == 401


def test_other_sites_get_nothing_through_a_browser(page: Page) -> None:
    """A site with its own name for this address has no token, and none of another origin gets an answer."""
    assert asked(page, "/runs", knows=False, Host="evil.example")[0].status == 401
    for path in ("/", "/runs", "/metrics"):
        answer, _ = asked(page, path, Origin="http://evil.example")
        assert answer.headers["Cross-Origin-Resource-Policy"] == "same-origin"
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
        assert answer.headers["Referrer-Policy"] == "no-referrer"
        assert not [name for name in answer.headers if name.lower().startswith(("access-control", "set-cookie"))]
    # Which a browser asks for first, as the token is in a header.
    assert asked(page, "/runs", knows=False, method="OPTIONS", Origin="http://evil.example")[0].status == 405


def test_a_token_that_the_user_chose_is_asked_for_and_not_printed(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    page = Page(token="open-it", runs=runs, clock=ManualClock(NOW))
    try:
        assert page.url == f"http://127.0.0.1:{page.port}/#token=open-it"
        assert "open-it" not in f"{page}{page._repr_html_()}"
        assert asked(page, "/metrics", knows=False, Authorization="bearer open-it")[0].status == 200
    finally:
        page.stop()
    monkeypatch.setenv("SPARKJET_PAGE_TOKEN", "of-the-environment")
    page = open_page(runs=runs)
    try:
        assert page.url.endswith("#token=of-the-environment")
        assert str(page) == page.address
    finally:
        page.stop()


def test_all_addresses_lead_to_this_machine(runs: Runs) -> None:
    page = Page("0.0.0.0", runs=runs, clock=ManualClock(NOW))  # noqa: S104 - what is tested
    try:
        assert str(page).startswith(f"http://{socket.gethostname()}:{page.port}/#token=")
        assert asked(page, "/runs", knows=False)[0].status == 401
        assert asked(page, "/runs", Host="driver.example")[0].status == 200
    finally:
        page.stop()


def test_an_address_that_cannot_be_used_is_named(page: Page) -> None:
    with pytest.raises(AnalysisError, match=f"host='127.0.0.1', port={page.port}: Address already in use"):
        Page(port=page.port)
    for host, port in (("192.0.2.1", 0), ("127.0.0.1", 70_000), ("nowhere.invalid", 0)):
        with pytest.raises(AnalysisError, match="The page cannot listen"):
            Page(host, port)
    for host, port in ((None, 0), ("127.0.0.1", "80"), ("127.0.0.1", None)):
        with pytest.raises(AnalysisError, match="The page cannot listen"):
            Page(host, port)  # type: ignore[arg-type]
    for token in ("", "öffne", "a b", "a;b"):
        with pytest.raises(AnalysisError, match="token is not made of"):
            Page(token=token)


def test_after_its_stop_nobody_waits_for_an_answer_of_a_process_that_was_forked(runs: Runs) -> None:
    page = Page(runs=runs)
    # What a fork has of it.
    with socket.socket(fileno=os.dup(page._socket.fileno())):
        page.stop()
        with pytest.raises(ConnectionRefusedError):
            asked(page, "/runs")


def test_only_the_allowed_number_of_readers_is_answered(page: Page) -> None:
    readers = [socket.create_connection(("127.0.0.1", page.port)) for _ in range(READERS)]
    for reader in readers:
        (token,) = _bearer(page).values()
        reader.sendall(f"GET /events HTTP/1.1\r\nHost: localhost\r\nAuthorization: {token}\r\n\r\n".encode())
        assert reader.recv(12) == b"HTTP/1.1 200"
    assert asked(page, "/runs")[0].status == 503
    for reader in readers:
        reader.close()


def test_after_its_stop_nothing_is_open_to_a_reader_that_does_not_read(runs: Runs) -> None:
    page = Page(runs=runs)
    state: Any = page._server.server_state
    with socket.create_connection(("127.0.0.1", page.port)) as reader:
        # More answers than the buffers of both sides have room for.
        reader.sendall(b"GET /page.js HTTP/1.1\r\nHost: localhost\r\n\r\n" * 1_000)
        while not any(each.flow.write_paused for each in state.connections):
            page.wait(0.01)
        page.stop()
        assert not state.connections


def test_a_reader_that_comes_while_it_ends_is_let_go(runs: Runs) -> None:
    page = Page(runs=runs)
    server, readers = page._server, list[socket.socket]()
    while server._asked is None:
        page.wait(0.01)
    loop, asked = server._asked

    def comes() -> None:
        readers.append(socket.create_connection(("127.0.0.1", page.port)))
        # It is accepted in the next turn of the loop, and the end begins before it is served.
        loop.call_soon(asked.set)

    loop.call_soon_threadsafe(comes)
    assert page.wait(60)
    page.stop()
    gc.collect()
    for reader in readers:
        assert reader.recv(1) == b""
        reader.close()


def test_a_second_call_returns_the_page_that_is_there(runs: Runs) -> None:
    first = open_page(runs=runs)
    try:
        assert open_page(runs=runs) is first
        assert open_page(port=first.port, runs=runs) is first
        assert first._repr_html_().startswith(f'<a href="{first.url}"')
        assert first.url in {each.url for each in open_pages()}
    finally:
        first.stop()
        first.stop()
    assert first.url not in {each.url for each in open_pages()}
    with socket.create_server(("127.0.0.1", first.port)):
        pass
    second = open_page(runs=runs)
    assert second is not first
    second.stop()
