"""A private metastore of Hive's on the loopback address, over Derby in memory: both are among PySpark's jars."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pyspark
from typing_extensions import Self

from tests.servers.programs import SMALL, Program, free_port, java, listens

_SERVER = "org.apache.hadoop.hive.metastore.HiveMetaStore"


class HiveMetastore:
    """One metastore; a context manager that leaves no process and no file behind."""

    def __init__(self) -> None:
        self._home = Path(tempfile.mkdtemp(prefix="sparkjet-hive-"))
        self.warehouse = self._home / "warehouse"
        self._port = free_port()
        classes = Path(pyspark.__file__).parent / "jars"
        # Where it logs, and Derby too.
        here = [f"-Djava.io.tmpdir={self._home}", f"-Dderby.stream.error.file={self._home}/derby.log"]
        settings = {
            "javax.jdo.option.ConnectionURL": "jdbc:derby:memory:metastore;create=true",
            "hive.metastore.warehouse.dir": str(self.warehouse),
            "datanucleus.schema.autoCreateAll": "true",
            "hive.metastore.schema.verification": "false",
            # The pool that it would take by default is not among the jars.
            "datanucleus.connectionPoolingType": "NONE",
            # The library that this would need is not among the jars.
            "hive.async.log.enabled": "false",
        }
        given = [part for name, value in settings.items() for part in ("--hiveconf", f"{name}={value}")]
        command = [java(), "-Xmx400m", *SMALL, *here, "-cp", f"{classes}/*", _SERVER, "-p", str(self._port), *given]
        self._program = Program(command, self._home / "log", lambda: listens(self._port))

    def __enter__(self) -> Self:
        self._program.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._program.kill()
        shutil.rmtree(self._home, ignore_errors=True)

    def settings(self) -> dict[str, str]:
        """How Iceberg's client reaches it."""
        return {
            "type": "hive",
            "uri": f"thrift://127.0.0.1:{self._port}",
            "warehouse": str(self.warehouse),
            # It compares the metadata's location itself, since 2.3.10; the tables of its locks it makes for its own
            # tests only.
            "hadoop.iceberg.engine.hive.lock-enabled": "false",
        }
