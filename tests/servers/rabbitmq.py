"""A private RabbitMQ node on the loopback address, started, killed and restarted by process id."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
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
        raise NoProgramError(f"no RabbitMQ found: {REMEDY}")
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
        self._home, self._scripts = Path(tempfile.mkdtemp(prefix="sparkjet-rabbitmq-")), scripts
        self.port, names, distribution = free_port(), free_port(), free_port()
        chosen = {"listeners.tcp.1": f"127.0.0.1:{self.port}", "log.console": "true", **(settings or {})}
        (self._home / "rabbitmq.conf").write_text("".join(f"{name} = {value}\n" for name, value in chosen.items()))
        (self._home / "enabled_plugins").write_text("[].")
        (self._home / "environment").touch()
        self._environment = environment = {
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

    def queue(self, *, quorum: bool = False, **arguments: object) -> str:
        """A new durable queue; its arguments are called without ``x-``, and with underscores."""
        name = f"t{uuid4().hex}"
        given: dict[str, object] = {"queue_type": "quorum" if quorum else "classic", **arguments}
        connection = self.connection()
        named: dict[str, Any] = {f"x-{each}".replace("_", "-"): value for each, value in given.items()}
        connection.channel().queue_declare(name, durable=True, arguments=named)
        connection.close()
        return name

    def evaluate(self, *expressions: str) -> None:
        """Have the node evaluate expressions of Erlang, as its administrator does."""
        asked = [str(self._scripts / "rabbitmqctl"), "eval", f"{', '.join(expressions)}."]
        subprocess.run(asked, env=self._environment, check=True, capture_output=True)

    def add_host(self, name: str) -> None:
        """Add a virtual host, in which the usual user may do everything."""
        everything = ", ".join([_binary(".*")] * 3)
        self.evaluate(
            f'rabbit_vhost:add({_binary(name)}, <<"test">>)',
            f'rabbit_auth_backend_internal:set_permissions(<<"guest">>, {_binary(name)}, {everything}, <<"test">>)',
        )

    def add_user(
        self, name: str, password: str, *, host: str = "/", read: str = "^$", write: str = "^$", configure: str = "^$"
    ) -> None:
        """Add a user with patterns of what it may use; by default nothing."""
        patterns = ", ".join(map(_binary, (configure, write, read)))
        self.evaluate(
            f'rabbit_auth_backend_internal:add_user({_binary(name)}, {_binary(password)}, <<"test">>)',
            f'rabbit_auth_backend_internal:set_permissions({_binary(name)}, {_binary(host)}, {patterns}, <<"test">>)',
        )

    @contextmanager
    def short_of_memory(self) -> Iterator[None]:
        """Have it take no message meanwhile, as a node does that is short of memory."""
        alarm = "{resource_limit, memory, node()}"
        self.evaluate(f"rabbit_alarm:set_alarm({{{alarm}, []}})")
        try:
            yield
        finally:
            self.evaluate(f"rabbit_alarm:clear_alarm({alarm})")

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


def _binary(text: str) -> str:
    """A text as Erlang writes its bytes."""
    return f"<<{','.join(map(str, text.encode()))}>>"
