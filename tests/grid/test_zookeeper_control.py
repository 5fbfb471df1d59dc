"""The control plane of several members keeps the contract, and what ZooKeeper adds to it."""

from __future__ import annotations

import dataclasses
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterator

import msgspec
import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError

from sparkjet_grid.cluster_state import ClusterState, Member, left
from sparkjet_grid.errors import AnalysisError, QuorumLostError, RemovedError, StaleStateError, StorageError
from sparkjet_grid.zookeeper_control import ZooKeeperControl
from sparkjet_grid.zookeeper_settings import ZooKeeperSettings
from sparkjet_grid.zookeeper_slots import STATE, ZooKeeperSlots
from tests.faults.waiting import until
from tests.grid.control_contract import ControlContract, ControlUnderTest, Joined, newer, put
from tests.grid.controls import Controls, pid
from tests.servers.tcp_proxy import TcpProxy

pytestmark = pytest.mark.crash


@pytest.fixture(scope="module")
def zookeeper() -> Iterator[Controls]:
    with Controls() as controls:
        yield controls


class TestContract(ControlContract):
    @pytest.fixture
    def target(self, zookeeper: Controls) -> ControlUnderTest:
        zookeeper.fill(3)
        zookeeper.any.remove_slots(zookeeper.any.slots(""))
        return ControlUnderTest(list(zookeeper.members), end=zookeeper.end)


def test_answers_that_are_lost_do_not_change_who_wins(zookeeper: Controls) -> None:
    """A connection is cut again and again while slots are put: whose answer was lost finds its own token."""
    zookeeper.fill(1)
    control, done = zookeeper.any, threading.Event()
    with TcpProxy(int(control.contacts()[0].rpartition(":")[2])) as proxy:
        writer = zookeeper.outsider([f"127.0.0.1:{proxy.port}"])

        def cut() -> None:
            while not done.wait(0.02):
                proxy.cut()

        cutting = threading.Thread(target=cut)
        cutting.start()
        try:
            for slot in range(15):
                assert writer.put(f"cut/{slot:02}", b"mine", control.state().version)
                assert not control.put_slot(f"cut/{slot:02}", b"another's", control.state().version)
        finally:
            done.set()
            cutting.join()
            writer.session.close("the test is over")
    assert control.slots("cut") == [f"cut/{slot:02}" for slot in range(15)]


def test_a_first_server_that_does_not_start_says_why() -> None:
    """At once, and not after the minute that it may take on a busy machine."""
    control = ZooKeeperControl(ZooKeeperSettings("a token for tests", heap=1))
    with pytest.raises(StorageError, match=r"(?s)does not start: its process ended with 1: .*Too small maximum heap"):
        Joined.joined(control, Member("m", "grpc://127.0.0.1/m", "h"))


@pytest.mark.parametrize("which", range(3))
def test_a_port_that_is_taken_is_named(which: int) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        ports = [0, 0, 0, 0]
        ports[which] = port
        settings = ZooKeeperSettings("a token for tests", ports=(ports[0], ports[1], ports[2], 0))
        with pytest.raises(AnalysisError, match=f"--control-ports: .* at 127.0.0.1, port {port}: Address already"):
            Joined.joined(ZooKeeperControl(settings), Member("m", "grpc://127.0.0.1/m", "h"))


class Overtaken(ZooKeeperSlots):
    """Somebody changes the state each time after it was read."""

    def state(self, woken: Callable[..., None] | None = None) -> tuple[ClusterState, int]:
        found = super().state(woken)
        self.session.ask(lambda client: client.set_async(STATE, msgspec.msgpack.encode(newer(found[0]))))
        return found


def test_a_state_that_changes_between_a_look_and_the_put_is_noticed(zookeeper: Controls) -> None:
    zookeeper.fill(1)
    writer = zookeeper.outsider(zookeeper.any.contacts())
    try:
        overtaken = Overtaken(writer.session, "outsider")
        assert put(zookeeper.any, "overtaken/0", b"token")
        with pytest.raises(StaleStateError):
            overtaken.put("overtaken/1", b"late", zookeeper.any.propose(lambda state: state).version)
        assert writer.names("overtaken") == ["overtaken/0"]
    finally:
        writer.session.close("the test is over")


def test_a_writer_that_is_there_no_more_puts_nothing(zookeeper: Controls) -> None:
    """As in a session that kazoo has begun by itself: the member of the one before is gone."""
    zookeeper.fill(1)
    writer = zookeeper.outsider(zookeeper.any.contacts())
    try:
        assert put(zookeeper.any, "gone/0", b"token")
        writer.dismiss("outsider")
        with pytest.raises(RemovedError):
            writer.put("gone/1", b"late", zookeeper.any.propose(lambda state: state).version)
        for call in (writer.fence, lambda: writer.names("gone"), lambda: writer.token("gone/1")):
            with pytest.raises(RemovedError):
                call()
        # Nor may it be there again: the state does not name it.
        with pytest.raises(RemovedError):
            writer.reenter()
    finally:
        writer.session.close("the test is over")
    assert zookeeper.any.slots("gone") == ["gone/0"]


def test_another_token_is_refused(zookeeper: Controls) -> None:
    zookeeper.fill(1)
    stranger = ZooKeeperControl(dataclasses.replace(zookeeper.settings, token="x" * 20), zookeeper.any.contacts())
    with pytest.raises(AnalysisError, match=r"token: the grid at .* has another one"):
        Joined.joined(stranger, Member("stranger", "grpc://127.0.0.1:1", "h1"))


def test_without_the_token_nobody_can_read_or_write(zookeeper: Controls) -> None:
    zookeeper.fill(1)
    client = KazooClient(zookeeper.any.contacts()[0])
    client.start(10)
    try:
        for refused in (
            lambda: client.get("/sparkjet/state"),
            lambda: client.get_children("/sparkjet/slots"),
            lambda: client.create("/sparkjet/members/n0", b""),
            lambda: client.create("/other", b""),
            lambda: client.delete("/sparkjet/state"),
            lambda: client.reconfig(None, "1", None),
        ):
            with pytest.raises(NoAuthError):
                refused()  # type: ignore[no-untyped-call] # kazoo has no types
        # ZooKeeper takes any user's password; it is the name that nobody else can have.
        client.add_auth("digest", "anybody:anything")
        with pytest.raises(NoAuthError):
            client.get("/sparkjet/state")
    finally:
        client.stop()
        client.close()


def test_without_a_cluster_nobody_can_join(zookeeper: Controls) -> None:
    settings = ZooKeeperSettings("t" * 20, patience=0.5)
    lonely = ZooKeeperControl(settings, ["127.0.0.1:1"])
    with pytest.raises(QuorumLostError, match=r"no ZooKeeper server of the grid has answered at 127\.0\.0\.1:1 for"):
        Joined.joined(lonely, Member("lonely", "grpc://127.0.0.1:1", "h1"))


def test_a_control_plane_is_that_of_one_member(zookeeper: Controls) -> None:
    zookeeper.fill(1)
    with pytest.raises(StorageError, match="n9 cannot join: this control plane is that of another one"):
        Joined.joined(zookeeper.any, Member("n9", "grpc://127.0.0.1:1", "h1"))


def test_a_member_that_was_silent_ends_once_the_others_have_gone_on_without_it(zookeeper: Controls) -> None:
    """kazoo begins another session by itself, in which an unconditional write would succeed."""
    zookeeper.fill(3)
    victim, other, _ = zookeeper.members
    zookeeper.end(victim)
    with pytest.raises(RemovedError):
        victim.control.put_slot("silent/1", b"late", other.control.state().version)
    until(lambda: victim.member not in other.control.state().members, "the others to notice")
    assert other.control.slot("silent/1") is None
    assert len(victim.reasons) == 1


def test_a_member_whose_session_ends_goes_on_in_another_one_if_nobody_has_missed_it(zookeeper: Controls) -> None:
    """A majority that sleeps and wakes ends the sessions of all members at once: that must not be their end."""
    zookeeper.fill(1)
    alone = zookeeper.members[0]
    before = alone.control.state()
    assert put(alone.control, "sessions/1", b"before")
    for slot in range(2, 5):
        zookeeper.expire(alone)
        assert alone.control.put_slot(f"sessions/{slot}", b"after", before.version)
    assert alone.control.slots("sessions") == [f"sessions/{slot}" for slot in range(1, 5)]
    assert alone.control.state() == before
    assert not alone.reasons
    # And it still votes, by what others can see.
    until(lambda: alone.control.voters() == [alone.member.id], "its server to be known")


def test_a_member_that_was_interrupted_itself_takes_nobody_for_dead(zookeeper: Controls) -> None:
    """After a majority has slept the first member that is back would find itself alone, and remove all others."""
    zookeeper.fill(2)
    first, second = zookeeper.members
    os.kill(pid(first), signal.SIGKILL)
    assert put(second.control, "interrupted/1", b"token")
    for _ in range(3):
        zookeeper.expire(second)
        assert second.control.slots("interrupted") == ["interrupted/1"]
    assert second.member in first.control.state().members
    assert not second.reasons


def test_a_member_that_others_have_removed_ends(zookeeper: Controls) -> None:
    """As the data plane does with one that does not answer, though its session lives."""
    zookeeper.fill(3)
    victim, other, _ = zookeeper.members
    other.control.propose(lambda state: left(state, {victim.member.id}))
    until(lambda: victim.reasons == ["[SPARKJET_GRID.REMOVED] the others have removed it"], "its end")
    assert put(other.control, "removed/2", b"token")
