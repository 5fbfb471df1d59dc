"""A private S3 server on the loopback address: versitygw, or S3Proxy where there is no Go to build it with."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

from typing_extensions import Self

from tests.servers.programs import SMALL, TARGET, NoProgramError, Program, free_port, jars, java, listens, loaded

VERSION = "v1.8.0"
_MODULE = "github.com/versity/versitygw/cmd/versitygw"
_HERE = Path(__file__).parent
USER, PASSWORD = "sparkjet", "let-me-in"
BUCKET = "tests"


def client(folder: Path = TARGET) -> list[Path]:
    """Hadoop's client of S3: jars for Spark's class path.

    Raises:
        NoProgramError: They cannot be loaded.
    """
    return sorted(jars(_HERE / "s3a.xml", folder).glob("*.jar"))


def proxy(folder: Path = TARGET) -> Path:
    """The directory of the jars of the server that needs no Go.

    Raises:
        NoProgramError: They cannot be loaded.
    """
    return jars(_HERE / "s3proxy.xml", folder)


def versitygw(folder: Path = TARGET) -> Path | None:
    """The server's program, which the first call builds; None without Go."""
    found = folder / f"versitygw-{VERSION}"
    go = shutil.which("go")
    if not found.is_dir():
        if go is None:
            return None

        def build(into: Path) -> None:
            environment = {**os.environ, "GOBIN": str(into), "CGO_ENABLED": "0"}
            command = [go, "install", f"{_MODULE}@{VERSION}"]
            done = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)
            if done.returncode != 0:
                raise NoProgramError(f"Go cannot build versitygw {VERSION}: {done.stderr[-1000:]}")

        loaded(found, build)
    return found / "versitygw"


class S3Server:
    """One server with a bucket; a context manager that leaves no process and no file behind.

    Args:
        gateway: Finds versitygw; None for S3Proxy.
    """

    def __init__(self, gateway: Callable[[], Path | None] | None = versitygw) -> None:
        self._home = Path(tempfile.mkdtemp(prefix="sparkjet-s3-"))
        self.port = free_port()
        self.endpoint = f"http://127.0.0.1:{self.port}"
        self._data = self._home / "data"
        (self._data / BUCKET).mkdir(parents=True)
        program = None if gateway is None else gateway()
        command = self._proxy(self._data) if program is None else self._gateway(program, self._data)
        credentials = {"ROOT_ACCESS_KEY": USER, "ROOT_SECRET_KEY": PASSWORD}
        self._program = Program(command, self._home / "log", lambda: listens(self.port), {**os.environ, **credentials})

    def __enter__(self) -> Self:
        self._program.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._program.kill()
        shutil.rmtree(self._home, ignore_errors=True)

    @property
    def pid(self) -> int:
        """Process id of the running server."""
        return self._program.pid

    def bucket(self) -> str:
        """One more bucket; Hadoop keeps a client for each, with the settings of the time when it was opened."""
        name = f"tests-{uuid4().hex}"
        (self._data / name).mkdir()
        return name

    def restart(self) -> None:
        """Kill it and start it again."""
        with self.away():
            pass

    @contextmanager
    def away(self) -> Iterator[None]:
        """Kill it; it is started again when the block ends."""
        self._program.kill()
        try:
            yield
        finally:
            self._program.start()

    def settings(self, endpoint: str | None = None) -> dict[str, str]:
        """How Hadoop's client reaches it, perhaps through a proxy."""
        return {
            "fs.s3a.endpoint": endpoint or self.endpoint,
            "fs.s3a.endpoint.region": "us-east-1",
            "fs.s3a.access.key": USER,
            "fs.s3a.secret.key": PASSWORD,
            "fs.s3a.path.style.access": "true",
            "fs.s3a.connection.ssl.enabled": "false",
            "fs.s3a.attempts.maximum": "3",
            "fs.s3a.retry.limit": "3",
        }

    def _gateway(self, program: Path, data: Path) -> list[str]:
        return [str(program), "--port", f"127.0.0.1:{self.port}", "--quiet", "posix", str(data)]

    def _proxy(self, data: Path) -> list[str]:
        settings = {
            "s3proxy.endpoint": self.endpoint,
            "s3proxy.authorization": "aws-v2-or-v4",
            "s3proxy.identity": USER,
            "s3proxy.credential": PASSWORD,
            "jclouds.provider": "filesystem-nio2",
            "jclouds.filesystem.basedir": str(data),
            "jclouds.identity": "unused",
            "jclouds.credential": "unused",
        }
        written = self._home / "s3proxy.conf"
        written.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        classes = f"{proxy()}/*"
        return [java(), "-Xmx256m", *SMALL, "-cp", classes, "org.gaul.s3proxy.Main", "--properties", str(written)]
