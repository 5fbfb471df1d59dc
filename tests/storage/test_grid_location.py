"""Where a grid is: what is refused, by name."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sparkjet.errors import AnalysisError
from sparkjet.grid.access import Access, create_token
from sparkjet.storage.grid_location import GridLocation, grid_location
from sparkjet.storage.schemes import directory_at


def session(master: str = "local[2]", **settings: str) -> Any:
    """What is asked of a session."""
    return SimpleNamespace(conf=settings, sparkContext=SimpleNamespace(master=master))


@pytest.fixture
def token(tmp_path: Path) -> str:
    create_token(tmp_path / "token")
    return str(tmp_path / "token")


def test_a_location_names_members_and_a_place(token: str) -> None:
    settings = {"spark.sparkjet.grid.tokenFile": token}
    found = grid_location("grid://10.0.0.1:5710,[::1]:5711/team/orders", "checkpointLocation", session(**settings))
    assert found == (GridLocation(("10.0.0.1:5710", "[::1]:5711"), Access(token)), "team/orders")
    directory = directory_at("grid://10.0.0.1:5710/orders", "checkpointLocation", lambda: session(**settings))
    assert directory.below("snapshots").uri("log") == "grid://10.0.0.1:5710/orders/snapshots/log"


@pytest.mark.parametrize(
    "location", ["grid://10.0.0.1:5710", "grid://10.0.0.1:5710/", "grid:///", "grid:", "grid://a:1/x//y"]
)
def test_a_location_without_a_place_is_refused(token: str, location: str) -> None:
    with pytest.raises(AnalysisError, match=r"^checkpointLocation: .* names no place in a grid"):
        grid_location(location, "checkpointLocation", session(**{"spark.sparkjet.grid.tokenFile": token}))


def test_an_address_that_is_none_is_refused(token: str) -> None:
    with pytest.raises(AnalysisError, match=r'"10\.0\.0\.1" is not host:port'):
        grid_location("grid://10.0.0.1/x", "checkpointLocation", session(**{"spark.sparkjet.grid.tokenFile": token}))


def test_without_a_token_nothing_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARKJET_GRID_TOKEN", raising=False)
    with pytest.raises(AnalysisError, match="SPARKJET_GRID_TOKEN has no token"):
        grid_location("grid://10.0.0.1:5710/x", "checkpointLocation", session())


def test_the_embedded_member_is_not_for_executors_elsewhere() -> None:
    with pytest.raises(AnalysisError, match=r"^snapshotStore: executors on other machines cannot reach"):
        grid_location("grid:///x", "snapshotStore", session("spark://10.0.0.1:7077"))
