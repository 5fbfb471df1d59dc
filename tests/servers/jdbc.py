"""Databases reached through Java: Debian's MariaDB, and drivers, of which that of H2 is the database itself."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from typing_extensions import Self

from tests.servers import programs
from tests.servers.programs import TARGET, NoProgramError, Program, free_port, listens

USER, PASSWORD = "clerk", "it's; secret"
"""Who may do everything in all databases."""
_ROOT = "mysql"
"""Who runs the server if we are root; Debian's package makes it."""


def drivers(folder: Path = TARGET) -> list[Path]:
    """The jars of the drivers; the first call loads them through Maven (5 MB).

    Raises:
        NoProgramError: Saying what to install.
    """
    return sorted(programs.jars(Path(__file__).with_suffix(".xml"), folder).glob("*.jar"))


class MariaServer:
    """One server with its own directory; a context manager that leaves no process and no file behind.

    Raises:
        NoProgramError: Saying what to install.
    """

    def __init__(self) -> None:
        for program in ("mariadbd", "mariadb-install-db", "mariadb"):
            if shutil.which(program, path=f"{os.environ['PATH']}:/usr/sbin") is None:
                raise NoProgramError(f"no {program} to start MariaDB with: apt-get install mariadb-server")
        self._home = Path(tempfile.mkdtemp(prefix="sparkjet-mariadb-"))
        self.port = free_port()
        self._socket = self._home / "socket"
        as_user = []
        if os.geteuid() == 0:
            os.chown(self._home, pwd.getpwnam(_ROOT).pw_uid, -1)
            as_user = [f"--user={_ROOT}"]
        data = f"--datadir={self._home / 'data'}"
        made = ["mariadb-install-db", "--no-defaults", *as_user, data, "--auth-root-authentication-method=normal"]
        done = subprocess.run([*made, "--skip-test-db"], check=False, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        settings = ["--bind-address=127.0.0.1", f"--port={self.port}", f"--socket={self._socket}"]
        # A killed process loses nothing with 2 either, and tests save the time.
        quick = ["--innodb-flush-log-at-trx-commit=2", "--innodb-buffer-pool-size=32M", "--skip-log-bin"]
        command = ["/usr/sbin/mariadbd", "--no-defaults", *as_user, data, *settings, *quick]
        self._server = Program(command, self._home / "log", self._answers)

    def __enter__(self) -> Self:
        try:
            self._server.start()
            self.sql(f"CREATE USER {USER} IDENTIFIED BY '{PASSWORD.replace(chr(39), chr(39) * 2)}'")
            self.sql(f"GRANT ALL ON *.* TO {USER}")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._server.kill()
        shutil.rmtree(self._home, ignore_errors=True)

    def restart(self) -> None:
        """Kill it, as a power cut of its process would, and start it again."""
        self._server.kill()
        self._server.start()

    def options(self, database: str) -> Mapping[str, str]:
        """How Spark connects to a database."""
        url = f"jdbc:mysql://127.0.0.1:{self.port}/{database}?permitMysqlScheme"
        return {"url": url, "driver": "org.mariadb.jdbc.Driver", "user": USER, "password": PASSWORD}

    def sql(self, statement: str, database: str = "") -> list[list[str]]:
        """The rows of a statement as the server's own client prints them: it shares nothing with the sink."""
        command = ["mariadb", "--no-defaults", f"--socket={self._socket}", "-uroot", "-N", "-B", "-e", statement]
        done = subprocess.run(
            [*command, *([database] if database else [])], check=False, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return [line.split("\t") for line in done.stdout.splitlines()]

    def _answers(self) -> bool:
        if not listens(self.port):
            return False
        command = ["mariadb", "--no-defaults", f"--socket={self._socket}", "-uroot", "-e", "SELECT 1"]
        return subprocess.run(command, check=False, capture_output=True).returncode == 0
