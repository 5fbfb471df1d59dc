"""The directory store keeps the contract of stores in a grid, whose rows tasks carry themselves."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from sparkjet.snapshots import DirectoryStore
from sparkjet.storage.grid_directory import GridDirectory
from sparkjet.storage.grid_location import GridLocation
from sparkjet.testing.store_contract import StoreContract, StoreUnderTest
from tests.grid.grids import grid_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def location(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GridLocation]:
    with grid_of(tmp_path_factory.mktemp("grid")) as grid:
        addresses = grid.addresses
        yield GridLocation(addresses, grid.access)


class TestGrid(StoreContract):
    @pytest.fixture
    def target(self, spark: SparkSession, location: GridLocation) -> StoreUnderTest:
        home = f"tests/{uuid4().hex}"

        def again() -> DirectoryStore:
            return DirectoryStore(GridDirectory(location, home))

        def foreign(name: str) -> None:
            for below in ("log", "state", "blobs"):
                GridDirectory(location, f"{home}/{below}").write(name, b"not ours")

        store = again()
        store.open("checkpointLocation")
        return StoreUnderTest(store, again, foreign)
