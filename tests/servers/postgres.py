"""A private PostgreSQL server on the loopback address, started, killed and restarted by process id."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
from pathlib import Path

import psycopg
from psycopg.conninfo import make_conninfo
from typing_extensions import Self

from tests.servers.programs import PATIENCE

DEBIAN = Path("/usr/lib/postgresql")
OLDEST = 13
REMEDY = "apt-get install postgresql (13 or newer), or put its server programs (initdb, postgres) on the PATH"
USER = "postgres"
"""Who runs the server if we are root; Debian's package makes it."""
GUARDED = "guarded"
"""A user that needs a password; everybody else is trusted."""


class NoServerError(Exception):
    """This machine has no PostgreSQL that tests can start."""


def binaries(debian: Path = DEBIAN, *, root: bool = os.geteuid() == 0, user: str = USER) -> Path:
    """The directory of the newest server programs on this machine: Debian's, or one on the PATH.

    Args:
        debian: Where Debian puts them.
        root: Whether we are root, as whom they do not run.
        user: As whom they run then.

    Raises:
        NoServerError: Saying what to install.
    """
    found = list(debian.glob("*/bin"))
    on_path = shutil.which("postgres")
    if on_path is not None:
        found.append(Path(on_path).resolve().parent)
    versions = {folder: _version(folder) for folder in found if (folder / "initdb").exists()}
    newest = max(versions, key=versions.__getitem__, default=None)
    if newest is None or versions[newest] < OLDEST:
        raise NoServerError(f"no PostgreSQL server found: {REMEDY}")
    if root and user not in {each.pw_name for each in pwd.getpwall()}:
        message = f"root cannot run PostgreSQL, and there is no user {user} to run it as: useradd --system {user}"
        raise NoServerError(message)
    return newest


class PostgresServer:
    """One cluster with its own directory; a context manager that leaves no process and no file behind.

    Args:
        prepared: The server's ``max_prepared_transactions``.
        durable: Whether it waits for the disk. Killing processes loses nothing either way, and tests save the time.
        settings: Other settings of the server.
        home: A directory that the server's user may write (a small file system, say); a temporary one by default.
        programs: The directory of the server programs; found by itself by default.
    """

    def __init__(
        self,
        prepared: int = 64,
        *,
        durable: bool = False,
        settings: dict[str, str] | None = None,
        home: Path | None = None,
        programs: Path | None = None,
    ) -> None:
        self._programs = binaries() if programs is None else programs
        self._home = Path(tempfile.mkdtemp(prefix="sparkjet-postgres-", dir=home))
        self._process: subprocess.Popen[bytes] | None = None
        self.port = _free_port()
        self._as_user: list[str] = []
        if os.geteuid() == 0:
            user = pwd.getpwnam(USER)
            os.chown(self._home, user.pw_uid, user.pw_gid)
            self._as_user = ["setpriv", f"--reuid={USER}", f"--regid={user.pw_gid}", "--clear-groups"]
        data = self._home / "data"
        self._run("initdb", "-D", str(data), "-U", "test", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
        chosen = {
            "port": str(self.port),
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": str(self._home),
            "max_prepared_transactions": str(prepared),
            "fsync": "on" if durable else "off",
            "log_line_prefix": "%m [%p] ",
            **(settings or {}),
        }
        with (data / "postgresql.auto.conf").open("a") as file:
            file.writelines(f"{name} = '{value}'\n" for name, value in chosen.items())
        rules = f"host all {GUARDED} 127.0.0.1/32 scram-sha-256\nhost all all 127.0.0.1/32 trust\n"
        (data / "pg_hba.conf").write_text(rules)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        shutil.rmtree(self._home, ignore_errors=True)

    @property
    def pid(self) -> int:
        """Process id of the running server."""
        assert self._process is not None
        return self._process.pid

    def dsn(self, database: str = "postgres", user: str = "test", **more: str) -> str:
        """How to connect to it."""
        return make_conninfo("", host="127.0.0.1", port=str(self.port), dbname=database, user=user, **more)

    def start(self) -> None:
        """Start it and wait until it takes connections; tried again while a killed one's memory is still in use."""
        pause = threading.Event()
        for _ in range(int(PATIENCE / 0.05)):
            if self._process is None or self._process.poll() is not None:
                self._process = self._spawn()
            try:
                psycopg.connect(self.dsn(), connect_timeout=5).close()
            except psycopg.OperationalError:
                pause.wait(0.05)
            else:
                return
        raise AssertionError(f"PostgreSQL does not start:\n{self.log()[-2000:]}")

    def stop(self) -> None:
        """End it, rolling back what is open; a stopped server stays as it is."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """End it as a power cut of its processes would."""
        self._end(signal.SIGKILL)

    def log(self) -> str:
        """Its output."""
        return (self._home / "log").read_text(errors="replace")

    def database(self, name: str, encoding: str = "UTF8") -> str:
        """Create a database of its own for one test; how to connect to it."""
        # Only the empty template may be copied into another encoding.
        statement = f"CREATE DATABASE \"{name}\" TEMPLATE template0 ENCODING '{encoding}'"
        with psycopg.connect(self.dsn(), autocommit=True) as connection:
            connection.execute(statement.encode())
        return self.dsn(name)

    def psql(self, dsn: str, query: str) -> list[list[str]]:
        """The rows of a query as psql prints them: a reader that shares nothing with the sink."""
        command = [str(self._programs / "psql"), "-X", "-At", "-F", "\t", "-d", dsn, "-c", query]
        done = subprocess.run(command, check=True, capture_output=True, text=True, cwd="/")
        return [line.split("\t") for line in done.stdout.splitlines()]

    def _spawn(self) -> subprocess.Popen[bytes]:
        command = [*self._as_user, str(self._programs / "postgres"), "-D", str(self._home / "data")]
        if shutil.which("setpriv"):
            # A test run that is killed takes its server with it.
            command = [*(self._as_user or ["setpriv"]), "--pdeathsig", "INT", *command[len(self._as_user) :]]
        with (self._home / "log").open("ab") as log:
            return subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd="/")

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None and self._process.poll() is None:
            os.kill(self._process.pid, how)
            self._process.wait(PATIENCE)
        self._process = None

    def _run(self, program: str, *arguments: str) -> None:
        command = [*self._as_user, str(self._programs / program), *arguments]
        done = subprocess.run(command, check=False, capture_output=True, text=True, cwd="/")
        assert done.returncode == 0, done.stderr


def _version(folder: Path) -> int:
    text = subprocess.run([str(folder / "postgres"), "--version"], check=True, capture_output=True, text=True).stdout
    found = re.search(r"(\d+)", text)
    return int(found[1]) if found else 0


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
