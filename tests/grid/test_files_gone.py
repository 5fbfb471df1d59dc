"""Files that a member read at its start and that are gone later: it goes on with what it has read."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from sparkjet_grid.access import Access, create_token, free_port
from sparkjet_grid.connections import Connections
from sparkjet_grid.errors import AnalysisError
from sparkjet_grid.messages import Ping
from sparkjet_grid.zookeeper_config import ServerAddress
from sparkjet_grid.zookeeper_server import ZooKeeperServer
from sparkjet_grid.zookeeper_settings import ZooKeeperSettings
from tests.faults.waiting import until
from tests.grid.batches import ROWS, rows_of
from tests.grid.certificates import Authority
from tests.grid.grids import grid_of
from tests.servers.programs import listens


@pytest.mark.parametrize("content", [None, "", "another token, of another grid"], ids=["gone", "empty", "replaced"])
def test_members_whose_token_file_changes_go_on_when_one_of_them_dies(content: str | None, tmp_path: Path) -> None:
    """Who asked the others whether it is gone could not read the token, and ended; all did. Or all were refused."""
    with grid_of(tmp_path) as grid:
        client = grid.client()
        client.put([client.entry(f"before/{number}", ROWS, [rows_of(9)]) for number in range(20)])
        token = (tmp_path / "token").read_text()
        (tmp_path / "token").unlink()
        if content is not None:
            (tmp_path / "token").write_text(content)
        victim = grid.members[-1]
        grid.kill(victim)
        until(lambda: victim.id not in {member.id for member in grid.cluster.now().members}, "the others to notice", 30)
        grid.settle()
        (tmp_path / "token").write_text(token)
        held = client.put([client.entry(f"after/{number}", ROWS, [rows_of(9)]) for number in range(20)])
        client.check(held)
        assert [member._reason for member in grid.members] == ["", ""]


def test_a_client_that_has_never_read_the_token_is_told_what_is_missing(tmp_path: Path) -> None:
    connections = Connections(Access(str(tmp_path / "missing")))
    with pytest.raises(AnalysisError, match=r'--token-file: ".*missing" cannot be read: No such file'):
        connections.ask("grpc://127.0.0.1:9", Ping(), str)


@pytest.mark.crash
def test_a_server_starts_again_without_the_files_of_its_certificates(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It may be the only one that votes."""
    authority = Authority(tmp_path / "authority")
    certificate, key = authority.signed("member")
    settings = ZooKeeperSettings(
        "a token for tests",
        certificate=str(certificate),
        key=str(key),
        authorities=str(authority.certificate),
        directory=str(tmp_path),
    )
    client, quorum, election, plain = (free_port("127.0.0.1") for _ in range(4))
    server = ZooKeeperServer(ServerAddress(1, "n1", "127.0.0.1", client, quorum, election, plain), settings)
    try:
        server.start([server.address.line], is_first=True)
        until(lambda: listens(client), "the server to listen")
        key.unlink()
        server.start([server.address.line])
        until(lambda: listens(client) or not server.runs, "the server to listen")
        assert server.runs
        assert "starts again with the certificates that it had: [SPARKJET_ANALYSIS] key: " in caplog.text
    finally:
        server.stop()
    another = ZooKeeperServer(server.address, settings)
    with pytest.raises(AnalysisError, match=r"key: .*member\.key. cannot be read as a PEM file"):
        another.start([server.address.line], is_first=True)
    another.stop()


@pytest.mark.crash
def test_a_member_that_cannot_say_where_it_listens_goes_on(tmp_path: Path) -> None:
    create_token(tmp_path / "token")
    command = [sys.executable, "-m", "sparkjet", "grid", "start", "--alone", "--port", "0"]
    command += ["--token-file", str(tmp_path / "token")]
    log = tmp_path / "log"
    with log.open("wb") as errors, Path("/dev/full").open("wb") as full:
        member = subprocess.Popen(command, stdout=full, stderr=errors)
    try:
        until(lambda: "and cannot say so: " in log.read_text() or member.poll() is not None, "the member to listen", 60)
        assert member.poll() is None
        assert "No space left on device" in log.read_text()
        member.terminate()
        assert member.wait(60) == 0, log.read_text()
    finally:
        member.kill()
        member.wait()
