"""Files that a member read at its start and that are gone later: it goes on with what it has read."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparkjet.errors import AnalysisError
from sparkjet.grid.access import Access
from sparkjet.grid.connections import Connections
from sparkjet.grid.requests import Ping
from tests.faults.waiting import until
from tests.grid.batches import ROWS, rows_of
from tests.grid.grids import grid_of


def test_members_whose_token_file_is_gone_go_on_when_one_of_them_dies(tmp_path: Path) -> None:
    """Who asked the others whether it is gone could not read the token, and ended; all did."""
    with grid_of(tmp_path) as grid:
        client = grid.client()
        client.put([client.entry(f"before/{number}", ROWS, [rows_of(9)]) for number in range(20)])
        (tmp_path / "token").unlink()
        victim = grid.members[-1]
        grid.kill(victim)
        until(lambda: victim.id not in {member.id for member in grid.cluster.now().members}, "the others to notice", 30)
        grid.settle()
        held = client.put([client.entry(f"after/{number}", ROWS, [rows_of(9)]) for number in range(20)])
        client.check(held)
        assert [member._reason for member in grid.members] == ["", ""]


def test_who_has_never_read_the_token_is_told_what_is_missing(tmp_path: Path) -> None:
    connections = Connections(Access(str(tmp_path / "missing")))
    with pytest.raises(AnalysisError, match=r'--token-file: ".*missing" cannot be read: No such file'):
        connections.ask("grpc://127.0.0.1:9", Ping(), str)
