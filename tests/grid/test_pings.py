"""A member whose process is gone is reported once; one that is slow, or whose machine is silent, is not."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from sparkjet.grid.cluster_state import Member
from sparkjet.grid.pings import Pings
from tests.faults.waiting import until


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    """Listens, and never answers: as a process that is paused."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def member(id_: str, port: int) -> Member:
    return Member(id_, f"grpc://127.0.0.1:{port}", "host")


def test_only_who_is_gone_is_reported_and_once(listening: socket.socket) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closing:
        gone = member("gone", closing.getsockname()[1])
        paused = member("paused", listening.getsockname()[1])
        reported: list[Member] = []
        asked: list[int] = []
        failures: list[str] = []

        def others() -> list[Member]:
            asked.append(1)
            # To the last one no connection can be made, which says nothing about it.
            return [gone, paused, Member("elsewhere", "grpc://255.255.255.255:9", "host")]

        pings = Pings(others, reported.append, failures.append, period=0.01)
        pings.start()
        until(lambda: len(asked) > 10, "some pings", 30)
        assert reported == []
    until(lambda: reported == [gone], "the report", 30)
    seen = len(asked)
    until(lambda: len(asked) > seen + 10, "more pings", 30)
    assert reported == [gone]
    assert failures == []
    pings.stop()
