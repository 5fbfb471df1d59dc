"""The disk below the servers: full, or swept by a cleaner of temporary files. No member ends by that."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.faults.waiting import let_pass, until
from tests.grid.calls import RefusedError
from tests.grid.test_zookeeper_members import cluster
from tests.mounts import small_disk

pytestmark = pytest.mark.crash
CUT_OFF = 2.0


def done(member: Any, name: str, *args: Any) -> bool:
    """Whether it does so now."""
    try:
        member.call(name, *args)
    except RefusedError:
        return False
    return True


@pytest.mark.parametrize(
    "is_reached",
    [pytest.param(True, id="others answer"), pytest.param(False, id="nobody answers", marks=pytest.mark.long)],
)
def test_a_full_disk_ends_nobody_who_hears_the_others(is_reached: bool, tmp_path: Path) -> None:
    """All servers end with it, and none says why: it is their log's disk as well."""
    log = tmp_path / "members.log"
    settings = {"directory": str(tmp_path / "disk"), "patience": 2.0, "cut_off": CUT_OFF, "log": str(log)}
    with (
        small_disk(tmp_path / "disk", 100) as disk,
        cluster(3, voters=3, is_reached=is_reached, **settings) as grid,
    ):
        assert grid.members[0].call("put", "log", 1, "before")
        disk.fill()
        slot = 2

        def is_frozen() -> bool:
            nonlocal slot
            slot += 1
            return not done(grid.members[slot % 3], "put", "log", slot, "x" * 50_000)

        until(is_frozen, "the servers to end")
        until(lambda: "kB left, and a ZooKeeper server needs 16 MB" in log.read_text(), "the cause")
        if not is_reached:
            until(lambda: all(member.call("reasons") for member in grid.members), "their end")
            [reason] = grid.members[0].call("reasons")
            assert str(disk.directory) in reason
            assert "No other member has answered either." in reason
            return
        let_pass(2 * CUT_OFF)
        assert [member.call("reasons") for member in grid.members] == [[], [], []]
        disk.free()
        until(lambda: all(done(member, "slots", "log") for member in grid.members), "a majority")
        assert 1 in grid.members[0].call("slots", "log")
        assert [member.call("reasons") for member in grid.members] == [[], [], []]
        grid.settle(voters=3)


@pytest.mark.parametrize(
    ("size", "what"),
    [
        pytest.param(1, "*/*", id="the only one"),
        pytest.param(1, "*/*/data/version-2", id="what the only one has acknowledged"),
        pytest.param(1, "*", id="with the directory for all of them"),
        pytest.param(3, "*/*", id="all of three", marks=pytest.mark.long),
        pytest.param(3, "*/*/data/version-2", id="what all of three have acknowledged", marks=pytest.mark.long),
    ],
)
def test_servers_whose_files_are_removed_are_replaced(size: int, what: str, tmp_path: Path) -> None:
    """They go on until then: what is gone is what they would start with."""
    temporary = tmp_path / "below" / "temporary"
    temporary.mkdir(parents=True)
    log = tmp_path / "members.log"
    with cluster(size, voters=size, directory=str(temporary), log=str(log)) as grid:
        assert grid.members[0].call("put", "log", 1, "before")
        servers = {member.call("server") for member in grid.members}
        for directory in (tmp_path / "below").glob(what):
            shutil.rmtree(directory)

        def are_new() -> bool:
            return all(member.call("server") not in {None, *servers} for member in grid.members)

        until(are_new, "other servers")
        grid.settle(voters=size)
        until(lambda: len(list(temporary.iterdir())) == size, "the end of those before")
        assert all(member.call("slots", "log") == [1] for member in grid.members)
        assert not any(member.call("reasons") for member in grid.members)
        assert "were removed, perhaps by a cleaner of temporary files" in log.read_text()
