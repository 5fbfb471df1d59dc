"""A ZooKeeper server as the child process of a member, from the jars of an installed PySpark, or of a directory."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

from sparkjet_grid.errors import AnalysisError, StorageError
from sparkjet_grid.log import logger
from sparkjet_grid.zookeeper_config import ServerAddress, dynamic, login, static
from sparkjet_grid.zookeeper_settings import ZooKeeperSettings

_NETTY = (
    "buffer",
    "codec-base",
    "common",
    "handler",
    "resolver",
    "transport",
    "transport-classes-epoll",
    "transport-native-unix-common",
)
_JARS = (
    *("zookeeper", "zookeeper-jute", "slf4j-api", "metrics-core", "snappy-java"),
    # For TLS, and for the authentication of servers: ZooKeeper's SASL refers to its classes.
    *(f"netty-{part}" for part in _NETTY),
)
_TIED = """
umask 077
home=$1; shift
exec 3<&0 </dev/null
(read -r line <&3 || { kill -KILL $$; rm -rf "$home" || rm -rf "$home"; }) &
exec 3<&-
exec "$@"
"""
"""Kills the program when its standard input ends without a line: then the member has died, which a JVM does not notice.

Files are for their owner only: ZooKeeper rewrites its configuration, including secrets."""
_WAY_OUT = (
    "Install pyspark on the machines of the members (pyspark-client comes without jars), or name a directory with the "
    "jars: --jars."
)
_LOGIN = "login.conf"
_KEPT_SNAPSHOTS = 3
_NEEDS = 16 << 20
"""Bytes of disk."""
_NUMBERED = re.compile(r"^(log|snapshot)\.([0-9a-f]+)(\..*)?$")


def java() -> str:
    """The Java executable that Spark would use."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which(f"{home}/bin/java" if home else "java")
    if found is None:
        where = f"JAVA_HOME is {home}, where there is no bin/java" if home else "there is no java on the PATH"
        raise AnalysisError(f"A grid of several members needs Java 17 or newer, as Spark does: {where}.")
    return found


def jars(named: str | None = None) -> list[Path]:
    """The jars that a server needs."""
    if named is None:
        # Not imported: it is not used, and would take a second and 50 MB.
        spec = importlib.util.find_spec("pyspark")
        if spec is None or spec.origin is None:
            raise AnalysisError(f"A grid of several members runs ZooKeeper from PySpark's jars. {_WAY_OUT}")
        folder = Path(spec.origin).with_name("jars")
    else:
        folder = Path(named)
    found = {name: next(iter(sorted(folder.glob(f"{name}-[0-9]*.jar"))), None) for name in _JARS}
    missing = [name for name, path in found.items() if path is None]
    if missing:
        whose = "PySpark's jars" if named is None else "the jars of --jars"
        lacks = f"{folder} has no {', no '.join(missing)}"
        raise AnalysisError(f"A grid of several members runs ZooKeeper from {whose}, and {lacks}. {_WAY_OUT}")
    return [path for path in found.values() if path is not None]


class ZooKeeperServer:
    """One server with its own directory, from :meth:`start` to :meth:`stop`; its id is never reused.

    Args:
        address: Of the server.
        settings: Of the control plane.
    """

    def __init__(self, address: ServerAddress, settings: ZooKeeperSettings) -> None:
        self.address = address
        self._settings = settings
        self._command = [
            java(),
            f"-Xmx{settings.heap}m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
            # A server that is out of memory would hang around without answering.
            "-XX:+ExitOnOutOfMemoryError",
            # Otherwise it reports a missing logger before its last words.
            "-Dslf4j.internal.verbosity=ERROR",
            # None of the member's own Java settings, which are for Spark.
            f"-Djava.security.auth.login.config={_LOGIN}",
            "-cp",
            ":".join(map(str, jars(settings.jars))),
            "org.apache.zookeeper.server.quorum.QuorumPeerMain",
        ]
        self._home = Path(tempfile.mkdtemp(prefix="sparkjet-grid-", dir=_made(settings.directory)))
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """The id of the process; None before the start."""
        return self._process.pid if self._process is not None else None

    @property
    def runs(self) -> bool:
        """Whether the process is running."""
        return self._process is not None and self._process.poll() is None

    @property
    def is_whole(self) -> bool:
        """Whether its files exist; restarted without them, it would have forgotten what it has acknowledged."""
        return self._id.exists() and self._database.is_dir()

    @property
    def _id(self) -> Path:
        return self._home / "data" / "myid"

    @property
    def _database(self) -> Path:
        return self._home / "data" / "version-2"

    def start(self, voters: Iterable[str], *, is_first: bool = False) -> None:
        """Start the server; it may take seconds to answer."""
        if self._process is not None and not self.is_whole:
            raise StorageError(f"The ZooKeeper server of this member cannot be started again: {self._lacks()}.")
        # The shell that watches the previous process must not take its end for the member's.
        self.halt()
        if self._process is None:
            self._database.mkdir(parents=True)
            # Written only once: a cleaner that goes by age takes the oldest file first, and this one is checked.
            self._id.write_text(f"{self.address.id}\n", encoding="ascii")
        if is_first:
            (self._home / "data" / "initialize").touch()
        # Before there is a process, so that an error names the file.
        if self._settings.is_encrypted:
            self._copy("member.pem", "certificate", "key")
            self._copy("authorities.pem", "authorities")
        # Rewritten at every start, and without the versions that servers keep beside it.
        for old in self._home.glob("voters*"):
            old.unlink()
        self._write("voters", dynamic(voters))
        self._write(_LOGIN, login(self._settings))
        config = self._write("zoo.cfg", static(self._settings, self.address, self._home, self._home / "voters"))
        environment = {
            name: value for name, value in os.environ.items() if name not in {"JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS"}
        }
        with (self._home / "server.log").open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603 - our own program and arguments
                ["/bin/sh", "-c", _TIED, "sparkjet-grid", str(self._home), *self._command, str(config)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                cwd=self._home,
                env=environment,
                # An interrupt from the terminal lets the member leave, for which it needs its server.
                start_new_session=True,
            )

    def halt(self) -> None:
        """Kill the process and keep its directory, on which it can be restarted."""
        process = self._process
        if process is not None:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
            self._release(process)
            process.wait()

    def stop(self) -> None:
        """Kill the process and remove its directory; a second call does nothing."""
        self.halt()
        shutil.rmtree(self._home, ignore_errors=True)

    def why(self) -> str:
        """The reason why it does not serve, for messages; empty if nothing is known."""
        found = [self._lacks()]
        if self._process is not None and not self.runs:
            log = self._home / "server.log"
            said = " ".join(log.read_text(errors="replace")[-1000:].split()) if log.exists() else ""
            found.append(f"its process ended with {self._process.returncode}: {said or 'without a message'}")
        return "; ".join(each for each in found if each)

    def _lacks(self) -> str:
        # It cannot say so itself, as its log is on the same disk.
        if not self.is_whole:
            return f"files in its directory {self._home} were removed, perhaps by a cleaner of temporary files"
        return full(self._home)

    def purge(self) -> None:
        """Remove old snapshots, and logs that no snapshot needs; ZooKeeper itself would do so hourly."""
        numbered = [
            (int(match[2], 16), match[1], path)
            for path in self._database.glob("*")
            if (match := _NUMBERED.match(path.name))
        ]
        snapshots = sorted(number for number, kind, _ in numbered if kind == "snapshot")[-_KEPT_SNAPSHOTS:]
        if len(snapshots) < _KEPT_SNAPSHOTS:
            return
        # A log is named after its first transaction: one that begins before a snapshot may extend beyond it.
        needed = max((number for number, kind, _ in numbered if kind == "log" and number <= snapshots[0]), default=0)
        for number, kind, path in numbered:
            if number < (snapshots[0] if kind == "snapshot" else needed):
                path.unlink(missing_ok=True)

    def _copy(self, name: str, *files: str) -> None:
        try:
            self._write(name, "".join(map(self._settings.pem, files)))
        except AnalysisError as error:
            if not (self._home / name).exists():
                raise
            logger.warning("A ZooKeeper server starts again with the certificates that it had: %s", error)

    def _write(self, name: str, content: str) -> Path:
        path = self._home / name
        # While it is empty, so that nobody else can have opened it.
        path.touch(mode=0o600)
        path.write_text(content, encoding="ascii")
        return path

    @staticmethod
    def _release(process: subprocess.Popen[bytes]) -> None:
        # The watching shell must not kill another process that gets this one's id.
        if process.stdin is not None and not process.stdin.closed:
            try:
                process.stdin.write(b"\n")
                process.stdin.close()
            except BrokenPipeError:
                # The shell was killed as well.
                return


def check_server(settings: ZooKeeperSettings) -> None:
    """Refuse a machine on which no server would start, as it may be asked to run one at any time."""
    java()
    jars(settings.jars)
    if settings.is_encrypted:
        for name in ("certificate", "key", "authorities"):
            settings.pem(name)
    directory = _made(settings.directory)
    is_usable = directory.is_dir() and os.access(directory, os.W_OK | os.X_OK)
    why = full(directory) if is_usable else f"{directory} is not a directory that this user can write to"
    if why:
        raise AnalysisError(f"A member keeps the files of its ZooKeeper server below TMPDIR: {why}.")


def _made(directory: str) -> Path:
    """The directory for those of servers, recreated if it was removed and that is possible."""
    path = Path(directory)
    with contextlib.suppress(OSError):
        # Writing there will raise an error that says what is wrong.
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    return path


def full(directory: Path) -> str:
    """Text that says that a disk is full; empty if it has room for a server."""
    free = shutil.disk_usage(directory).free
    if free >= _NEEDS:
        return ""
    return f"the disk of {directory} has {free >> 10} kB left, and a ZooKeeper server needs {_NEEDS >> 20} MB"
