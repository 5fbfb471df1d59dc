"""A private ActiveMQ Artemis broker on the loopback address, started, killed and restarted by process id."""

from __future__ import annotations

import json
import os
import queue
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import stomp
from stomp.exception import ConnectFailedException
from stomp.utils import Frame
from typing_extensions import Self

from tests.servers import programs
from tests.servers.programs import PATIENCE, SMALL, TARGET, Program, free_port, java, listens

POM = Path(__file__).with_suffix(".xml")
USER = PASSWORD = "guest"
"""Who may do everything."""
CLERK = "clerk"
"""Who may send and receive, and not manage; the password is the same."""
_STORE = "changeit"
_MANAGEMENT = "activemq.management"
_ALL = ("createAddress", "createDurableQueue", "createNonDurableQueue", "deleteNonDurableQueue", "send", "consume")
"""The permissions of both."""
_BROKER = """\
<configuration xmlns="urn:activemq"><core xmlns="urn:activemq:core">
  <name>sparkjet</name>
  <journal-type>NIO</journal-type>
  <journal-file-size>1M</journal-file-size>
  <journal-pool-files>10</journal-pool-files>
  <max-disk-usage>100</max-disk-usage>
  <connection-ttl-check-interval>100</connection-ttl-check-interval>
  <address-queue-scan-period>100</address-queue-scan-period>
  <graceful-shutdown-enabled>false</graceful-shutdown-enabled>
  <acceptors>{acceptors}</acceptors>
  <security-settings>
    <security-setting match="#">{permissions}</security-setting>
    <security-setting match="closed.#"><permission type="send" roles="owners"/></security-setting>
  </security-settings>
  <address-settings>
    <address-setting match="#">
      <max-delivery-attempts>-1</max-delivery-attempts>
      <auto-delete-queues>false</auto-delete-queues>
      <auto-delete-addresses>false</auto-delete-addresses>
    </address-setting>
    <address-setting match="sparkjet.#">
      <auto-delete-queues>true</auto-delete-queues>
      <auto-delete-addresses>true</auto-delete-addresses>
    </address-setting>
    <address-setting match="passing.#">
      <auto-delete-queues>true</auto-delete-queues>
      <auto-delete-addresses>true</auto-delete-addresses>
    </address-setting>
    <address-setting match="dropped.#">
      <max-delivery-attempts>3</max-delivery-attempts>
      <auto-delete-queues>false</auto-delete-queues>
    </address-setting>
    <address-setting match="buried.#">
      <max-delivery-attempts>3</max-delivery-attempts>
      <dead-letter-address>graveyard</dead-letter-address>
      <auto-delete-queues>false</auto-delete-queues>
    </address-setting>
    <address-setting match="small.#">
      <max-size-bytes>1000</max-size-bytes>
      <address-full-policy>FAIL</address-full-policy>
      <auto-delete-queues>false</auto-delete-queues>
    </address-setting>
  </address-settings>
</core></configuration>
"""
_LOGIN = """\
activemq {{ org.apache.activemq.artemis.spi.core.security.jaas.PropertiesLoginModule required baseDir="{home}"
  org.apache.activemq.jaas.properties.user="users" org.apache.activemq.jaas.properties.role="roles"; }};
"""


def jars(folder: Path = TARGET) -> Path:
    """The directory of the broker's jars; the first call loads them through Maven (20 MB).

    Raises:
        NoProgramError: Saying what to install.
    """
    return programs.jars(POM, folder)


class ArtemisServer:
    """One broker with its own directory; a context manager that leaves no process and no file behind.

    Queues whose names begin with ``small.`` are soon full, those with ``passing.`` go when they are empty;
    to those of ``closed.`` the clerk may not send.

    Args:
        secure: Whether it also listens with TLS, at :attr:`secure_port`; its certificate is in :attr:`authorities`.
        classes: The directory of its jars; found by itself by default.
    """

    def __init__(self, *, secure: bool = False, classes: Path | None = None) -> None:
        classes = jars() if classes is None else classes
        self._home = Path(tempfile.mkdtemp(prefix="sparkjet-artemis-"))
        self.port, self.secure_port = free_port(), free_port()
        self.authorities = self._home / "ca.pem"
        (self._home / "etc").mkdir()
        (self._home / "etc" / "broker.xml").write_text(self._settings(secure=secure))
        (self._home / "login.config").write_text(_LOGIN.format(home=self._home))
        (self._home / "users").write_text(f"{USER}={PASSWORD}\n{CLERK}={CLERK}\n")
        (self._home / "roles").write_text(f"owners={USER}\nclerks={CLERK}\n")
        self._broker = Program(
            [
                java(),
                "-Xmx512m",
                *SMALL,
                "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
                f"-Djava.security.auth.login.config={self._home / 'login.config'}",
                "-cp",
                f"{classes}/*",
                "org.apache.activemq.artemis.core.server.embedded.Main",
                str(self._home),
            ],
            self._home / "log",
            self._answers,
        )

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        shutil.rmtree(self._home, ignore_errors=True)

    @property
    def pid(self) -> int:
        """Process id of the running broker."""
        return self._broker.pid

    def start(self) -> None:
        """Start it and wait until it takes connections."""
        self._broker.start()

    def kill(self) -> None:
        """End it as a power cut of its process would."""
        self._broker.kill()

    def restart(self) -> None:
        """Kill it and start it again."""
        self.kill()
        self.start()

    def pause(self) -> None:
        """Have it do nothing, until :meth:`resume`."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Have it go on."""
        os.kill(self.pid, signal.SIGCONT)

    @contextmanager
    def client(self) -> Iterator[Client]:
        """A connection of a test's own."""
        client = Client(self.port)
        try:
            yield client
        finally:
            client.close()

    def queue(self, prefix: str = "") -> str:
        """A new durable queue that many producers may send to and one consumer gets each message of."""
        name = f"{prefix}t{uuid4().hex}"
        with self.client() as client:
            client.read(name, 0)
        return name

    def count(self, queue: str) -> int:
        """How many messages a queue has, delivered or not."""
        with self.client() as client:
            return int(str(client.ask(f"queue.{queue}", "messageCount")))

    def has(self, address: str) -> bool:
        """Whether there is an address."""
        with self.client() as client:
            names = client.ask("broker", "addressNames")
        assert isinstance(names, list)
        return address in names

    def forget(self, address: str) -> None:
        """Remove an address, its queue, and what is known of duplicates in it."""
        if self.has(address):
            with self.client() as client:
                client.ask("broker", operation="deleteAddress", parameters=[address, True])

    def _answers(self) -> bool:
        if not listens(self.port):
            return False
        try:
            Client(self.port).close()
        except ConnectFailedException:
            return False
        return True

    def _settings(self, *, secure: bool) -> str:
        options = "protocols=STOMP,AMQP,CORE;securityDomain=activemq"
        acceptors = f'<acceptor name="plain">tcp://127.0.0.1:{self.port}?{options}</acceptor>'
        if secure:
            store = str(self._home / "keys.p12")
            keytool = [java("keytool"), "-keystore", store, "-storepass", _STORE, "-alias", "broker"]
            made = ["-genkeypair", "-keyalg", "EC", "-dname", "CN=127.0.0.1", "-ext", "san=ip:127.0.0.1"]
            subprocess.run([*keytool, *made, "-validity", "2", "-storetype", "PKCS12"], check=True, capture_output=True)
            exported = [*keytool, "-exportcert", "-rfc", "-file", str(self.authorities)]
            subprocess.run(exported, check=True, capture_output=True)
            options += f";sslEnabled=true;keyStorePath={store};keyStorePassword={_STORE};keyStoreType=PKCS12"
            acceptors += f'<acceptor name="secure">tcp://127.0.0.1:{self.secure_port}?{options}</acceptor>'
        permissions = [f'<permission type="{each}" roles="owners,clerks"/>' for each in _ALL]
        permissions.append('<permission type="manage" roles="owners"/>')
        return _BROKER.format(acceptors=acceptors, permissions="".join(permissions))


class Client(stomp.ConnectionListener):
    """A client that shares no code with sparkjet's."""

    def __init__(self, port: int) -> None:
        self._frames: queue.Queue[Frame] = queue.Queue()
        self._connection = stomp.Connection12(
            [("127.0.0.1", port)], auto_decode=False, auto_content_length=False, reconnect_attempts_max=1
        )
        self._connection.set_listener("", self)
        self._connection.connect(USER, PASSWORD, wait=True)

    def on_message(self, frame: Frame) -> None:
        """Called by its thread."""
        self._frames.put(frame)

    on_receipt = on_error = on_message

    def close(self) -> None:
        """End the connection."""
        self._connection.remove_listener("")
        self._connection.disconnect()

    def send(self, queue: str, *bodies: bytes | str, **headers: object) -> None:
        """Send persistent messages in one transaction, and wait until the broker has them; bytes are BytesMessages."""
        transaction = self._connection.begin()
        for body in bodies:
            typed = {"content-length": len(body)} if isinstance(body, bytes) else {}
            self._connection.send(
                queue, body, transaction=transaction, **{"destination-type": "ANYCAST", "persistent": "true"}, **typed,
                **headers,
            )  # fmt: skip
        self._connection.commit(transaction, receipt=transaction)
        self._await("RECEIPT")

    def read(self, queue: str, count: int, routing: str = "ANYCAST") -> Sequence[Frame]:
        """The given number of messages of a queue, which stay there; it is created if it is missing."""
        self._connection.subscribe(queue, queue, "client", {"subscription-type": routing, "consumer-window-size": "-1"})
        found = [self._await("MESSAGE") for _ in range(count)]
        self._connection.unsubscribe(queue, receipt=queue)
        self._await("RECEIPT")
        return found

    def ask(
        self, resource: str, attribute: str = "", *, operation: str = "", parameters: Sequence[object] = ()
    ) -> object:
        """An attribute of the broker's management, or what an operation returns."""
        replies = f"sparkjet.tests.{uuid4().hex}"
        self._connection.subscribe(replies, replies, "auto", {"subscription-type": "MULTICAST", "receipt": replies})
        self._await("RECEIPT")
        asked = {"_AMQ_OperationName": operation} if operation else {"_AMQ_Attribute": attribute}
        body = json.dumps(parameters) if operation else ""
        self._connection.send(_MANAGEMENT, body, _AMQ_ResourceName=resource, JMSReplyTo=replies, **asked)
        reply = self._await("MESSAGE")
        assert reply.headers.get("_AMQ_OperationSucceeded") == "true", reply.body
        return json.loads(reply.body or b"[null]")[0]

    def _await(self, command: str) -> Frame:
        frame = self._frames.get(timeout=PATIENCE)
        assert frame.cmd == command, frame
        return frame
