"""A private Kafka broker (KRaft) on the loopback address, started, killed and restarted by process id."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from confluent_kafka import KafkaException
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)
from typing_extensions import Self

from tests.servers import programs
from tests.servers.programs import PATIENCE, SMALL, TARGET, free_port, java

if TYPE_CHECKING:
    from tests.servers.kerberos import Kerberos

POM = Path(__file__).with_suffix(".xml")
USER, PASSWORD = "guarded", "let-me-in"
"""Who may connect over TLS."""
_STORE = "changeit"
_PROTOCOLS = "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SASL_SSL:SASL_SSL,OAUTH:SASL_PLAINTEXT,KERBEROS:SASL_PLAINTEXT"


def jars(folder: Path = TARGET) -> Path:
    """The directory of the broker's jars; the first call loads them through Maven (43 MB).

    Raises:
        NoProgramError: Saying what to install.
    """
    return programs.jars(POM, folder)


class KafkaServer:
    """One broker with its own directory; a context manager that leaves no process and no file behind.

    Args:
        transaction_version: The feature ``transaction.version``: 0 as after an upgrade from 3.x that was not finished.
        secure: Whether it also listens with TLS and SASL/SCRAM, and with OAuth; see :meth:`client`.
        kerberos: A realm whose users may come in at a listener of their own; see :meth:`by_kerberos`.
        settings: Other settings of the broker, over those below.
        joins: A broker whose cluster it is to be the next member of; that one controls the cluster, and must not die.
        logs_requests: Whether its log has a line for each request.
        classes: The directory of its jars; found by itself by default.
        environment: Other variables of its process.
    """

    def __init__(
        self,
        *,
        transaction_version: int | None = None,
        secure: bool = False,
        kerberos: Kerberos | None = None,
        settings: Mapping[str, str] | None = None,
        joins: KafkaServer | None = None,
        logs_requests: bool = False,
        classes: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._classes = jars() if classes is None else classes
        self._environment = {**os.environ, **(environment or {})}
        self._home = Path(tempfile.mkdtemp(prefix="sparkjet-kafka-"))
        self._process: subprocess.Popen[bytes] | None = None
        self._secure, self._kerberos, self._logs_requests = secure, kerberos, logs_requests
        self.port, controller, self._secure_port, self._oauth_port, self._kerberos_port = (
            free_port() for _ in range(5)
        )
        self.voters: str = f"1@127.0.0.1:{controller}" if joins is None else joins.voters
        self.bootstrap = f"127.0.0.1:{self.port}"
        listeners = f"PLAINTEXT://{self.bootstrap}"
        if secure:
            listeners += f",SASL_SSL://127.0.0.1:{self._secure_port},OAUTH://127.0.0.1:{self._oauth_port}"
        if kerberos is not None:
            listeners += f",KERBEROS://127.0.0.1:{self._kerberos_port}"
        chosen = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": self.voters,
            "controller.listener.names": "CONTROLLER",
            "listeners": f"{listeners},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": listeners,
            "listener.security.protocol.map": _PROTOCOLS,
            "log.dirs": str(self._home / "data"),
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "1",
            "group.initial.rebalance.delay.ms": "0",
            "auto.create.topics.enable": "false",
            # Messages expire by their own time, and a test's may be of another year.
            "log.retention.ms": "-1",
            # Otherwise a restart waits nine seconds for the session of the broker that was killed.
            "broker.session.timeout.ms": "2000",
            "broker.heartbeat.interval.ms": "500",
            # Otherwise what nobody ends in its time is rolled back up to ten seconds later.
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": "500",
            **(self._guards() if secure else {}),
            **({} if kerberos is None else kerberos.broker()),
            **(settings or {}),
        }
        if joins is not None:
            # A listener of a controller is refused here.
            chosen |= {"process.roles": "broker", "node.id": str(self.port), "listeners": listeners}
        self._settings = self._home / "server.properties"
        self._settings.write_text("".join(f"{name}={value}\n" for name, value in chosen.items()))
        self.cluster: str = urlsafe_b64encode(uuid4().bytes).decode().rstrip("=") if joins is None else joins.cluster
        # With "=": an id may begin with a hyphen.
        options = [f"--cluster-id={self.cluster}", "-c", str(self._settings)]
        if transaction_version is not None:
            options += ["--feature", f"transaction.version={transaction_version}"]
        if secure:
            options += ["--add-scram", f"SCRAM-SHA-256=[name={USER},password={PASSWORD}]"]
        command = [*self._command(), "kafka.tools.StorageTool", "format", *options]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        # Nothing in it is needed, and an orderly end takes longer.
        self.kill()
        shutil.rmtree(self._home, ignore_errors=True)

    @property
    def pid(self) -> int:
        """Process id of the running broker."""
        assert self._process is not None
        return self._process.pid

    @property
    def runs(self) -> bool:
        """Whether it has been started, and has not ended."""
        return self._process is not None and self._process.poll() is None

    def client(self) -> dict[str, str]:
        """How librdkafka connects: over TLS with a password if the broker is secure."""
        if not self._secure:
            return {"bootstrap.servers": self.bootstrap}
        return {
            "bootstrap.servers": f"127.0.0.1:{self._secure_port}",
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self._home / "ca.pem"),
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.username": USER,
            "sasl.password": PASSWORD,
        }

    def by_oauth(self) -> dict[str, str]:
        """How librdkafka connects to a secure one with a token, which it makes itself and which is not signed."""
        return {
            "bootstrap.servers": f"127.0.0.1:{self._oauth_port}",
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "enable.sasl.oauthbearer.unsecure.jwt": "true",
            "sasl.oauthbearer.config": f"principal={USER}",
        }

    def by_kerberos(self) -> dict[str, str]:
        """How librdkafka connects with a ticket."""
        assert self._kerberos is not None
        return {"bootstrap.servers": f"127.0.0.1:{self._kerberos_port}", **self._kerberos.client()}

    def start(self) -> None:
        """Start it and wait until it answers."""
        with (self._home / "log").open("ab") as log:
            command = [*self._command(), "kafka.Kafka", str(self._settings)]
            if shutil.which("setpriv"):
                # A test run that is killed takes its broker with it.
                command = ["setpriv", "--pdeathsig", "KILL", *command]
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, stdin=subprocess.DEVNULL, env=self._environment
            )
        self.wait(self._answers, "the broker to answer")

    def stop(self) -> None:
        """End it in order; a stopped broker stays as it is."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End it as a power cut of its process would."""
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        """Kill it and start it again (three to four seconds)."""
        self.kill()
        self.start()

    def written(self) -> int:
        """Bytes of records that it keeps, those of its own topics included."""
        return sum(file.stat().st_size for file in (self._home / "data").glob("*/*.log"))

    def log(self) -> str:
        """Its warnings and errors."""
        return (self._home / "log").read_text(errors="replace")

    def admin(self) -> AdminClient:
        """A client that manages topics."""
        # No log: a broker that was just killed would fill the test's output with refused connections.
        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    def topic(self, name: str | None = None, partitions: int = 1, replicas: int = 1, **settings: str) -> str:
        """Create a topic and wait until it can be used; its name. Settings with ``_`` for the dot."""
        name = name or f"t{uuid4().hex[:12]}"
        config = {key.replace("_", "."): value for key, value in settings.items()}
        # In a variable: a client that is collected takes its requests with it.
        admin = self.admin()
        admin.create_topics([NewTopic(name, partitions, replicas, config=config)])[name].result(PATIENCE)
        self.wait(lambda: self._partitions(name) == partitions, f"{name} to be known")
        return name

    def grow(self, topic: str, partitions: int) -> None:
        """Give a topic more partitions, ``partitions`` in all, unless it has them."""
        if self._partitions(topic) == partitions:
            return
        admin = self.admin()
        admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(PATIENCE)
        self.wait(lambda: self._partitions(topic) == partitions, f"{topic} to grow")

    def configure(self, topic: str, **settings: str) -> None:
        """Change settings of a topic, with ``_`` for the dot."""
        changes = [
            ConfigEntry(name.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
            for name, value in settings.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=changes)
        admin = self.admin()
        admin.incremental_alter_configs([resource])[resource].result(PATIENCE)

    def drop(self, topic: str) -> None:
        """Delete a topic."""
        admin = self.admin()
        admin.delete_topics([topic])[topic].result(PATIENCE)
        self.wait(lambda: self._partitions(topic) == 0, f"{topic} to go")

    def wait(self, condition: Callable[[], bool], what: str) -> None:
        """Wait until something holds; fails with the broker's log."""
        pause = threading.Event()
        deadline = time.monotonic() + PATIENCE
        while not condition():
            message = f"waited for {what}:\n{self.log()[-3000:]}"
            assert self.runs, message
            assert time.monotonic() < deadline, message
            pause.wait(0.05)

    def _partitions(self, topic: str) -> int:
        # With a name the broker would be told to wait for it; the whole list is one small answer.
        found = self.admin().list_topics(timeout=PATIENCE).topics.get(topic)
        return len(found.partitions) if found is not None and found.error is None else 0

    def _answers(self) -> bool:
        try:
            return bool(self.admin().list_topics(timeout=1).brokers)
        except KafkaException:
            return False

    def _command(self) -> list[str]:
        return [
            java(),
            "-Xmx512m",
            *SMALL,
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
            *(["-Dorg.slf4j.simpleLogger.log.kafka.request.logger=debug"] if self._logs_requests else []),
            *([] if self._kerberos is None else [f"-Djava.security.krb5.conf={self._kerberos.configuration}"]),
            "-cp",
            f"{self._classes}/*",
        ]

    def _guards(self) -> dict[str, str]:
        """A separate certificate, and who may come in."""
        store = str(self._home / "keys.p12")
        keytool = [java("keytool"), "-keystore", store, "-storepass", _STORE, "-alias", "broker"]
        made = ["-genkeypair", "-keyalg", "EC", "-dname", "CN=127.0.0.1", "-ext", "san=ip:127.0.0.1", "-validity", "2"]
        subprocess.run([*keytool, *made, "-storetype", "PKCS12"], check=True, capture_output=True)
        exported = [*keytool, "-exportcert", "-rfc", "-file", str(self._home / "ca.pem")]
        subprocess.run(exported, check=True, capture_output=True)
        login = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        token = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
        return {
            "listener.name.oauth.sasl.enabled.mechanisms": "OAUTHBEARER",
            "listener.name.oauth.oauthbearer.sasl.jaas.config": f'{token} unsecuredLoginStringClaim_sub="{USER}";',
            "ssl.keystore.location": store,
            "ssl.keystore.password": _STORE,
            "ssl.keystore.type": "PKCS12",
            "sasl.enabled.mechanisms": "SCRAM-SHA-256",
            "listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config": login,
        }

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None and self._process.poll() is None:
            os.kill(self._process.pid, how)
            self._process.wait(PATIENCE)
        self._process = None
