"""A private HDFS on the loopback address: a real NameNode and a real DataNode, each in its own JVM."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from typing_extensions import Self

from tests.servers.programs import SMALL, Program, free_port, jars, java

POM = Path(__file__).with_suffix(".xml")
_SERVER = "org.apache.hadoop.hdfs.server"


class HdfsServer:
    """One NameNode and one DataNode; a context manager that leaves no process and no file behind.

    Args:
        classes: The directory of the jars; found by itself by default.
    """

    def __init__(self, classes: Path | None = None) -> None:
        self._classes = jars(POM) if classes is None else classes
        self._home = Path(tempfile.mkdtemp(prefix="sparkjet-hdfs-"))
        self._port, self._status = free_port(), free_port()
        self.uri = f"hdfs://127.0.0.1:{self._port}"
        here = "127.0.0.1"
        settings = {
            "fs.defaultFS": self.uri,
            "hadoop.tmp.dir": f"{self._home}/temporary",
            "dfs.namenode.name.dir": f"file:{self._home}/names",
            "dfs.datanode.data.dir": f"file:{self._home}/data",
            "dfs.namenode.rpc-bind-host": here,
            "dfs.namenode.http-address": f"{here}:{self._status}",
            "dfs.datanode.address": f"{here}:0",
            "dfs.datanode.http.address": f"{here}:0",
            "dfs.datanode.ipc.address": f"{here}:0",
            "dfs.datanode.hostname": here,
            "dfs.namenode.datanode.registration.ip-hostname-check": "false",
            "dfs.replication": "1",
            "dfs.namenode.safemode.extension": "0",
            "dfs.heartbeat.interval": "1",
            "dfs.permissions.superusergroup": "root",
        }
        properties = "".join(f"<property><name>{k}</name><value>{v}</value></property>" for k, v in settings.items())
        for name in ("core-site.xml", "hdfs-site.xml"):
            (self._home / name).write_text(f"<configuration>{properties}</configuration>")
        self.name_node = self._program("namenode.NameNode", "names")
        self.data_node = self._program("datanode.DataNode", "data")

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            # What has started would outlive the test.
            self.__exit__()
            raise
        return self

    def _start(self) -> None:
        formatted = subprocess.run(
            [*self._command("namenode.NameNode"), "-format", "-nonInteractive"],
            check=False,
            capture_output=True,
            text=True,
        )
        assert formatted.returncode == 0, formatted.stderr[-3000:]
        # Side by side: each takes seconds to start.
        self.name_node.launch()
        self.data_node.launch()
        self.name_node.wait(self._answers, "the NameNode to know its DataNode")

    def __exit__(self, *_: object) -> None:
        self.data_node.kill()
        self.name_node.kill()
        shutil.rmtree(self._home, ignore_errors=True)

    def restart_names(self) -> None:
        """Kill the NameNode and start it again."""
        with self.away():
            pass

    @contextmanager
    def away(self) -> Iterator[None]:
        """Kill the NameNode; it is started again when the block ends."""
        self.name_node.kill()
        try:
            yield
        finally:
            self.name_node.start()

    def _program(self, main: str, log: str) -> Program:
        return Program(self._command(main), self._home / f"{log}.log", self._answers)

    def _command(self, main: str) -> list[str]:
        quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
        return [java(), "-Xmx256m", *SMALL, quiet, "-cp", f"{self._home}:{self._classes}/*", f"{_SERVER}.{main}"]

    def _answers(self) -> bool:
        """Whether the NameNode has left its safe mode and has a DataNode."""
        query = f"http://127.0.0.1:{self._status}/jmx?qry=Hadoop:service=NameNode,name=FSNamesystemState"
        try:
            with urllib.request.urlopen(query, timeout=5) as answer:
                (state,) = json.load(answer)["beans"]
        except (OSError, ValueError, urllib.error.URLError):
            return False
        return bool(state["NumLiveDataNodes"] == 1 and state["FSState"] == "Operational")
