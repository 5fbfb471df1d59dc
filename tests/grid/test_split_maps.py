"""Maps and journals in networks that are cut, over TLS and with a token: what either side sees, and afterwards."""

from __future__ import annotations

import pytest

from tests.grid.calls import RefusedError
from tests.grid.client_process import ClientProcess
from tests.grid.test_split_networks import networked, others


def write(client: ClientProcess, epoch: int) -> None:
    client.write_map("board", epoch)
    client.write_journal("flights", epoch)


def newest(client: ClientProcess) -> int:
    """The epoch that all of a map is of, which all of a journal goes up to."""
    [epoch] = {client.read_map("board"), client.read_journal("flights")}
    return epoch


@pytest.mark.crash
@pytest.mark.long
def test_the_writer_goes_on_beside_the_majority_and_nobody_sees_half_an_epoch(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with networked(tmp_path_factory, "abc") as grid:
        north, south = grid.north, grid.south
        write(north, 1)
        assert (newest(north), newest(south)) == (1, 1)
        for epoch in (2, 4, 6):
            # A follower, and then whoever leads.
            away = others(grid, grid.leader())[0] if epoch == 2 else grid.leader()
            grid.networks.split([*others(grid, away), "north"], [away, "south"])
            write(north, epoch)
            assert newest(north) == epoch
            for read, name in ((south.read_map, "board"), (south.read_journal, "flights")):
                with pytest.raises(RefusedError):
                    read(name)
            write(north, epoch + 1)
            grid.networks.heal()
            grid.removed(away)
            grid.restore()
            assert (newest(north), newest(south)) == (epoch + 1, epoch + 1)
        with grid.paused(others(grid, grid.leader())[0]):
            write(north, 8)
            assert newest(north) == 8
        grid.restore()
        assert newest(south) == 8
