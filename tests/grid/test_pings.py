"""A member whose process is gone is reported; one that is slow, or whose machine is silent, is not."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from sparkjet_grid.cluster_state import Member
from sparkjet_grid.pings import Pings
from tests.faults.waiting import until
from tests.grid.grids import grid_of


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    """Listens, and never answers: as a process that is paused."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def member(id_: str, port: int) -> Member:
    return Member(id_, f"grpc://127.0.0.1:{port}", "host")


def test_only_a_member_that_is_gone_is_reported_until_it_has_left(listening: socket.socket) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closing:
        gone = member("gone", closing.getsockname()[1])
        paused = member("paused", listening.getsockname()[1])
        reported: list[Member] = []
        seconds: list[float] = []
        asked: list[int] = []

        def others() -> list[Member]:
            asked.append(1)
            # To the last one no connection can be made, which says nothing about it.
            return [gone, paused, Member("elsewhere", "grpc://255.255.255.255:9", "host")]

        def report(member: Member, since: float) -> None:
            reported.append(member)
            seconds.append(since)

        pings = Pings(others, report, period=0.01)
        pings.start()
        until(lambda: len(asked) > 10, "some pings", 30)
        assert reported == []
    until(lambda: len(reported) > 1, "the reports", 30)
    assert set(reported) == {gone}
    assert 0.0 < seconds[0] < seconds[1]
    pings.stop()


def test_a_member_hears_others_as_long_as_one_of_them_answers(tmp_path: Path) -> None:
    """Another process at the port of one that is gone is not that one."""
    with grid_of(tmp_path, 3) as grid:
        first, second, third = grid.members
        assert first._hears_others()
        second.close()
        assert first._hears_others()
        third.close()
        assert not first._hears_others()
        stranger = replace(first.address, id="another")
        assert not first._answers(stranger)
