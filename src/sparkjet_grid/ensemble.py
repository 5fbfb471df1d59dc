"""The ensemble: the ZooKeeper servers that vote, including this member's own if it should vote."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

import msgspec
from kazoo.exceptions import (
    BadVersionError,
    KazooException,
    NewConfigNoQuorumError,
    NoNodeError,
    ReconfigInProcessError,
)

from sparkjet_grid.access import check_free, free_port
from sparkjet_grid.cluster_state import ClusterState, wanted_voters
from sparkjet_grid.errors import AnalysisError, NoServerError, QuorumLostError, StorageError
from sparkjet_grid.known_types import known
from sparkjet_grid.log import logger
from sparkjet_grid.zookeeper_config import ServerAddress, Voting
from sparkjet_grid.zookeeper_server import ZooKeeperServer
from sparkjet_grid.zookeeper_session import ZooKeeperSession
from sparkjet_grid.zookeeper_settings import ZooKeeperSettings

ROOT = "/sparkjet"
SERVERS = f"{ROOT}/servers"
_CONFIG = "/zookeeper/config"
_STAYED = 10.0
"""Seconds that a server must have run to be restarted on its directory."""
_ALONE_AGAIN = 1.0
"""The same for the only voter, which no other server could replace."""
_LOOK = 2.0
"""Seconds to wait for a server that may not be ready yet."""
_STARTS_WITHIN = 60.0
"""Seconds that a server may take to answer on a busy machine."""
_OFFERS_WITHIN = 2 * _STARTS_WITHIN
"""Seconds after which a member that should vote, and offers no server, is no longer waited for."""
_LATER = BadVersionError, NewConfigNoQuorumError, ReconfigInProcessError
"""Errors of a change of the voters that was not made, and may be retried."""


@dataclass
class _Own:
    """A server of this member.

    Attributes:
        server: The server.
        node: The node that offers it to others; None for the first server until there is a session.
        is_told: Whether it is offered there.
        was_told: Whether it ever was: a coordinator that has read the offer may still let it vote.
        started: When it was last started.
    """

    server: ZooKeeperServer
    node: str | None = None
    is_told: bool = False
    was_told: bool = False
    started: float = field(default_factory=time.monotonic)

    @property
    def id(self) -> int:
        """The id of the server."""
        return self.server.address.id


class Ensemble:
    """One member's knowledge of the servers, and its part in running them; used by one thread, readers, and ``tend``.

    Args:
        member: Id of this member.
        settings: Of the control plane.
    """

    def __init__(self, member: str, settings: ZooKeeperSettings) -> None:
        self._member, self._settings = member, settings
        self._own: _Own | None = None
        self._replaced: _Own | None = None
        self._awaited: dict[str, float] = {}
        self._told = ("", 0.0)
        self._addresses: dict[int, ServerAddress] = {}
        self._voting = Voting({}, -1)
        self._contacts: list[str] = []
        self._lock, self._processes = threading.Lock(), threading.Lock()

    @property
    def server(self) -> ZooKeeperServer | None:
        """This member's server, if it has one."""
        return self._own.server if self._own is not None else None

    @property
    def overdue(self) -> list[str]:
        """The ids of members that should have offered a server long ago, as far as this member has observed."""
        return [member for member, since in self._awaited.items() if time.monotonic() > since + _OFFERS_WITHIN]

    def trouble(self) -> str:
        """The reason why this member's server does not serve, for messages; empty if nothing is known."""
        why = self._own.server.why() if self._own is not None else ""
        return f"Its own ZooKeeper server: {why}." if why else ""

    def contacts(self) -> list[str]:
        """The addresses of servers, this member's own first; the last known ones if none are known now."""
        with self._lock:
            return list(self._contacts)

    def voters(self) -> list[str]:
        """The ids of the members whose servers vote, as far as known; of a server whose member is gone, its number."""
        with self._lock:
            known, voting = self._addresses, self._voting.ids
            return [known[id_].member if id_ in known else f"server {id_}" for id_ in sorted(voting)]

    def start_first(self) -> str:
        """Start the first server of a new cluster; returns its address."""
        address = self._address(1)
        for port in (address.client, address.quorum, address.election):
            check_free(address.host, port, "--advertise", "--control-ports")
        if self._settings.is_encrypted:
            check_free("127.0.0.1", address.plain, "--control-ports", "--control-ports")
        own = _Own(ZooKeeperServer(address, self._settings), is_told=True, was_told=True)
        self._start(own, [address.line], is_first=True)
        self._take([address], Voting({1: address.line}, 0))
        return address.contact

    def check(self) -> None:
        """Raise an error if this member's server has exited."""
        if self.server is not None and not self.server.runs:
            raise StorageError(f"The ZooKeeper server of this member does not start: {self.server.why()}.")

    def refresh(self, session: ZooKeeperSession, woken: Callable[..., None]) -> None:
        """Read which servers vote, and where they listen."""
        # In this order: a member that withdraws its server changes the configuration's version afterwards, so that a
        # change by a coordinator that has still read of the server fails.
        config, _ = session.ask(lambda client: client.get_async(_CONFIG, watch=woken))
        names = session.ask(lambda client: client.get_children_async(SERVERS, watch=woken))
        addresses = [address for name in names if (address := self._read(session, f"{SERVERS}/{name}")) is not None]
        self._take(addresses, Voting.parsed(config))
        session.use(self.contacts())

    def offer(self, session: ZooKeeperSession) -> None:
        """Offer this member's server, if it is ready, in a session that has just begun."""
        for own in (self._replaced, self._own):
            if own is not None:
                own.node = self._new_node(session)
                if own.is_told:
                    self._tell(session, own)

    def tend(self) -> None:
        """Restart this member's server if it has exited, without asking others: with two down, nobody could answer."""
        with self._processes:
            own, voting = self._own, self._voting
            if own is None or own.server.runs or not self.votes():
                return
            if time.monotonic() > own.started + (_ALONE_AGAIN if voting.ids == {own.id} else _STAYED):
                # Its directory has all that it has acknowledged, so with it the server may vote again.
                own.started = time.monotonic()
                self._warn(f"The ZooKeeper server of this member is started again: {own.server.why()}.")
                own.server.start(voting.lines.values())

    def adapt(self, session: ZooKeeperSession, state: ClusterState, *, coordinates: bool) -> bool:
        """Take one step towards the wanted voters; returns whether nothing is left to do."""
        self._replace_if_broken(session)
        voting = [self._addresses[id_].member for id_ in self._voting.ids if id_ in self._addresses]
        wanted = wanted_voters(state, voting)
        if not self._does_its_part(session, votes=self._member in wanted):
            return False
        # The newer of two servers of one member: it replaces the other.
        servers = {address.member: address for _, address in sorted(self._addresses.items())}
        now = time.monotonic()
        self._awaited = {each: self._awaited.get(each, now) for each in wanted if coordinates and each not in servers}
        if any(member not in servers for member in wanted):
            return False
        ids = {servers[member].id for member in wanted}
        if ids == self._voting.ids:
            return True
        if coordinates:
            self._change(session, [servers[member] for member in wanted], ids)
        return False

    def votes(self) -> bool:
        """Whether this member's server votes."""
        return self._own is not None and self._own.id in self._voting.ids

    def stop(self) -> None:
        """End this member's servers for good."""
        with self._processes:
            for own in (self._replaced, self._own):
                if own is not None:
                    own.server.stop()
            # So that it is not restarted.
            self._take([], Voting({}, -1))

    def restart_alone(self) -> str | None:
        """Restart this member's server as the only voter; returns its address, or None if it has never voted."""
        own = self._own
        if own is None or not self.votes():
            return None
        address = own.server.address
        with self._processes:
            own.server.halt()
            self._take([address], Voting({own.id: address.line}, self._voting.version))
            own.server.start([address.line])
        return address.contact

    def _take(self, addresses: Sequence[ServerAddress], voting: Voting) -> None:
        # Those that do not vote come last: a member that has not heard yet that one of them votes now still finds it.
        listening = sorted(
            addresses, key=lambda each: (each.id not in voting.ids, each.member != self._member, each.id)
        )
        with self._lock:
            self._addresses = {address.id: address for address in addresses}
            self._voting = voting
            self._contacts = [address.contact for address in listening] or self._contacts

    def _new_node(self, session: ZooKeeperSession) -> str:
        node: str = session.ask(lambda client: client.create_async(f"{SERVERS}/s", ephemeral=True, sequence=True))
        return node

    def _change(self, session: ZooKeeperSession, wanted: Sequence[ServerAddress], ids: Collection[int]) -> None:
        # In one step: a dead server and a new one, or two new ones, must not be needed for a majority.
        joining = ",".join(address.line for address in wanted if address.id not in self._voting.ids)
        leaving = ",".join(str(id_) for id_ in sorted(self._voting.ids) if id_ not in ids)
        version = self._voting.version
        try:
            session.ask(lambda client: client.reconfig_async(joining or None, leaving or None, None, version))
        except _LATER:
            # Another change came first, or new servers have not caught up yet: the next step tries again.
            return

    def _does_its_part(self, session: ZooKeeperSession, *, votes: bool) -> bool:
        """Take one step towards the server that this member should have; returns whether it has just that."""
        own, replaced = self._own, self._replaced
        if votes and own is None:
            self._begin(session)
        elif own is not None and votes and not own.is_told:
            self._tell_when_ready(session, own)
        elif own is not None and not votes and not self.votes():
            if own.was_told and not (self._is_released(own) and self._is_withdrawn(session, own)):
                return False
            self._discard(session)
        elif replaced is not None and replaced.id not in self._voting.ids:
            # A coordinator that has read of this server alone, as after a new session, could let it vote again.
            if not (self._is_released(replaced) and self._is_withdrawn(session, replaced)):
                return False
            self._end(session, replaced)
            self._replaced = None
        else:
            return True
        return False

    def _replace_if_broken(self, session: ZooKeeperSession) -> None:
        own = self._own
        if own is None:
            return
        if not own.server.runs:
            # Its successor starts empty, with another id.
            why = own.server.why()
            if self.votes():
                # A majority without it has to agree. What a leader said does not show that: it answers for a while
                # after it has lost its followers, and two of three that die together would both throw away what
                # they have voted for.
                self._tell(session, own)
            self._discard(session)
            if not own.is_told:
                raise NoServerError(f"its ZooKeeper server does not start: {why}.")
            self._warn(f"The ZooKeeper server of this member is replaced: {why}.")
        elif not own.server.is_whole and self._replaced is None:
            # It serves as long as it runs, and votes until its successor does.
            self._warn(f"The ZooKeeper server of this member is replaced: {own.server.why()}.")
            self._replaced, self._own = own, None

    def _begin(self, session: ZooKeeperSession) -> None:
        """Start a server, which joins the others when the coordinator lets it."""
        node = self._new_node(session)
        try:
            # The first server is number 1, and has the first of these nodes.
            address = self._address(int(node[-10:]) + 1)
            own = _Own(ZooKeeperServer(address, self._settings), node)
            # The present voters and itself, but no other new server: two new ones must not elect each other.
            self._start(own, [*self._voting.lines.values(), address.line], is_first=False)
        except (OSError, AnalysisError) as error:
            if self._own is not None:
                self._discard(session)
            else:
                self._remove(session, node)
            raise NoServerError(f"its ZooKeeper server cannot be started: {error}") from error

    def _start(self, own: _Own, voters: Sequence[str], *, is_first: bool) -> None:
        with self._processes:
            self._own = own
            own.server.start(voters, is_first=is_first)

    def _tell_when_ready(self, session: ZooKeeperSession, own: _Own) -> None:
        # A server that votes before it has the leader's data cannot elect another leader: if the leader were lost then,
        # the cluster would be stuck. It answers as soon as it has the data.
        if self._look([own.server.address.contact]) is not None:
            self._tell(session, own)
        elif not own.was_told and time.monotonic() > own.started + _STARTS_WITHIN:
            # One that was offered before has answered, and may vote: it was let in while being withdrawn.
            why = own.server.why()
            self._discard(session)
            message = f"its ZooKeeper server has not answered for {_STARTS_WITHIN:.0f} s{why and f': {why}'}."
            raise NoServerError(message)

    def _is_released(self, own: _Own) -> bool:
        """Whether the present voters go on without a server of this member, which has been removed from them.

        It may have been their leader, which informs them last of all.
        """
        with self._lock:
            others = [address for id_, address in self._addresses.items() if id_ in self._voting.ids and id_ != own.id]
        for address in others:
            found = self._look([address.contact])
            # A voter that is being removed as well has heard of it before those that stay.
            if found is not None and own.id not in found.ids and address.id in found.ids:
                return True
        return False

    def _is_withdrawn(self, session: ZooKeeperSession, own: _Own) -> bool:
        """Whether no coordinator can let a server of this member vote any longer, whatever it has read before.

        Otherwise a coordinator that has read the offer could make it the only voter after its end.
        """
        own.is_told = False
        if own.node is not None:
            # Forgotten only when it is gone: a session may outlive an unanswered call, and others read the node until
            # then.
            self._remove(session, own.node)
            own.node = None
        content, _ = session.ask(lambda client: client.get_async(_CONFIG))
        voting = Voting.parsed(content)
        if own.id in voting.ids:
            return False
        try:
            # Nothing is removed, but the version changes, which every change has to name.
            session.ask(lambda client: client.reconfig_async(None, str(own.id), None, voting.version))
        except _LATER:
            return False
        return True

    def _look(self, contacts: Sequence[str]) -> Voting | None:
        """Which servers vote, according to one of these that has a leader; None if none answers soon."""
        session = ZooKeeperSession(contacts, self._settings, lambda: None)
        try:
            session.start(_LOOK)
            content, _ = session.ask(lambda client: client.get_async(_CONFIG), _LOOK)
            return Voting.parsed(content)
        except QuorumLostError:
            return None
        finally:
            session.close("it was only a look")

    def _tell(self, session: ZooKeeperSession, own: _Own) -> None:
        content = msgspec.msgpack.encode(own.server.address)
        own.node = own.node or self._new_node(session)
        # Before the call, as others may read the offer though the answer is lost.
        own.was_told = True
        try:
            session.ask(lambda client: client.set_async(own.node, content))
        except NoNodeError:
            # It was being withdrawn, and the answer to that was lost.
            own.node = self._new_node(session)
            session.ask(lambda client: client.set_async(own.node, content))
        own.is_told = True

    def _discard(self, session: ZooKeeperSession) -> None:
        own, self._own = self._own, None
        if own is not None:
            self._end(session, own)

    def _end(self, session: ZooKeeperSession, own: _Own) -> None:
        with self._processes:
            own.server.stop()
        node, own.node = own.node, None
        if node is not None:
            self._remove(session, node)

    @staticmethod
    def _remove(session: ZooKeeperSession, node: str) -> None:
        try:
            session.ask(lambda client: client.delete_async(node))
        except NoNodeError:
            # Removed by an earlier attempt whose answer was lost.
            return

    def _warn(self, text: str) -> None:
        """Log a warning, but not repeatedly while it lasts."""
        if self._told[0] != text or time.monotonic() > self._told[1] + _STARTS_WITHIN:
            self._told = text, time.monotonic()
            logger.warning("Member %s: %s", self._member, text)

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
            # Its member has ended since the listing.
            return None
        try:
            return msgspec.msgpack.decode(content, type=known(ServerAddress)) if content else None
        except msgspec.DecodeError as error:
            raise KazooException(f"{node} is not what members write there: {error}") from error
