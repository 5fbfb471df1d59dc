"""A private Kerberos realm on the loopback address, for brokers that know their clients by tickets."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import threading
import time
from pathlib import Path

import confluent_kafka
from typing_extensions import Self

from tests.servers.programs import PATIENCE, NoProgramError, free_port

REALM, SERVICE, CLIENT = "SPARKJET.TEST", "kafka/127.0.0.1", "guarded"
_PROGRAMS = ("kdb5_util", "kadmin.local", "krb5kdc", "kinit")
_PATH = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin"))


def check_available() -> None:
    """Whether this machine has what clients and servers need.

    Raises:
        NoProgramError: Saying what to install.
    """
    try:
        confluent_kafka.Producer({"builtin.features": "sasl_gssapi", "log_level": "0"})
    except confluent_kafka.KafkaException as error:
        message = "this Python's confluent-kafka has no GSSAPI: build it, as docs/guide/kafka-kerberos.md says"
        raise NoProgramError(message) from error
    missing = [each for each in _PROGRAMS if shutil.which(each, path=_PATH) is None]
    if missing:
        raise NoProgramError(f"no {', '.join(missing)}: apt-get install krb5-kdc krb5-admin-server krb5-user")


class Kerberos:
    """A realm with a broker and a client; a context manager that leaves no process and no file behind."""

    def __init__(self) -> None:
        check_available()
        self._home = Path(tempfile.mkdtemp(prefix="sparkjet-kerberos-"))
        self._port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self.configuration = self._home / "krb5.conf"
        # The service's name is an address, which nobody may look up.
        self.configuration.write_text(
            f"[libdefaults]\ndefault_realm = {REALM}\ndns_lookup_kdc = false\ndns_canonicalize_hostname = false\n"
            f"rdns = false\n[realms]\n{REALM} = {{\n kdc = 127.0.0.1:{self._port}\n}}\n"
        )
        (self._home / "kdc.conf").write_text(
            f"[kdcdefaults]\nkdc_listen = 127.0.0.1:{self._port}\nkdc_tcp_listen = 127.0.0.1:{self._port}\n"
            f"[realms]\n{REALM} = {{\n database_name = {self._home}/principal\n"
            f" key_stash_file = {self._home}/stash\n}}\n"
        )
        self.environment = {
            "KRB5_CONFIG": str(self.configuration),
            "KRB5CCNAME": f"FILE:{self._home / 'tickets'}",
        }
        self._run("kdb5_util", "create", "-s", "-r", REALM, "-P", "master")
        for principal in (SERVICE, CLIENT):
            self._run("kadmin.local", "-r", REALM, "addprinc", "-randkey", principal)
            self._run("kadmin.local", "-r", REALM, "ktadd", "-k", str(self.keytab(principal)), principal)

    def __enter__(self) -> Self:
        command = ["krb5kdc", "-n", "-r", REALM, "-P", str(self._home / "pid")]
        if shutil.which("setpriv"):
            # A test run that is killed takes it along.
            command = ["setpriv", "--pdeathsig", "KILL", *command]
        with (self._home / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, env=self._variables())
        deadline, pause = time.monotonic() + PATIENCE, threading.Event()
        while self._tries("kinit", "-k", "-t", str(self.keytab(CLIENT)), CLIENT):
            assert self._process.poll() is None, (self._home / "log").read_text()
            assert time.monotonic() < deadline, (self._home / "log").read_text()
            pause.wait(0.05)
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(PATIENCE)
        shutil.rmtree(self._home, ignore_errors=True)

    def keytab(self, principal: str) -> Path:
        """The file with a principal's key."""
        return self._home / f"{principal.partition('/')[0]}.keytab"

    def broker(self) -> dict[str, str]:
        """Settings of a broker's listener ``KERBEROS``."""
        login = "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true"
        who = f'keyTab="{self.keytab(SERVICE)}" principal="{SERVICE}@{REALM}"'
        return {
            "listener.name.kerberos.sasl.enabled.mechanisms": "GSSAPI",
            "listener.name.kerberos.gssapi.sasl.jaas.config": f"{login} {who};",
            "sasl.kerberos.service.name": SERVICE.partition("/")[0],
        }

    def client(self) -> dict[str, str]:
        """How librdkafka comes in."""
        return {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "GSSAPI",
            "sasl.kerberos.service.name": SERVICE.partition("/")[0],
            "sasl.kerberos.principal": f"{CLIENT}@{REALM}",
            "sasl.kerberos.keytab": str(self.keytab(CLIENT)),
        }

    def _variables(self) -> dict[str, str]:
        more = {"KRB5_KDC_PROFILE": str(self._home / "kdc.conf"), "PATH": _PATH}
        return {**os.environ, **self.environment, **more}

    def _run(self, *command: str) -> None:
        done = subprocess.run(command, check=False, capture_output=True, text=True, env=self._variables())
        assert done.returncode == 0, done.stderr

    def _tries(self, *command: str) -> int:
        return subprocess.run(command, check=False, capture_output=True, env=self._variables()).returncode
