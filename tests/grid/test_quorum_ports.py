"""The ports by which servers agree: who does not know the token reads and writes nothing there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoAuthError
from kazoo.handlers.threading import KazooTimeoutError

from sparkjet_grid.access import free_port
from sparkjet_grid.zookeeper_config import ServerAddress
from sparkjet_grid.zookeeper_server import ZooKeeperServer
from sparkjet_grid.zookeeper_settings import ZooKeeperSettings
from tests.faults.waiting import holds_within
from tests.grid.control_contract import put
from tests.grid.controls import SETTINGS, Controls, address, pid

pytestmark = pytest.mark.crash


@pytest.fixture(scope="module")
def zookeeper() -> Iterator[Controls]:
    with Controls() as controls:
        controls.fill(3)
        assert put(controls.any, "log/1", b"secret")
        yield controls


class Observer(ZooKeeperServer):
    """A server that follows the leader of others without a vote, as somebody starts it who knows where they listen."""

    shows_nothing = False

    def _write(self, name: str, content: str) -> Path:
        if name == "zoo.cfg":
            lines = [line for line in content.splitlines() if not (self.shows_nothing and "quorum.auth" in line)]
            content = "\n".join([*lines, "peerType=observer", ""])
        return super()._write(name, content)


def reads(observer: ServerAddress, password: str) -> bool:
    """Whether somebody gets at the records by a server of their own, whose user they are."""
    client = KazooClient(observer.contact, auth_data=[("digest", f"super:{password}")])
    try:
        client.start(5)
        return bool(client.get_children_async("/sparkjet/slots").get(timeout=5))
    except (KazooException, KazooTimeoutError):
        return False
    finally:
        client.stop()
        client.close()


@pytest.mark.parametrize(
    "how", ["with the token", "without any", pytest.param("with another one", marks=pytest.mark.long)]
)
def test_an_observer_follows_only_with_the_token(zookeeper: Controls, how: str, tmp_path: Path) -> None:
    """Any user of the machine read and deleted all records by a server of their own."""
    knows = how == "with the token"
    servers = [server for joined in zookeeper.members if (server := address(joined)) is not None]
    client, quorum, election = (free_port("127.0.0.1") for _ in range(3))
    settings = SETTINGS if knows else ZooKeeperSettings("a guess of somebody's", directory=str(tmp_path))
    observer = Observer(ServerAddress(77, "stranger", "127.0.0.1", client, quorum, election, client), settings)
    observer.shows_nothing = how == "without any"
    own = observer.address.line.replace(":participant;", ":observer;")
    try:
        observer.start([*(server.line for server in servers), own])
        assert holds_within(lambda: reads(observer.address, settings.password), 60 if knows else 10) == knows
        assert observer.runs
    finally:
        observer.stop()
    assert put(zookeeper.any, f"log/{how}", b"still")


def test_nobody_reads_or_writes_by_the_port_for_members(zookeeper: Controls) -> None:
    server = address(zookeeper.members[0])
    assert server is not None
    client = KazooClient(server.contact)
    client.start(10)
    try:
        for path in ("/", "/zookeeper", "/zookeeper/quota", "/sparkjet", "/sparkjet/slots"):
            with pytest.raises(NoAuthError):
                client.create_async(f"{path.rstrip('/')}/mine").get(timeout=10)
        with pytest.raises(NoAuthError):
            client.get_async("/sparkjet/state").get(timeout=10)
        with pytest.raises(NoAuthError):
            client.set_async("/zookeeper/config", b"").get(timeout=10)
    finally:
        client.stop()
        client.close()


def test_the_secrets_of_servers_are_in_files_for_their_owner_alone(zookeeper: Controls) -> None:
    password = zookeeper.settings.quorum_password
    for joined in zookeeper.members:
        home = joined.control._membership.ensemble.server._home  # type: ignore[attr-defined]
        assert password in (home / "login.conf").read_text(encoding="ascii")
        assert (home / "login.conf").stat().st_mode & 0o077 == 0
        assert password.encode() not in Path(f"/proc/{pid(joined)}/cmdline").read_bytes()
        assert password.encode() not in Path(f"/proc/{pid(joined)}/environ").read_bytes()
