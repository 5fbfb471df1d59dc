"""A private RabbitMQ node on the loopback address, started, killed and restarted by process id."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from uuid import uuid4

import pika
from pika.exceptions import AMQPConnectionError
from typing_extensions import Self

from tests.servers.programs import NoProgramError, Program, free_port, listens

DEBIAN = Path("/usr/lib/rabbitmq/bin")
ERLANG = "-kernel inet_dist_use_interface {127,0,0,1} +S 2:2 +sbwt none -noinput"
"""On the loopback address, in two threads, which do not spin while they wait."""
REMEDY = "apt-get install rabbitmq-server (3.10 or newer)"


def binaries(debian: Path = DEBIAN) -> Path:
    """The directory of the server's scripts.

    Raises:
        NoProgramError: Saying what to install.
    """
    if not (debian / "rabbitmq-server").exists() or shutil.which("epmd") is None:
        message = f"no RabbitMQ found: {REMEDY}"
        raise NoProgramError(message)
    return debian


class RabbitServer:
    """One node with its own directory; a context manager that leaves no process and no file behind.

    Args:
        settings: Other settings of the node, over those below.
        scripts: The directory of its scripts; found by itself by default.
        arguments: Further ones of Erlang's, for settings that the file cannot say.
    """

    def __init__(
        self, settings: dict[str, str] | None = None, scripts: Path | None = None, arguments: str = ""
    ) -> None:
        scripts = binaries() if scripts is None else scripts
        self._home = Path(tempfile.mkdtemp(prefix="sparkjet-rabbitmq-"))
        self.port, names, distribution = free_port(), free_port(), free_port()
        chosen = {"listeners.tcp.1": f"127.0.0.1:{self.port}", "log.console": "true", **(settings or {})}
        (self._home / "rabbitmq.conf").write_text("".join(f"{name} = {value}\n" for name, value in chosen.items()))
        (self._home / "enabled_plugins").write_text("[].")
        (self._home / "environment").touch()
        environment = {
            "PATH": os.environ["PATH"],
            # Of the cookie by which Erlang's nodes trust each other.
            "HOME": str(self._home),
            "RABBITMQ_NODENAME": f"t{uuid4().hex[:8]}@localhost",
            "RABBITMQ_MNESIA_BASE": str(self._home / "data"),
            "RABBITMQ_LOG_BASE": str(self._home / "log"),
            "RABBITMQ_PID_FILE": str(self._home / "pid"),
            "RABBITMQ_CONFIG_FILE": str(self._home / "rabbitmq"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(self._home / "enabled_plugins"),
            "RABBITMQ_CONF_ENV_FILE": str(self._home / "environment"),
            # Otherwise a shell stays between, and the node outlives it.
            "RABBITMQ_ALLOW_INPUT": "true",
            "RABBITMQ_DIST_PORT": str(distribution),
            "ERL_EPMD_PORT": str(names),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            # A node that is killed leaves it in the working directory otherwise.
            "ERL_CRASH_DUMP": str(self._home / "erl_crash.dump"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": f"{ERLANG} {arguments}",
        }
        # Its own, started first: otherwise the node starts one that outlives it.
        self._names = Program(
            ["epmd", "-port", str(names), "-address", "127.0.0.1"],
            self._home / "epmd.log",
            lambda: listens(names),
            environment,
        )
        self._node = Program([str(scripts / "rabbitmq-server")], self._home / "node.log", self._answers, environment)

    def __enter__(self) -> Self:
        try:
            self._names.start()
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        self._names.kill()
        shutil.rmtree(self._home, ignore_errors=True)

    @property
    def uri(self) -> str:
        """How to connect to it."""
        return f"amqp://guest:guest@127.0.0.1:{self.port}/%2F"

    def connection(self) -> pika.BlockingConnection:
        """A connection of a test's own."""
        return pika.BlockingConnection(pika.URLParameters(self.uri))

    def queue(self, *, quorum: bool = False) -> str:
        """A new durable queue."""
        name = f"t{uuid4().hex}"
        connection = self.connection()
        connection.channel().queue_declare(
            name, durable=True, arguments={"x-queue-type": "quorum" if quorum else "classic"}
        )
        connection.close()
        return name

    def start(self) -> None:
        """Start the node and wait until it takes connections."""
        self._node.start()

    def restart(self) -> None:
        """End the node in order and start it again: killed, it may forget queues that are only seconds old."""
        self._node.end()
        self.start()

    def kill(self) -> None:
        """End the node as a power cut of its process would."""
        self._node.kill()

    def _answers(self) -> bool:
        if not listens(self.port):
            return False
        try:
            self.connection().close()
        except AMQPConnectionError:
            return False
        return True
