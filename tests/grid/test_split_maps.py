"""Maps in networks that are cut, over TLS and with a token: what a reader sees on either side, and after the heal."""

from __future__ import annotations

import pytest

from tests.grid.calls import RefusedError
from tests.grid.test_split_networks import networked, others


@pytest.mark.crash
@pytest.mark.long
def test_the_writer_goes_on_beside_the_majority_and_nobody_sees_half_an_epoch(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with networked(tmp_path_factory, "abc") as grid:
        north, south = grid.north, grid.south
        north.write_map("board", 1)
        assert (north.read_map("board"), south.read_map("board")) == (1, 1)
        for epoch in (2, 4, 6):
            # A follower, and then whoever leads.
            away = others(grid, grid.leader())[0] if epoch == 2 else grid.leader()
            grid.networks.split([*others(grid, away), "north"], [away, "south"])
            north.write_map("board", epoch)
            assert north.read_map("board") == epoch
            with pytest.raises(RefusedError):
                south.read_map("board")
            north.write_map("board", epoch + 1)
            grid.networks.heal()
            grid.removed(away)
            grid.restore()
            assert (north.read_map("board"), south.read_map("board")) == (epoch + 1, epoch + 1)
        with grid.paused(others(grid, grid.leader())[0]):
            north.write_map("board", 8)
            assert north.read_map("board") == 8
        grid.restore()
        assert south.read_map("board") == 8
