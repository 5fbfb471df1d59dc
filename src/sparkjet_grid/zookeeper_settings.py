"""Settings of the control plane of several members."""

from __future__ import annotations

import hashlib
import hmac
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from sparkjet_grid.access import is_loopback
from sparkjet_grid.cluster_state import GRACE
from sparkjet_grid.errors import AnalysisError


@dataclass(frozen=True)
class ZooKeeperSettings:
    """Settings of the control plane, the same on all members except for ``host``, ``ports`` and files.

    Attributes:
        token: The secret shared by the members of a cluster. ZooKeeper is given only passwords derived from it.
        host: Address at which this member's server listens; beyond loopback only with TLS.
        ports: For clients, the quorum, elections, and for loopback only; 0 for any that is free.
        certificate: PEM file with this member's certificate and the chain to the authority; without it, no TLS.
        key: PEM file with its key (PKCS #8, without a password).
        authorities: PEM file with the authorities that sign the certificates of members, and no others.
        directory: Of servers' files while they run; best in memory, as no file outlives its server.
        session: Seconds after which a silent member is declared dead.
        grace: Seconds to wait for silent members that hold the last replicas of partitions: they may be cut off, and
            come back, which takes as long again. Less than the patience of clients, which wait as well.
        patience: Seconds that a call waits for a majority.
        cut_off: Seconds after which a member without a majority ends. Until then it refuses all requests, and keeps its
            entries, so that an operator can re-form the survivors.
        heap: MB of a server's heap: several times what is in the slots of all queries.
        jars: Directory with ZooKeeper's jars and their dependencies; by default that of the installed PySpark.
    """

    token: str = field(repr=False)
    host: str = "127.0.0.1"
    ports: tuple[int, int, int, int] = (0, 0, 0, 0)
    certificate: str | None = None
    key: str | None = None
    authorities: str | None = None
    directory: str = field(default_factory=tempfile.gettempdir)
    session: float = 2.0
    grace: float = GRACE
    patience: float = 10.0
    cut_off: float = 600.0
    heap: int = 96
    jars: str | None = None

    def __post_init__(self) -> None:
        files = self.certificate, self.key, self.authorities
        if any(files) and not all(files):
            message = "certificate, key and authorities belong together: members trust each other by them. Name all."
            raise AnalysisError(message)
        if not (self.is_encrypted or is_loopback(self.host)):
            raise AnalysisError(
                f"host {self.host} can be reached from other machines, where anybody could take part in votes. "
                "Add certificate, key and authorities, or listen on 127.0.0.1."
            )

    @property
    def is_encrypted(self) -> bool:
        """Whether members communicate over TLS."""
        return self.certificate is not None

    @property
    def password(self) -> str:
        """The password of members at servers: the token itself would be sent in the clear on loopback."""
        return self._derived(b"sparkjet grid: ZooKeeper")

    @property
    def quorum_password(self) -> str:
        """The password of servers at each other."""
        return self._derived(b"sparkjet grid: ZooKeeper quorum")

    def _derived(self, purpose: bytes) -> str:
        return hmac.new(self.token.encode(), purpose, hashlib.sha256).hexdigest()

    def pem(self, name: str) -> str:
        """The content of a PEM file, by the name of its setting."""
        path = getattr(self, name)
        try:
            return Path(path).read_text(encoding="ascii")
        except (OSError, ValueError) as error:
            raise AnalysisError(f'{name}: "{path}" cannot be read as a PEM file: {error}.') from error
