"""The configuration of a ZooKeeper server: the content of its files, and which servers vote."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from sparkjet_grid.zookeeper_settings import ZooKeeperSettings

USER = "super"
"""The only user, and the only one who may change the voters."""
_VOTER = re.compile(r"^(server\.(\d+)=.*)$", re.MULTILINE)
_VERSION = re.compile(r"^version=([0-9a-f]+)$", re.MULTILINE)


class ServerAddress(msgspec.Struct, frozen=True):
    """The address of a server.

    Attributes:
        id: Unique among all servers that the cluster ever had.
        member: Id of the member that runs it.
        host: At which other members reach it.
        client: The port for members as clients.
        quorum: The port for the leader's followers.
        election: The port for votes.
        plain: The port on the loopback address, which ZooKeeper's reconfiguration demands; with TLS nobody can use it.
    """

    id: int
    member: str
    host: str
    client: int
    quorum: int
    election: int
    plain: int

    @property
    def line(self) -> str:
        """Its line in the configuration of all servers."""
        host = bracketed(self.host)
        # Without TLS there is one port for clients, and members connect to it at the server's host.
        plain = host if self.plain == self.client else "127.0.0.1"
        return f"server.{self.id}={host}:{self.quorum}:{self.election}:participant;{plain}:{self.plain}"

    @property
    def contact(self) -> str:
        """The address that members connect to."""
        return f"{bracketed(self.host)}:{self.client}"


class Voting(msgspec.Struct, frozen=True):
    """The servers that vote, with their lines in the configuration; a change names the version that it replaces."""

    lines: dict[int, str]
    version: int

    @property
    def ids(self) -> set[int]:
        """The ids of the servers."""
        return set(self.lines)

    @classmethod
    def parsed(cls, config: bytes) -> Voting:
        """Parse the node in which ZooKeeper keeps its configuration."""
        text = config.decode("ascii")
        version = _VERSION.search(text)
        return cls({int(id_): line for line, id_ in _VOTER.findall(text)}, int(version[1], 16) if version else -1)


def bracketed(host: str) -> str:
    """A host as it is written before a port."""
    return f"[{host}]" if ":" in host else host


def dynamic(servers: Iterable[str]) -> str:
    """The dynamic part of the configuration, which servers change themselves."""
    return "".join(f"{line}\n" for line in servers)


def static(settings: ZooKeeperSettings, address: ServerAddress, home: Path, voters: Path) -> str:
    """The static part of the configuration; it contains secrets, which must not be on the command line."""
    digest = base64.b64encode(hashlib.sha1(f"{USER}:{settings.password}".encode()).digest()).decode()  # noqa: S324 - ZooKeeper's own
    tick = max(int(settings.session * 1000 / 4), 50)
    options: dict[str, object] = {
        "dataDir": home / "data",
        "dynamicConfigFile": voters,
        "tickTime": tick,
        # Ticks by which a starting server, and a follower, may lag behind.
        "initLimit": 40,
        "syncLimit": 5,
        "cnxTimeout": 1000,
        # Milliseconds after which a server that has found no leader asks again. By default the pause doubles each time,
        # up to a minute, for which there would be no leader though a network cut has healed.
        "fastleader.maxNotificationInterval": 1000,
        "maxClientCnxns": 0,
        "standaloneEnabled": "false",
        "reconfigEnabled": "true",
        # A server with an old id and an empty directory would vote away what others have acknowledged: only the first
        # server of a cluster starts empty.
        "db.autocreate": "false",
        "admin.enableServer": "false",
        "4lw.commands.whitelist": "",
        # Data need only survive in memory, as a restarted member is another one.
        "forceSync": "no",
        # Logs in memory must stay small: by default a file takes 64 MB at once, and 100,000 writes.
        "preAllocSize": 1024,
        "snapCount": 2000,
        "snapSizeLimitInKb": 8192,
        "DigestAuthenticationProvider.superDigest": f"{USER}:{digest}",
        # A follower is sent all data, and may write: without this it could be any user of the machine on loopback, and
        # any client over TLS.
        "quorum.auth.enableSasl": "true",
        "quorum.auth.learnerRequireSasl": "true",
        "quorum.auth.serverRequireSasl": "true",
        # Otherwise a server has no mechanism for that, and hangs without saying why.
        "fips-mode": "false",
    }
    if settings.is_encrypted:
        options |= _tls(address, home)
    return "".join(f"{name}={value}\n" for name, value in options.items())


def login(settings: ZooKeeperSettings) -> str:
    """Java's login configuration, by which servers prove to each other that they have the token."""
    module, password = "org.apache.zookeeper.server.auth.DigestLoginModule required", settings.quorum_password
    return (
        f'QuorumServer {{ {module} user_{USER}="{password}"; }};\n'
        f'QuorumLearner {{ {module} username="{USER}" password="{password}"; }};\n'
    )


def _tls(address: ServerAddress, home: Path) -> Mapping[str, object]:
    stores = {
        "keyStore.location": home / "member.pem",
        "keyStore.type": "PEM",
        "trustStore.location": home / "authorities.pem",
        "trustStore.type": "PEM",
        "protocol": "TLSv1.3",
        "enabledProtocols": "TLSv1.3",
        "clientAuth": "need",
    }
    return {
        "secureClientPort": address.client,
        "secureClientPortAddress": address.host,
        "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
        "sslQuorum": "true",
        "authProvider.x509": "org.apache.zookeeper.server.auth.X509AuthenticationProvider",
        # The plain port must exist, and this closes it. Not "digest", which any password of any user satisfies.
        "enforce.auth.enabled": "true",
        "enforce.auth.schemes": "x509",
        # Clients have a certificate of the authority, but no host name in it.
        "ssl.clientHostnameVerification": "false",
        "ssl.quorum.clientHostnameVerification": "false",
        **{f"ssl.{name}": value for name, value in stores.items()},
        **{f"ssl.quorum.{name}": value for name, value in stores.items()},
    }
