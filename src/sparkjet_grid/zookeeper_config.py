"""The configuration of a ZooKeeper server: what is in its files, and which servers vote."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from sparkjet_grid.zookeeper_settings import ZooKeeperSettings

USER = "super"
"""The only user there is; only this one may change which servers vote."""
_VOTER = re.compile(r"^(server\.(\d+)=.*)$", re.MULTILINE)
_VERSION = re.compile(r"^version=([0-9a-f]+)$", re.MULTILINE)


class ServerAddress(msgspec.Struct, frozen=True):
    """Where a server listens.

    Attributes:
        id: Unlike that of any other server that the cluster ever had.
        member: Id of the member whose child it is.
        host: For other members.
        client: The port for members.
        quorum: The port for the leader's followers.
        election: The port for votes.
        plain: The port on the loopback address, which nobody can use where there is TLS: ZooKeeper's reconfiguration
            demands that there is one.
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
        """What other servers are told of it."""
        host = bracketed(self.host)
        # Without TLS there is only one port for clients, and members look for it where the server is.
        plain = host if self.plain == self.client else "127.0.0.1"
        return f"server.{self.id}={host}:{self.quorum}:{self.election}:participant;{plain}:{self.plain}"

    @property
    def contact(self) -> str:
        """What members connect to."""
        return f"{bracketed(self.host)}:{self.client}"


class Voting(msgspec.Struct, frozen=True):
    """Which servers vote, with what they are told of each other; a change names the version that it replaces."""

    lines: dict[int, str]
    version: int

    @property
    def ids(self) -> set[int]:
        """Ids of the servers."""
        return set(self.lines)

    @classmethod
    def parsed(cls, config: bytes) -> Voting:
        """From the node in which ZooKeeper keeps its configuration."""
        text = config.decode("ascii")
        version = _VERSION.search(text)
        return cls({int(id_): line for line, id_ in _VOTER.findall(text)}, int(version[1], 16) if version else -1)


def bracketed(host: str) -> str:
    """A host as it stands before a port."""
    return f"[{host}]" if ":" in host else host


def dynamic(servers: Iterable[str]) -> str:
    """The part of the configuration that servers change themselves."""
    return "".join(f"{line}\n" for line in servers)


def static(settings: ZooKeeperSettings, address: ServerAddress, home: Path, voters: Path) -> str:
    """The part that is fixed; it contains secrets, so it is no business of the command line."""
    digest = base64.b64encode(hashlib.sha1(f"{USER}:{settings.password}".encode()).digest()).decode()  # noqa: S324 - ZooKeeper's own
    tick = max(int(settings.session * 1000 / 4), 50)
    options: dict[str, object] = {
        "dataDir": home / "data",
        "dynamicConfigFile": voters,
        "tickTime": tick,
        # Ticks: a server that starts, and one that follows, may be so late.
        "initLimit": 40,
        "syncLimit": 5,
        "cnxTimeout": 1000,
        # Milliseconds after which a server that has found no leader asks the others again. By default it waits twice as
        # long each time, up to a minute: no leader would be found for so long though a network that was cut is healed.
        "fastleader.maxNotificationInterval": 1000,
        "maxClientCnxns": 0,
        "standaloneEnabled": "false",
        "reconfigEnabled": "true",
        # An empty directory under an old id would vote away what others have acknowledged: only the first server of a
        # cluster begins with nothing.
        "db.autocreate": "false",
        "admin.enableServer": "false",
        "4lw.commands.whitelist": "",
        # Memory is what counts here, and a member that is started again is another one.
        "forceSync": "no",
        # Logs in memory must stay small: by default a file of 64 MB is begun at once, and goes on for 100,000 writes.
        "preAllocSize": 1024,
        "snapCount": 2000,
        "snapSizeLimitInKb": 8192,
        "DigestAuthenticationProvider.superDigest": f"{USER}:{digest}",
        # Whoever follows the leader is sent all data, and may write: on loopback that could be any user of the machine,
        # and over TLS any client.
        "quorum.auth.enableSasl": "true",
        "quorum.auth.learnerRequireSasl": "true",
        "quorum.auth.serverRequireSasl": "true",
        # Otherwise a server has no mechanism for that, waits for ever, and does not say why.
        "fips-mode": "false",
    }
    if settings.is_encrypted:
        options |= _tls(address, home)
    return "".join(f"{name}={value}\n" for name, value in options.items())


def login(settings: ZooKeeperSettings) -> str:
    """How servers prove to each other that they have the token, in the words of Java's login configuration."""
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
        # The plain port must be there, and this closes it. Not "digest", which any password of any user satisfies.
        "enforce.auth.enabled": "true",
        "enforce.auth.schemes": "x509",
        # As with fips-mode: names are those of servers, and whoever connects has a certificate of the authority.
        "ssl.clientHostnameVerification": "false",
        "ssl.quorum.clientHostnameVerification": "false",
        **{f"ssl.{name}": value for name, value in stores.items()},
        **{f"ssl.quorum.{name}": value for name, value in stores.items()},
    }
