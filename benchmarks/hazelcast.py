"""Hazelcast CE, the peer of the grid: members with a map of one backup, and its client in Python."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.process import PeerError
from benchmarks.run import JAVA, OPENED

PYTHON = Path(__file__).parent / ".venv-hazelcast" / "bin" / "python"
CLUSTER = "sparkjet-benchmark"
_STARTER = "com.hazelcast.core.server.HazelcastMemberStarter"
_CONFIG = """
hazelcast:
  cluster-name: {cluster}
  network:
    port: {{port: {port}, auto-increment: false}}
    interfaces: {{enabled: true, interfaces: [127.0.0.1]}}
    join:
      auto-detection: {{enabled: false}}
      multicast: {{enabled: false}}
      tcp-ip: {{enabled: true, member-list: [{members}]}}
  map:
    default: {{backup-count: 1}}
  properties:
    hazelcast.phone.home.enabled: "false"
    hazelcast.socket.bind.any: "false"
"""


class HazelcastMembers:
    """Members with a map of one backup, each a process.

    Args:
        folder: For their configuration and output.
        count: How many.
    """

    def __init__(self, folder: Path, count: int) -> None:
        self._folder = folder
        self.addresses = [f"127.0.0.1:{port}" for port in free_ports(count)]
        self._members = [self._member(number) for number in range(count)]

    def kill(self) -> None:
        """Kill one."""
        self._members[-1].kill()

    def end(self) -> None:
        """Kill all."""
        for process in self._members:
            process.kill()
            process.wait()

    def _member(self, number: int) -> subprocess.Popen[bytes]:
        address = self.addresses[number]
        config = self._folder / f"member-{number}.yaml"
        members = ", ".join(f'"{each}"' for each in self.addresses)
        config.write_text(_CONFIG.format(cluster=CLUSTER, port=address.rpartition(":")[2], members=members))
        opened = [part for package in OPENED for part in ("--add-opens", f"{package}=ALL-UNNAMED")]
        internal = ["--add-modules", "java.se", "--add-exports", "java.base/jdk.internal.ref=ALL-UNNAMED"]
        jars = [*(JAVA / "target" / "dependency").glob("hazelcast-*.jar")]
        if not jars:
            raise PeerError(f"no jar of Hazelcast in {JAVA}/target/dependency: run make benchmark-peers")
        words = ["java", "-Xmx1g", *internal, *opened, f"-Dhazelcast.config={config}", "-cp", str(jars[0])]
        log = self._folder / f"member-{number}.log"
        with log.open("w") as output:
            process = subprocess.Popen([*words, _STARTER], stdout=output, stderr=subprocess.STDOUT)
        # One after the other: those that start at once may form two clusters, which merge later.
        while f"Members {{size:{number + 1}," not in log.read_text():
            if process.poll() is not None:
                raise PeerError(f"a member of Hazelcast has ended: {log.read_text()[-2000:]}")
            time.sleep(0.1)
        return process


class HazelcastGrid:
    """Members and their client, each a process.

    Args:
        folder: For their configuration and output.
        members: How many.
        entries: How many the client puts.
        size: Bytes of each.
    """

    def __init__(self, folder: Path, members: int, entries: int, size: int) -> None:
        self._folder = folder
        self._members = HazelcastMembers(folder, members)
        arguments = [CLUSTER, str(entries), str(size), *self._members.addresses]
        self._client = subprocess.Popen(
            [PYTHON, str(Path(__file__).parent / "peers" / "hazelcast_client.py"), *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=(folder / "client.log").open("w"),
            text=True,
        )
        self._said()

    def put(self) -> float:
        """Put all entries; returns the seconds that it took."""
        return self._told("put")

    def get(self) -> float:
        """Get all entries."""
        return self._told("get")

    def clear(self) -> None:
        """Start over."""
        self._told("clear")

    def kill(self) -> None:
        """Kill a member."""
        self._members.kill()

    def end(self) -> None:
        """Kill all processes."""
        self._client.kill()
        self._client.wait()
        self._members.end()

    def _told(self, what: str) -> float:
        assert self._client.stdin is not None  # noqa: S101 - for mypy
        self._client.stdin.write(f"{what}\n")
        self._client.stdin.flush()
        return float(self._said())

    def _said(self) -> str:
        assert self._client.stdout is not None  # noqa: S101 - for mypy
        line = self._client.stdout.readline()
        if not line:
            raise PeerError(f"Hazelcast's client has ended: {(self._folder / 'client.log').read_text()[-2000:]}")
        return line


@contextlib.contextmanager
def hazelcast(folder: Path, members: int, entries: int, size: int) -> Iterator[HazelcastGrid]:
    """A grid that ends with the block."""
    grid = HazelcastGrid(folder, members, entries, size)
    try:
        yield grid
    finally:
        grid.end()


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens at."""
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
