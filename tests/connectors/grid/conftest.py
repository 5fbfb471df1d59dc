"""A grid of two members for each file of tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sparkjet.storage.grid_location import GridLocation
from tests.grid.grids import Grid, grid_of


@pytest.fixture(scope="module")
def grid(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Grid]:
    with grid_of(tmp_path_factory.mktemp("grid"), 2) as grid:
        yield grid


@pytest.fixture(scope="module")
def location(grid: Grid) -> GridLocation:
    members = grid.addresses
    return GridLocation(members, grid.access, grid.client().state().cluster)
