"""Ctrl-C without Spark: which queries it stops, and where none; whole scripts are in tests/crash/test_interrupts.py."""

from __future__ import annotations

import io
import sys
import threading

import pytest

from sparkjet.api import interrupts
from sparkjet.api.interrupts import Interrupts


class Ending:
    def __init__(self) -> None:
        self.ended = threading.Event()
        self.wait = self.ended.wait

    @property
    def finished(self) -> bool:
        return self.ended.is_set()


class Query:
    """A supervisor that ends its query as soon as it is asked to."""

    def __init__(self) -> None:
        self.ending = Ending()

    def stop(self) -> None:
        self.ending.ended.set()


class TeeThatHasEnded(io.StringIO):
    def write(self, text: str, /) -> int:
        raise BrokenPipeError


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The errors that are left to the previous hook."""
    found: list[object] = []
    monkeypatch.setattr(sys, "excepthook", lambda _, error, __: found.append(error))
    monkeypatch.setattr(interrupts, "_only_errors", lambda: None)
    monkeypatch.delattr(sys, "ps1", raising=False)
    return found


def interrupted(*queries: Query) -> KeyboardInterrupt:
    watched, error = Interrupts(), KeyboardInterrupt()
    for query in queries:
        watched.add("clicks", query)  # type: ignore[arg-type]
    sys.excepthook(KeyboardInterrupt, error, None)
    return error


def test_queries_of_one_name_in_two_sessions_are_both_stopped(
    shown: list[object], capsys: pytest.CaptureFixture[str]
) -> None:
    one, other = Query(), Query()
    interrupted(one, other)
    assert one.ending.finished
    assert other.ending.finished
    assert "queries clicks, clicks stop" in capsys.readouterr().err
    assert shown == []


def test_at_a_prompt_queries_go_on(shown: list[object], monkeypatch: pytest.MonkeyPatch) -> None:
    query = Query()
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    error = interrupted(query)
    assert not query.ending.finished
    assert shown == [error]


@pytest.mark.parametrize("stderr", [None, TeeThatHasEnded()])
def test_queries_stop_where_nobody_reads_the_line(
    shown: list[object], monkeypatch: pytest.MonkeyPatch, stderr: TeeThatHasEnded | None
) -> None:
    query = Query()
    monkeypatch.setattr(sys, "stderr", stderr)
    interrupted(query)
    assert query.ending.finished
    assert shown == []
