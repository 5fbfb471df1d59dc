"""A ZooKeeper server that belongs to a member: its jars, its files, and its end."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from sparkjet_grid.access import free_port
from sparkjet_grid.errors import AnalysisError
from sparkjet_grid.zookeeper_config import ServerAddress, Voting
from sparkjet_grid.zookeeper_server import ZooKeeperServer, check_server, jars, java
from sparkjet_grid.zookeeper_settings import ZooKeeperSettings
from tests.faults.waiting import until

MEMBER = """
import sys
from sparkjet_grid.zookeeper_settings import ZooKeeperSettings
from sparkjet_grid.zookeeper_server import ZooKeeperServer
from tests.grid.test_zookeeper_server import address
server = ZooKeeperServer(address(), ZooKeeperSettings("a token for tests", directory=sys.argv[1]))
server.start([server.address.line], is_first=True)
print(server.pid, server.address.client, flush=True)
sys.stdin.read()
"""
"""A process that runs a server as its child."""


def address(id_: int = 1) -> ServerAddress:
    client, quorum, election = (free_port("127.0.0.1") for _ in range(3))
    return ServerAddress(id_, f"n{id_}", "127.0.0.1", client, quorum, election, client)


def has_ended(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    # Nobody may have asked for the status of one whose parent was killed as well.
    return Path(f"/proc/{process}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0] == "Z"


def test_pyspark_brings_the_jars() -> None:
    assert all(path.is_file() for path in jars())


@pytest.mark.spark  # It asks for Java.
def test_a_folder_may_have_them_where_there_is_no_pyspark(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for each in jars():
        (tmp_path / each.name).touch()
    monkeypatch.setitem(sys.modules, "pyspark", None)
    assert [each.parent for each in jars(str(tmp_path))] == [tmp_path] * len(list(tmp_path.iterdir()))
    check_server(ZooKeeperSettings("token", jars=str(tmp_path)))
    with pytest.raises(
        AnalysisError, match=r"from PySpark's jars\. Install pyspark .* or name a directory .* --jars\."
    ):
        check_server(ZooKeeperSettings("token"))


def test_pyspark_client_has_none(tmp_path: Path) -> None:
    with pytest.raises(AnalysisError, match=r"no zookeeper, no zookeeper-jute, .*pyspark-client comes without jars"):
        jars(str(tmp_path))
    (tmp_path / "zookeeper-3.9.5.jar").touch()
    with pytest.raises(AnalysisError, match="has no zookeeper-jute"):
        jars(str(tmp_path))


def test_without_java_it_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(AnalysisError, match=f"needs Java 17 or newer.*JAVA_HOME is {tmp_path}, where there is no bin"):
        java()
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(AnalysisError, match="there is no java on the PATH"):
        java()


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"certificate": "a.pem"}, "certificate, key and authorities belong together"),
        ({"host": "10.0.0.1"}, "host 10.0.0.1 can be reached from other machines"),
        ({"host": "0.0.0.0"}, r"host 0.0.0.0 can be reached"),  # noqa: S104 - it is refused
        ({"host": "node1"}, "host node1 can be reached"),
    ],
)
def test_settings_that_would_be_unsafe_are_refused(settings: dict[str, str], told: str) -> None:
    with pytest.raises(AnalysisError, match=told):
        ZooKeeperSettings("token", **settings)  # type: ignore[arg-type]


def test_the_token_is_not_shown_and_not_given_to_the_servers() -> None:
    settings = ZooKeeperSettings("very secret")
    assert "very secret" not in repr(settings)
    assert "very secret" not in settings.password
    assert ZooKeeperSettings("other").password != settings.password


def test_a_pem_file_that_is_missing_is_named(tmp_path: Path) -> None:
    settings = ZooKeeperSettings("t", certificate=str(tmp_path / "c.pem"), key="k.pem", authorities="a.pem")
    with pytest.raises(AnalysisError, match=r"certificate: .*c\.pem. cannot be read as a PEM file"):
        settings.pem("certificate")


def test_voters_are_read_from_what_servers_say() -> None:
    config = b"server.1=h:1:2:participant;127.0.0.1:3\nserver.12=h:4:5:participant;127.0.0.1:6\nversion=10000001f"
    voting = Voting.parsed(config)
    assert voting.ids == {1, 12}
    assert voting.lines[12] == "server.12=h:4:5:participant;127.0.0.1:6"
    assert voting.version == 0x10000001F


@pytest.fixture
def made(tmp_path: Path) -> Callable[[], ZooKeeperServer]:
    return lambda: ZooKeeperServer(address(), ZooKeeperSettings("a token for tests", directory=str(tmp_path)))


@pytest.mark.spark  # Java at least
def test_snapshots_and_logs_that_nobody_needs_are_removed(made: Callable[[], ZooKeeperServer], tmp_path: Path) -> None:
    server = made()
    data = next(tmp_path.iterdir()) / "data" / "version-2"
    data.mkdir(parents=True)

    def names() -> set[str]:
        return {path.name for path in data.iterdir()}

    for name in ("snapshot.0", "log.1", "snapshot.64", "log.65", "acceptedEpoch"):
        (data / name).touch()
    before = names()
    server.purge()
    assert names() == before
    for name in ("snapshot.c8", "log.c9", "snapshot.12c.gz", "log.12d", "log.190"):
        (data / name).touch()
    server.purge()
    # The log before the oldest snapshot may go on behind it: servers begin a new one some time after.
    kept = {"log.1", "snapshot.64", "log.65", "snapshot.c8", "log.c9", "snapshot.12c.gz", "log.12d", "log.190"}
    assert names() == {"acceptedEpoch", *kept}
    (data / "snapshot.1f4").touch()
    server.purge()
    assert names() == {"acceptedEpoch", *kept - {"log.1", "snapshot.64"}, "snapshot.1f4"}
    server.stop()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.crash
class TestProcess:
    def test_its_files_are_for_its_owner_alone(self, made: Callable[[], ZooKeeperServer], tmp_path: Path) -> None:
        server = made()
        server.start([server.address.line], is_first=True)
        try:
            client = KazooClient(server.address.contact)
            client.start(60)
            client.stop()
            client.close()
            home = next(tmp_path.iterdir())
            # Servers write it anew when they start, without asking for the mode.
            assert "dynamic.1" in (home / "zoo.cfg").read_text(encoding="ascii")
            modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (home, *home.glob("[vz]*"))}
            assert {name: mode for name, mode in modes.items() if mode & 0o077} == {}
            command = Path(f"/proc/{server.pid}/cmdline").read_text(encoding="utf-8")
            assert "superDigest" not in command
            # What a member takes is bounded, and its server tells when that is not enough.
            assert f"-Xmx{ZooKeeperSettings('a token for tests').heap}m" in command
            assert "-XX:+ExitOnOutOfMemoryError" in command
        finally:
            server.stop()
        assert not server.runs
        assert list(tmp_path.iterdir()) == []
        server.stop()

    @pytest.mark.parametrize(
        "how", [signal.SIGKILL, *(pytest.param(how, marks=pytest.mark.long) for how in (signal.SIGTERM, None))]
    )
    def test_it_ends_with_its_member(self, how: signal.Signals | None, tmp_path: Path) -> None:
        command = [sys.executable, "-c", MEMBER, str(tmp_path)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as member:
            assert member.stdin is not None
            assert member.stdout is not None
            process, port = map(int, member.stdout.readline().split())
            client = KazooClient(f"127.0.0.1:{port}")
            client.start(60)
            client.stop()
            client.close()
            assert not has_ended(process)
            member.stdin.close() if how is None else member.send_signal(how)
            member.wait(60)
        until(lambda: has_ended(process), "the server to end")
        until(lambda: not list(tmp_path.iterdir()), "its files to be removed")

    def test_a_server_that_ends_by_itself_is_seen(self, made: Callable[[], ZooKeeperServer]) -> None:
        server = made()
        # Two of one id are refused by ZooKeeper itself.
        server.start(["server.1=127.0.0.1:notaport:1"], is_first=True)
        until(lambda: not server.runs, "its end")
        assert "its process ended with" in server.why()
        server.stop()
