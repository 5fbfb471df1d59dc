"""The ensemble: the servers that vote, and this member's own among them if it is to vote."""

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
"""Seconds that a server has to run so that it is started again on its directory."""
_ALONE_AGAIN = 1.0
"""The same for the only one: nobody else could take its place."""
_LOOK = 2.0
"""Seconds to wait for a server that may not answer yet."""
_STARTS_WITHIN = 60.0
"""Seconds that a server may take on a busy machine until it answers."""
_OFFERS_WITHIN = 2 * _STARTS_WITHIN
"""Seconds after which a member that is to vote, and offers no server, is not waited for any more."""
_LATER = BadVersionError, NewConfigNoQuorumError, ReconfigInProcessError
"""What says that a change of the voters was not made, and may be tried again."""


@dataclass
class _Own:
    """A server of this member's.

    Attributes:
        server: The server.
        node: By which others are told of it; None for the first one until there is a session.
        is_told: Whether they are.
        was_told: Whether they ever were: one that has read it may still let it vote.
        started: When it was last started.
    """

    server: ZooKeeperServer
    node: str | None = None
    is_told: bool = False
    was_told: bool = False
    started: float = field(default_factory=time.monotonic)

    @property
    def id(self) -> int:
        """Its number."""
        return self.server.address.id


class Ensemble:
    """What one member knows of the servers, and does for them. One thread uses it, beside those that read and tend.

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
        """This member's server."""
        return self._own.server if self._own is not None else None

    @property
    def overdue(self) -> list[str]:
        """Ids of members that were to offer a server long ago, as far as this one has looked."""
        return [member for member, since in self._awaited.items() if time.monotonic() > since + _OFFERS_WITHIN]

    def trouble(self) -> str:
        """What keeps this member's server from serving, for messages; empty if there is nothing to see."""
        why = self._own.server.why() if self._own is not None else ""
        return f"Its own ZooKeeper server: {why}." if why else ""

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
        """Start the first server of a new cluster; returns where it listens."""
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
        """Raise an error if this member's server has ended by itself."""
        if self.server is not None and not self.server.runs:
            raise StorageError(f"The ZooKeeper server of this member does not start: {self.server.why()}.")

    def refresh(self, session: ZooKeeperSession, woken: Callable[..., None]) -> None:
        """Look who votes, and where servers listen."""
        # In this order: whoever withdraws a server makes the configuration a newer one afterwards, so that a change by
        # one who has still read of that server fails.
        config, _ = session.ask(lambda client: client.get_async(_CONFIG, watch=woken))
        names = session.ask(lambda client: client.get_children_async(SERVERS, watch=woken))
        addresses = [address for name in names if (address := self._read(session, f"{SERVERS}/{name}")) is not None]
        self._take(addresses, Voting.parsed(config))
        session.use(self.contacts())

    def publish(self, session: ZooKeeperSession) -> None:
        """Tell the others of this member's server, if it has one that is ready, in a session that has just begun."""
        for own in (self._replaced, self._own):
            if own is not None:
                own.node = self._new_node(session)
                if own.is_told:
                    self._tell(session, own)

    def tend(self) -> None:
        """Look after this member's server, without asking anybody: if two are down, nobody could answer."""
        with self._processes:
            own, voting = self._own, self._voting
            if own is None or own.server.runs or not self.votes():
                return
            if time.monotonic() > own.started + (_ALONE_AGAIN if voting.ids == {own.id} else _STAYED):
                # Its directory has all that it has acknowledged: as long as it is there it may vote again.
                own.started = time.monotonic()
                self._warn(f"The ZooKeeper server of this member is started again: {own.server.why()}.")
                own.server.start(voting.lines.values())

    def adapt(self, session: ZooKeeperSession, state: ClusterState, *, coordinates: bool) -> bool:
        """One step towards the voters that are wanted; whether there is nothing left to do."""
        self._replace_if_broken(session)
        voting = [self._addresses[id_].member for id_ in self._voting.ids if id_ in self._addresses]
        wanted = wanted_voters(state, voting)
        if not self._does_its_part(session, votes=self._member in wanted):
            return False
        # Of two of one member the newer one: the other is what it replaces.
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
        """Whether this member's server is one of those that vote."""
        return self._own is not None and self._own.id in self._voting.ids

    def stop(self) -> None:
        """End this member's servers, for ever."""
        with self._processes:
            for own in (self._replaced, self._own):
                if own is not None:
                    own.server.stop()
            # Nobody is to start it again.
            self._take([], Voting({}, -1))

    def alone(self) -> str | None:
        """Start this member's server anew as the only one that votes; where it listens, None if it has never voted."""
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
        # Those that do not vote last: who has not heard yet that one of them votes now finds it nevertheless.
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
        # In one step: a server that is gone and one that comes, or two that come, must not be halves of a majority.
        joining = ",".join(address.line for address in wanted if address.id not in self._voting.ids)
        leaving = ",".join(str(id_) for id_ in sorted(self._voting.ids) if id_ not in ids)
        version = self._voting.version
        try:
            session.ask(lambda client: client.reconfig_async(joining or None, leaving or None, None, version))
        except _LATER:
            # Another one came first, or those that come have not caught up yet: the next step looks again.
            return

    def _does_its_part(self, session: ZooKeeperSession, *, votes: bool) -> bool:
        """One step towards the servers that this member should have; whether it has them, and no other."""
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
            # Who has read of this one alone, as where the session has just begun, could let it vote again.
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
            # It did not stay: another one begins with nothing, under another id.
            why = own.server.why()
            if self.votes():
                # A majority without it has to agree. What was read from a leader does not tell: it answers for a while
                # after it has lost its followers, and two of three that die at once would both throw away what they
                # voted for.
                self._tell(session, own)
            self._discard(session)
            if not own.is_told:
                raise NoServerError(f"its ZooKeeper server does not start: {why}.")
            self._warn(f"The ZooKeeper server of this member is replaced: {why}.")
        elif not own.server.is_whole and self._replaced is None:
            # It goes on as long as it runs, and votes until the one in its place does.
            self._warn(f"The ZooKeeper server of this member is replaced: {own.server.why()}.")
            self._replaced, self._own = own, None

    def _begin(self, session: ZooKeeperSession) -> None:
        """Start a server, which joins the others when the coordinator says so."""
        node = self._new_node(session)
        try:
            # The first server of all is number 1, in the first of these nodes.
            address = self._address(int(node[-10:]) + 1)
            own = _Own(ZooKeeperServer(address, self._settings), node)
            # Those that vote now, and of those that are to come only itself: two that come must not elect each other.
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
        # A server that votes before it has a leader's data cannot elect one either: if the leader were lost then,
        # nobody could go on. It answers as soon as it has.
        if self._look([own.server.address.contact]) is not None:
            self._tell(session, own)
        elif not own.was_told and time.monotonic() > own.started + _STARTS_WITHIN:
            # One that was offered before has answered, and may vote: it was let in while it was being withdrawn.
            why = own.server.why()
            self._discard(session)
            message = f"its ZooKeeper server has not answered for {_STARTS_WITHIN:.0f} s{why and f': {why}'}."
            raise NoServerError(message)

    def _is_released(self, own: _Own) -> bool:
        """Whether those that vote now go on without a server of this member's, which has been removed from them.

        It may have led them, and have told them so last of all.
        """
        with self._lock:
            others = [address for id_, address in self._addresses.items() if id_ in self._voting.ids and id_ != own.id]
        for address in others:
            found = self._look([address.contact])
            # Another one that goes as well has heard of it before those that stay.
            if found is not None and own.id not in found.ids and address.id in found.ids:
                return True
        return False

    def _is_withdrawn(self, session: ZooKeeperSession, own: _Own) -> bool:
        """Whether nobody can let a server of this member's vote any more, whatever they have read of it before.

        A coordinator that had read of it could otherwise make it the only one that votes, after its end.
        """
        own.is_told = False
        if own.node is not None:
            # Forgotten only when it is gone: a session may outlive a call that nobody has answered, and others go on
            # reading what is there.
            self._remove(session, own.node)
            own.node = None
        content, _ = session.ask(lambda client: client.get_async(_CONFIG))
        voting = Voting.parsed(content)
        if own.id in voting.ids:
            return False
        try:
            # It is not there to be removed: what changes is the version, which every change has to name.
            session.ask(lambda client: client.reconfig_async(None, str(own.id), None, voting.version))
        except _LATER:
            return False
        return True

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

    def _tell(self, session: ZooKeeperSession, own: _Own) -> None:
        content = msgspec.msgpack.encode(own.server.address)
        own.node = own.node or self._new_node(session)
        # Before: the answer may be lost of what others read.
        own.was_told = True
        try:
            session.ask(lambda client: client.set_async(own.node, content))
        except NoNodeError:
            # It was being withdrawn, and the answer was lost that said so.
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
            # Removed by an attempt whose answer was lost.
            return

    def _warn(self, text: str) -> None:
        """Log, but not again and again what lasts."""
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
            # Its member has ended since it was listed.
            return None
        try:
            return msgspec.msgpack.decode(content, type=known(ServerAddress)) if content else None
        except msgspec.DecodeError as error:
            raise KazooException(f"{node} is not what members write there: {error}") from error
