"""The ensemble: the servers that vote, and this member's own among them if it is to vote."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Sequence

import msgspec
from kazoo.exceptions import (
    BadVersionError,
    KazooException,
    NewConfigNoQuorumError,
    NoNodeError,
    ReconfigInProcessError,
)

from sparkjet.errors import StorageError
from sparkjet.grid.cluster_state import ClusterState
from sparkjet.grid.errors import QuorumLostError
from sparkjet.grid.listening import check_free, free_port
from sparkjet.grid.voters import wanted_voters
from sparkjet.grid.zookeeper_config import ServerAddress, Voting
from sparkjet.grid.zookeeper_server import ZooKeeperServer
from sparkjet.grid.zookeeper_session import ZooKeeperSession
from sparkjet.grid.zookeeper_settings import ZooKeeperSettings

ROOT = "/sparkjet"
SERVERS = f"{ROOT}/servers"
_CONFIG = "/zookeeper/config"
_STAYED = 10.0
"""Seconds that a server has to run so that it is started again on its directory."""
_LOOK = 2.0
"""Seconds to wait for a server that may not answer yet."""


class Ensemble:
    """What one member knows of the servers, and does for them. One thread uses it, beside those that read and tend.

    Args:
        member: Id of this member.
        settings: Of the control plane.
    """

    def __init__(self, member: str, settings: ZooKeeperSettings) -> None:
        self._member, self._settings = member, settings
        self._server: ZooKeeperServer | None = None
        self._node: str | None = None
        self._is_told, self._started = False, 0.0
        self._addresses: dict[int, ServerAddress] = {}
        self._voting = Voting({}, -1)
        self._contacts: list[str] = []
        self._lock, self._processes = threading.Lock(), threading.Lock()

    @property
    def server(self) -> ZooKeeperServer | None:
        """This member's server."""
        return self._server

    def contacts(self) -> list[str]:
        """Where servers listen, this member's own first; the last that were known, where nobody says."""
        with self._lock:
            return list(self._contacts)

    def voters(self) -> list[str]:
        """Ids of the members whose servers vote, as far as they are known; of one that is gone its number."""
        with self._lock:
            known, voting = self._addresses, self._voting.ids
            return [known[id_].member if id_ in known else f"server {id_}" for id_ in sorted(voting)]

    def found(self) -> str:
        """Start the first server of a new cluster; returns where it listens.

        Raises:
            AnalysisError: A port is taken.
        """
        address = self._address(1)
        for port in (address.client, address.quorum, address.election):
            check_free(address.host, port, "--advertise", "--control-ports")
        if self._settings.is_encrypted:
            check_free("127.0.0.1", address.plain, "--control-ports", "--control-ports")
        self._start(address, [address.line], is_first=True)
        self._is_told = True
        self._take([address], Voting({1: address.line}, 0))
        return address.contact

    def check(self) -> None:
        """Raise an error if this member's server has ended by itself.

        Raises:
            StorageError: It has; with what it said last.
        """
        if self._server is not None and not self._server.runs:
            message = f"The ZooKeeper server of this member does not start: {self._server.why()}"
            raise StorageError(message)

    def refresh(self, session: ZooKeeperSession, woken: Callable[..., None]) -> None:
        """Look who votes, and where servers listen."""
        names = session.ask(lambda client: client.get_children_async(SERVERS, watch=woken))
        addresses = [address for name in names if (address := self._read(session, f"{SERVERS}/{name}")) is not None]
        config, _ = session.ask(lambda client: client.get_async(_CONFIG, watch=woken))
        self._take(addresses, Voting.parsed(config))
        session.use(self.contacts())

    def publish(self, session: ZooKeeperSession) -> None:
        """Tell the others of this member's server, if it has one that is ready, in a session that has just begun."""
        if self._server is not None:
            self._node = self._new_node(session)
            if self._is_told:
                self._tell(session)

    def tend(self) -> None:
        """Look after this member's server, without asking anybody: if two are down, nobody could answer."""
        with self._processes:
            server, voting = self._server, self._voting
            if server is None or server.runs or not self.votes():
                return
            if voting.ids == {server.address.id} or time.monotonic() > self._started + _STAYED:
                # Its directory has all that it has acknowledged: as long as it is there it may vote again.
                self._started = time.monotonic()
                server.start(voting.lines.values())

    def adapt(self, session: ZooKeeperSession, state: ClusterState, *, coordinates: bool) -> bool:
        """One step towards the voters that are wanted; whether there is nothing left to do.

        Args:
            session: Of this member.
            state: Of the cluster.
            coordinates: Whether this member is the one that changes who votes.
        """
        if self._server is not None and not self._server.runs:
            # It did not stay: another one begins with nothing, under another id.
            self._discard(session)
        voting = [self._addresses[id_].member for id_ in self._voting.ids if id_ in self._addresses]
        wanted = wanted_voters(state, voting)
        if self._member in wanted:
            if self._server is None:
                self._begin(session)
                return False
            if not self._is_told:
                self._tell_when_ready(session)
                return False
        elif self._server is not None and not self.votes():
            if self._is_told and not self._is_released():
                return False
            self._discard(session)
        servers = {address.member: address for address in self._addresses.values()}
        if any(member not in servers for member in wanted):
            return False
        ids = {servers[member].id for member in wanted}
        if ids == self._voting.ids:
            return True
        if coordinates:
            self._change(session, [servers[member] for member in wanted], ids)
        return False

    def votes(self) -> bool:
        """Whether this member's server is one of those that vote."""
        return self._server is not None and self._server.address.id in self._voting.ids

    def stop(self) -> None:
        """End this member's server, for ever."""
        with self._processes:
            if self._server is not None:
                self._server.stop()
            # Nobody is to start it again.
            self._take([], Voting({}, -1))

    def alone(self) -> str | None:
        """Start this member's server anew as the only one that votes; where it listens, None if it has never voted."""
        server = self._server
        if server is None or not self.votes():
            return None
        with self._processes:
            server.halt()
            self._take([server.address], Voting({server.address.id: server.address.line}, self._voting.version))
            server.start([server.address.line])
        return server.address.contact

    def _take(self, addresses: Sequence[ServerAddress], voting: Voting) -> None:
        listening = [address for address in addresses if address.id in voting.ids]
        listening.sort(key=lambda address: (address.member != self._member, address.id))
        with self._lock:
            self._addresses = {address.id: address for address in addresses}
            self._voting = voting
            self._contacts = [address.contact for address in listening] or self._contacts

    def _new_node(self, session: ZooKeeperSession) -> str:
        node: str = session.ask(lambda client: client.create_async(f"{SERVERS}/s", ephemeral=True, sequence=True))
        return node

    def _change(self, session: ZooKeeperSession, wanted: Sequence[ServerAddress], ids: Collection[int]) -> None:
        # In one step: a server that is gone and one that comes, or two that come, must not be halves of a majority.
        joining = ",".join(address.line for address in wanted if address.id not in self._voting.ids)
        leaving = ",".join(str(id_) for id_ in sorted(self._voting.ids) if id_ not in ids)
        version = self._voting.version
        try:
            session.ask(lambda client: client.reconfig_async(joining or None, leaving or None, None, version))
        except (BadVersionError, NewConfigNoQuorumError, ReconfigInProcessError):
            # Another one came first, or those that come have not caught up yet: the next step looks again.
            return

    def _begin(self, session: ZooKeeperSession) -> None:
        """Start a server, which joins the others when the coordinator says so."""
        node = self._new_node(session)
        # The first server of all is number 1, in the first of these nodes.
        address = self._address(int(node[-10:]) + 1)
        # Those that vote now, and of those that are to come only itself: two that come must not elect each other.
        self._start(address, [*self._voting.lines.values(), address.line], is_first=False)
        self._node = node

    def _start(self, address: ServerAddress, voters: Sequence[str], *, is_first: bool) -> None:
        server = ZooKeeperServer(address, self._settings)
        with self._processes:
            self._server, self._started = server, time.monotonic()
            server.start(voters, is_first=is_first)

    def _tell_when_ready(self, session: ZooKeeperSession) -> None:
        # A server that votes before it has a leader's data cannot elect one either: if the leader were lost then,
        # nobody could go on. It answers as soon as it has.
        if self._server is not None and self._look([self._server.address.contact]) is not None:
            self._tell(session)

    def _is_released(self) -> bool:
        """Whether those that vote now go on without this member's server, which has been removed from them.

        It may have led them, and have told them so last of all.
        """
        others = [
            contact for contact in self.contacts() if self._server is None or contact != self._server.address.contact
        ]
        found = self._look(others) if others else None
        return found is not None and self._server is not None and self._server.address.id not in found.ids

    def _look(self, contacts: Sequence[str]) -> Voting | None:
        """Which servers vote, as one of these says that has a leader; None if none answers at once."""
        session = ZooKeeperSession(contacts, self._settings, lambda: None)
        try:
            session.start(_LOOK)
            content, _ = session.ask(lambda client: client.get_async(_CONFIG), _LOOK)
            return Voting.parsed(content)
        except QuorumLostError:
            return None
        finally:
            session.close("it was only a look")

    def _tell(self, session: ZooKeeperSession) -> None:
        if self._server is not None:
            node, content = self._node, msgspec.msgpack.encode(self._server.address)
            session.ask(lambda client: client.set_async(node, content))
            self._is_told = True

    def _discard(self, session: ZooKeeperSession) -> None:
        with self._processes:
            if self._server is not None:
                self._server.stop()
            self._server = None
        self._is_told = False
        node, self._node = self._node, None
        if node is not None:
            try:
                session.ask(lambda client: client.delete_async(node))
            except NoNodeError:
                # Removed by an attempt whose answer was lost.
                return

    def _address(self, id_: int) -> ServerAddress:
        host = "127.0.0.1" if self._settings.host == "localhost" else self._settings.host
        client, quorum, election, plain = self._settings.ports
        client, quorum, election = (port or free_port(host) for port in (client, quorum, election))
        plain = (plain or free_port("127.0.0.1")) if self._settings.is_encrypted else client
        return ServerAddress(id_, self._member, host, client, quorum, election, plain)

    @staticmethod
    def _read(session: ZooKeeperSession, node: str) -> ServerAddress | None:
        try:
            content, _ = session.ask(lambda client: client.get_async(node))
        except NoNodeError:
            # Its member has ended since it was listed.
            return None
        try:
            return msgspec.msgpack.decode(content, type=ServerAddress) if content else None
        except msgspec.DecodeError as error:
            message = f"{node} is not what members write there: {error}"
            raise KazooException(message) from error
