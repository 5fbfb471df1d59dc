"""Who votes changes in steps in which a majority can always be lost a member of."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec
import pytest
from kazoo.exceptions import BadVersionError, NoNodeError

from sparkjet_grid.access import free_port
from sparkjet_grid.cluster_state import Member, first
from sparkjet_grid.ensemble import Ensemble, _Own
from sparkjet_grid.errors import QuorumLostError
from sparkjet_grid.zookeeper_config import ServerAddress, Voting
from sparkjet_grid.zookeeper_server import ZooKeeperServer
from sparkjet_grid.zookeeper_session import ZooKeeperSession
from tests.faults.waiting import until
from tests.grid.controls import SETTINGS, Controls, address
from tests.servers.programs import listens

pytestmark = pytest.mark.crash

OUTSIDER = first("c", Member("outsider", "grpc://127.0.0.1:1", "h"))
"""A state by which the outsider is to vote, and nobody else."""
OTHERS = first("c", Member("n1", "grpc://127.0.0.1:1", "h"))


@pytest.fixture(scope="module")
def zookeeper() -> Iterator[Controls]:
    with Controls() as controls:
        yield controls


@pytest.fixture
def session(zookeeper: Controls) -> Iterator[ZooKeeperSession]:
    zookeeper.fill(1)
    session = zookeeper.outsider(zookeeper.any.contacts()).session
    yield session
    session.close("the test is over")


@pytest.fixture
def ensemble(session: ZooKeeperSession) -> Iterator[Ensemble]:
    ensemble = Ensemble("outsider", SETTINGS)
    ensemble.refresh(session, lambda *_: None)
    yield ensemble
    ensemble.stop()


def _offered(ensemble: Ensemble, session: ZooKeeperSession) -> Callable[[], bool]:
    """Whether others are told of the outsider's server, after one step more."""

    def step() -> bool:
        ensemble.adapt(session, OUTSIDER, coordinates=False)
        ensemble.refresh(session, lambda *_: None)
        return any(each.member == "outsider" for each in ensemble._addresses.values())

    return step


def test_a_server_is_offered_as_soon_as_it_has_a_leaders_data(ensemble: Ensemble, session: ZooKeeperSession) -> None:
    assert not _offered(ensemble, session)()
    assert ensemble.server is not None
    assert ensemble.server.runs
    until(_offered(ensemble, session), "the server to be ready")
    # Only the coordinator lets it vote.
    assert not ensemble.votes()


def test_a_server_without_a_leaders_data_is_not_offered(ensemble: Ensemble, session: ZooKeeperSession) -> None:
    known = ensemble._voting
    ensemble._take([], Voting({1: "server.1=127.0.0.1:1:2:participant;127.0.0.1:3"}, known.version))
    ensemble.adapt(session, OUTSIDER, coordinates=False)
    server = ensemble.server
    assert server is not None
    until(lambda: listens(server.address.client), "the server to listen")
    for _ in range(2):
        assert not _offered(ensemble, session)()
    assert server.runs


def test_a_removed_server_ends_when_those_that_stay_go_on_without_it(
    ensemble: Ensemble, session: ZooKeeperSession
) -> None:
    until(_offered(ensemble, session), "the server to be ready")
    server, known = ensemble.server, ensemble._voting
    assert server is not None
    client, quorum, election = (free_port("127.0.0.1") for _ in range(3))
    dead = ServerAddress(1, "n1", "127.0.0.1", client, quorum, election, 1)
    ensemble._take([dead], known)
    assert not ensemble.adapt(session, OTHERS, coordinates=False)
    assert _runs(server)
    ensemble.refresh(session, lambda *_: None)
    ensemble.adapt(session, OTHERS, coordinates=False)
    assert ensemble.server is None
    assert not _runs(server)
    ensemble.refresh(session, lambda *_: None)
    assert all(each.member != "outsider" for each in ensemble._addresses.values())


def test_a_member_that_has_read_of_a_server_cannot_let_it_vote_after_its_end(
    ensemble: Ensemble, session: ZooKeeperSession
) -> None:
    """Two left at once: the coordinator made a server the only voter that had just ended, and nobody could go on."""
    until(_offered(ensemble, session), "the server to be ready")
    coordinator = Ensemble("n1", SETTINGS)
    coordinator.refresh(session, lambda *_: None)
    voters, version = coordinator._voting.ids, coordinator._voting.version
    until(lambda: ensemble.adapt(session, OTHERS, coordinates=False) or ensemble.server is None, "its end")
    with pytest.raises(BadVersionError):
        session.ask(lambda client: client.reconfig_async(None, "99", None, version))
    assert not coordinator.adapt(session, OUTSIDER, coordinates=True)
    coordinator.refresh(session, lambda *_: None)
    assert coordinator._voting.ids == voters


def test_a_server_that_was_withdrawn_is_offered_again_if_it_is_wanted(
    ensemble: Ensemble, session: ZooKeeperSession
) -> None:
    until(_offered(ensemble, session), "the server to be ready")
    own = ensemble._own
    assert own is not None
    assert ensemble._is_withdrawn(session, own)
    ensemble.refresh(session, lambda *_: None)
    assert all(each.member != "outsider" for each in ensemble._addresses.values())
    until(_offered(ensemble, session), "the server to be offered again")
    assert ensemble._own is own


class Silent:
    """A session in which nobody answers some calls, and which goes on."""

    def __init__(self, silent: int) -> None:
        self.silent = silent
        self.nodes = {"/sparkjet/servers/s0000000006"}
        self.changes: list[int] = []

    def ask(self, request: Callable[[Silent], object], seconds: float | None = None) -> object:
        del seconds
        if self.silent:
            self.silent -= 1
            raise QuorumLostError("nobody has answered.")
        return request(self)

    def delete_async(self, node: str) -> None:
        self.nodes.remove(node)

    def get_async(self, path: str) -> tuple[bytes, None]:
        del path
        return b"server.1=127.0.0.1:1:2:participant;127.0.0.1:3\nversion=a", None

    def create_async(self, path: str, *, ephemeral: bool, sequence: bool) -> str:
        del ephemeral, sequence
        self.nodes.add(f"{path}0000000009")
        return f"{path}0000000009"

    def set_async(self, node: str, content: bytes) -> None:
        del content
        if node not in self.nodes:
            raise NoNodeError

    def reconfig_async(self, joining: None, leaving: str, members: None, version: int) -> None:
        del joining, leaving, members
        self.changes.append(version)


@pytest.mark.parametrize("silent", [0, 1, 2])
def test_a_server_is_not_withdrawn_until_others_read_of_it_no_more(silent: int) -> None:
    """A majority that was away for a while: the server ended, and its node was there for as long as the session."""
    ensemble, session = Ensemble("outsider", SETTINGS), Silent(silent)
    server = ZooKeeperServer(ServerAddress(7, "outsider", "127.0.0.1", 1, 2, 3, 1), SETTINGS)
    own = _Own(server, next(iter(session.nodes)), is_told=True, was_told=True)
    for _ in range(silent):
        with pytest.raises(QuorumLostError):
            ensemble._is_withdrawn(session, own)  # type: ignore[arg-type]
    assert ensemble._is_withdrawn(session, own)  # type: ignore[arg-type]
    assert session.nodes == set()
    assert session.changes == [10]
    assert not own.is_told


def test_a_server_that_was_half_withdrawn_is_offered_again_by_another_node() -> None:
    """The answer to the removal was lost, and the server wanted again."""
    ensemble, session = Ensemble("outsider", SETTINGS), Silent(0)
    server = ZooKeeperServer(ServerAddress(7, "outsider", "127.0.0.1", 1, 2, 3, 1), SETTINGS)
    own = _Own(server, session.nodes.pop(), was_told=True)
    ensemble._tell(session, own)  # type: ignore[arg-type]
    assert own.is_told
    assert session.nodes == {own.node}


def test_a_server_that_was_replaced_is_withdrawn_before_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a session has just begun, others may have read of it, and not yet of the one in its place."""
    ensemble, session = Ensemble("outsider", SETTINGS), Silent(0)
    address = ServerAddress(1, "outsider", "127.0.0.1", 1, 2, 3, 1)
    ensemble._own = _Own(ZooKeeperServer(address, SETTINGS), "/sparkjet/servers/s1", is_told=True, was_told=True)
    older = ZooKeeperServer(msgspec.structs.replace(address, id=7), SETTINGS)
    ensemble._replaced = _Own(older, next(iter(session.nodes)), is_told=True, was_told=True)
    ensemble._take([address], Voting({1: address.line}, 10))
    monkeypatch.setattr(ensemble, "_is_released", lambda _: True)
    assert not ensemble._does_its_part(session, votes=True)  # type: ignore[arg-type]
    assert (session.nodes, session.changes) == (set(), [10])
    assert vars(ensemble)["_replaced"] is None


def test_a_voter_that_has_died_keeps_what_it_has_until_a_majority_goes_on_without_it(
    ensemble: Ensemble, session: ZooKeeperSession
) -> None:
    """Two of three died at once, twice: the third one still answered both, and both began again with nothing."""
    until(_offered(ensemble, session), "the server to be ready")
    server = ensemble.server
    assert server is not None
    ensemble._take([server.address], Voting({server.address.id: server.address.line}, 1))
    server.halt()
    session.close("the leader has lost its followers")
    with pytest.raises(QuorumLostError):
        ensemble.adapt(session, OUTSIDER, coordinates=False)
    assert ensemble.server is server
    assert server.is_whole


def test_a_client_that_has_not_heard_of_a_new_voter_finds_it_nevertheless() -> None:
    """Two left at once, and the one that stayed went on asking the server of one of them."""
    ensemble = Ensemble("me", SETTINGS)
    one, two, own = (ServerAddress(id_, f"n{id_}", "127.0.0.1", id_, 9, 9, 9) for id_ in (1, 2, 3))
    own = msgspec.structs.replace(own, member="me")
    ensemble._take([one, two, own], Voting({2: two.line}, 1))
    assert ensemble.contacts() == ["127.0.0.1:2", "127.0.0.1:3", "127.0.0.1:1"]
    ensemble._take([one, two, own], Voting({2: two.line, 3: own.line}, 1))
    assert ensemble.contacts() == ["127.0.0.1:3", "127.0.0.1:2", "127.0.0.1:1"]


def test_there_are_never_two_voters_and_ids_are_not_used_again(zookeeper: Controls) -> None:
    zookeeper.fill(1)
    zookeeper.fill(3)
    homes = [joined.control._membership.ensemble.server._home for joined in zookeeper.members]  # type: ignore[attr-defined]
    ids = {server.id for joined in zookeeper.members if (server := address(joined))}
    zookeeper.end(zookeeper.members[1])
    zookeeper.settle(1)
    zookeeper.fill(3)
    # A file for each change, which the server that was there from the beginning has all.
    files = [path.read_text(encoding="ascii") for path in homes[0].glob("zoo.cfg.dynamic.*")]
    assert {len(text.splitlines()) for text in files} == {1, 3}
    later = {server.id for joined in zookeeper.members if (server := address(joined))}
    assert max(later - ids) > max(ids)


def _runs(server: ZooKeeperServer) -> bool:
    return server.runs
