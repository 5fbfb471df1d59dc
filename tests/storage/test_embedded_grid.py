"""The embedded member: one for all drivers, which outlives them."""

from __future__ import annotations

import os
import signal
import stat
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sparkjet.errors import StorageError
from sparkjet.storage.grid_location import embedded_member
from sparkjet_grid.access import Access
from sparkjet_grid.client import GridClient
from sparkjet_grid.messages import Status
from tests.faults.waiting import until


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path
    os.kill(embedded_member(tmp_path, "64m").process, signal.SIGKILL)


def test_drivers_that_ask_at_the_same_time_get_the_same_one(directory: Path) -> None:
    with ThreadPoolExecutor(4) as drivers:
        found = set(drivers.map(lambda _: embedded_member(directory, "64m"), range(4)))
    [member] = found
    assert member.answers
    assert stat.S_IMODE(Path(member.token_file).stat().st_mode) == 0o600
    client = GridClient([member.address], Access(member.token_file))
    assert [each.uri for each in client.state().members] == [f"grpc://{member.address}"]
    assert [each.limit for each in client.status().values() if isinstance(each, Status)] == [64 << 20]
    client.close()
    # Not the driver's child in its session: Ctrl-C is for the driver alone.
    assert os.getsid(member.process) == member.process


def test_one_that_has_ended_is_followed_by_another(directory: Path) -> None:
    first = embedded_member(directory, "64m")
    os.kill(first.process, signal.SIGKILL)
    until(lambda: not first.answers, "its end", 60)
    second = embedded_member(directory, "64m")
    assert second.address != first.address
    assert second.answers


def test_one_that_does_not_start_says_why(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match='--max-memory: "much" is not a size'):
        embedded_member(tmp_path, "much")
