"""Where a grid is: what is refused, by name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sparkjet.errors import AnalysisError
from sparkjet.storage.directory import Directory
from sparkjet.storage.grid_location import GridLocation, grid_location
from sparkjet.storage.schemes import directory_at
from sparkjet_grid.access import Access, create_token
from sparkjet_grid.cluster_state import reformed
from tests.grid.grids import Grid, grid_of


def session(master: str = "local[2]", **settings: str) -> Any:
    """The settings that are read from a session."""
    return SimpleNamespace(conf=settings, sparkContext=SimpleNamespace(master=master))


@pytest.fixture
def token(tmp_path: Path) -> str:
    create_token(tmp_path / "token")
    return str(tmp_path / "token")


@pytest.fixture
def grid(tmp_path: Path) -> Iterator[Grid]:
    with grid_of(tmp_path, 1, backup_count=0) as grid:
        yield grid


def address(grid: Grid) -> str:
    return grid.members[0].address.uri.partition("//")[2]


def test_a_location_names_members_and_a_place(token: str, grid: Grid) -> None:
    settings = {"spark.sparkjet.grid.tokenFile": token}
    members = address(grid), "[::1]:5711"
    found = grid_location(f"grid://{','.join(members)}/team/orders", "checkpointLocation", session(**settings))
    assert found == (GridLocation(members, Access(token), grid.cluster.id), "team/orders")
    directory = directory_at(f"grid://{members[0]}/orders", "checkpointLocation", lambda: session(**settings))
    assert directory.below("snapshots").uri("log") == f"grid://{members[0]}/orders/snapshots/log"


def test_a_re_formed_grid_is_another_one_for_the_same_process(token: str, grid: Grid) -> None:
    settings = {"spark.sparkjet.grid.tokenFile": token}

    def directory() -> Directory:
        return directory_at(f"grid://{address(grid)}/orders", "checkpointLocation", lambda: session(**settings))

    before = directory()
    before.check("checkpointLocation")
    assert before.put("first", b"content")
    before_id = grid.cluster.id
    grid.cluster.change(lambda state: reformed(state, [grid.members[0].id], "anew"))
    # A query that runs must not go on with another grid.
    with pytest.raises(AnalysisError, match=f"re-formed: the members that answer are no longer cluster {before_id}"):
        before.check("checkpointLocation")
    # The next one does, in the same process of the driver, and in one of its workers.
    after = directory()
    after.check("checkpointLocation")
    assert after.put("second", b"content")
    assert after.read("second") == b"content"


def test_members_of_two_grids_are_refused_by_the_option(token: str, grid: Grid, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    with grid_of(tmp_path / "other", 1, access=Access(token)) as other:
        location = f"grid://{address(grid)},{address(other)}/orders"
        with pytest.raises(AnalysisError, match=r"snapshotStore: .* are members of different grids .* name those of"):
            grid_location(location, "snapshotStore", session(**{"spark.sparkjet.grid.tokenFile": token}))


@pytest.mark.parametrize(
    "location", ["grid://10.0.0.1:5710", "grid://10.0.0.1:5710/", "grid:///", "grid:", "grid://a:1/x//y"]
)
def test_a_location_without_a_place_is_refused(token: str, location: str) -> None:
    with pytest.raises(AnalysisError, match=r"checkpointLocation: .* names no place in a grid"):
        grid_location(location, "checkpointLocation", session(**{"spark.sparkjet.grid.tokenFile": token}))


def test_a_malformed_address_is_refused(token: str) -> None:
    with pytest.raises(AnalysisError, match=r'"10\.0\.0\.1" is not host:port'):
        grid_location("grid://10.0.0.1/x", "checkpointLocation", session(**{"spark.sparkjet.grid.tokenFile": token}))


def test_without_a_token_nothing_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARKJET_GRID_TOKEN", raising=False)
    with pytest.raises(AnalysisError, match="SPARKJET_GRID_TOKEN has no token"):
        grid_location("grid://10.0.0.1:5710/x", "checkpointLocation", session())


def test_the_embedded_member_is_not_for_executors_elsewhere() -> None:
    with pytest.raises(AnalysisError, match=r"snapshotStore: executors on other machines cannot reach"):
        grid_location("grid:///x", "snapshotStore", session("spark://10.0.0.1:7077"))
