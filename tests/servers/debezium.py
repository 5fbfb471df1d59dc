"""Debezium in a worker of Kafka Connect on the loopback address: what is done to a database goes into topics."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from psycopg.conninfo import conninfo_to_dict
from typing_extensions import Self

from tests.servers.programs import PATIENCE, SMALL, free_port, jars, java

if TYPE_CHECKING:
    from tests.servers.kafka import KafkaServer


class Debezium:
    """A connector of PostgreSQL in its own worker; a context manager that leaves no process and no file behind.

    Args:
        kafka: Where its topics are; ``PREFIX.SCHEMA.TABLE``, which must be there.
        dsn: The database, on a server with ``wal_level=logical``.
        prefix: Begins the names of topics.
        schemas: Whether each message has its schema with it.
        settings: Other settings of the connector.

    Raises:
        NoProgramError: Saying what to install.
    """

    def __init__(
        self,
        kafka: KafkaServer,
        dsn: str,
        prefix: str,
        *,
        schemas: bool,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self._classes = jars(Path(__file__).with_suffix(".xml"))
        self._home = Path(tempfile.mkdtemp(prefix="sparkjet-debezium-"))
        self._process: subprocess.Popen[bytes] | None = None
        place = conninfo_to_dict(dsn)
        converter = "org.apache.kafka.connect.json.JsonConverter"
        worker = {
            "bootstrap.servers": kafka.bootstrap,
            "offset.storage.file.filename": str(self._home / "offsets"),
            "offset.flush.interval.ms": "100",
            "listeners": f"http://127.0.0.1:{free_port()}",
            # All there is is on the class path.
            "plugin.path": str(self._home),
            **{f"{part}.converter": converter for part in ("key", "value")},
            **{f"{part}.converter.schemas.enable": str(schemas).lower() for part in ("key", "value")},
        }
        connector = {
            "name": prefix,
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "database.hostname": "127.0.0.1",
            "database.port": str(place["port"]),
            "database.user": str(place["user"]),
            "database.password": "unused",
            "database.dbname": str(place["dbname"]),
            "topic.prefix": prefix,
            "plugin.name": "pgoutput",
            "slot.name": prefix,
            "publication.name": prefix,
            **(settings or {}),
        }
        for name, chosen in (("worker", worker), ("connector", connector)):
            text = "".join(f"{key}={value}\n" for key, value in chosen.items())
            (self._home / f"{name}.properties").write_text(text)

    def __enter__(self) -> Self:
        files = [str(self._home / f"{name}.properties") for name in ("worker", "connector")]
        level = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
        main = "org.apache.kafka.connect.cli.ConnectStandalone"
        command = [java(), "-Xmx512m", *SMALL, level, "-cp", f"{self._classes}/*", main, *files]
        if shutil.which("setpriv"):
            # A test run that is killed takes it with it.
            command = ["setpriv", "--pdeathsig", "KILL", *command]
        with (self._home / "log").open("ab") as log:
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=dict(os.environ), cwd=self._home
            )
        return self

    def __exit__(self, *_: object) -> None:
        assert self._process is not None
        if self._process.poll() is None:
            os.kill(self._process.pid, signal.SIGKILL)
        self._process.wait(PATIENCE)
        shutil.rmtree(self._home, ignore_errors=True)

    @property
    def runs(self) -> bool:
        """Whether it has not ended."""
        return self._process is not None and self._process.poll() is None

    def log(self) -> str:
        """Its output."""
        return (self._home / "log").read_text(errors="replace")
