"""Every thread of a member: what an unexpected failure in it means, and that the log names the cause.

Only who was removed, is cut off or was told to stop ends. A thread that is new needs an entry here.
"""

from __future__ import annotations

import errno
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from sparkjet_grid.access import Access, create_token
from sparkjet_grid.announcements import Announcements
from sparkjet_grid.background import LoopThread, in_background
from sparkjet_grid.client import GridClient
from sparkjet_grid.cluster_state import Member, first
from sparkjet_grid.copying import Copying
from sparkjet_grid.entries import Entries
from sparkjet_grid.errors import AnalysisError, GridError, StorageError
from sparkjet_grid.in_process_control import InProcessControl
from sparkjet_grid.member import Member as WholeMember
from sparkjet_grid.member import MemberSettings
from sparkjet_grid.membership import Membership
from sparkjet_grid.pings import Pings
from sparkjet_grid.strangers import Strangers
from sparkjet_grid.view import LeaseRenewal, View
from sparkjet_grid.zookeeper_control import ZooKeeperControl
from sparkjet_grid.zookeeper_settings import ZooKeeperSettings
from tests.faults.waiting import until
from tests.grid.batches import ROWS, rows_of
from tests.grid.control_contract import put
from tests.grid.controls import Controls
from tests.grid.grids import Grid, grid_of

T = TypeVar("T")
CONSEQUENCES = {
    r"grid-(announcements|copying|lease|membership|pings|server|strangers)": "logged; its step is begun again",
    r"grid-ping_\d+": "raised where the pings are awaited: as grid-pings",
    r"grid-copy-\w+": "logged; copied again",
    r"grid-to-.*": "raised where the answer is awaited: the call is refused, and tried again by its client",
    r"grid-(from-.*|put_\d+)": "of clients: raised where the answer is awaited",
    r"grid-nudge-.*": "none: nobody needs the answer",
    r"grid-leave": "logged; the member ends, with exit status 1",
    r"grid-stop": "none: it only waits for a signal",
    r"grid-close": "none: the process ends 5 s later at the latest",
    r"Thread-\d+ \(zk_loop\)": "kazoo's: logged; the session ends, and the member goes on in another one",
    r"Thread-\d+ \(_thread_worker\)": "kazoo's: logged, and it goes on",
    r"MainThread": "before the member has joined it ends; then it waits for the end only",
}
CAUSES = {
    "unexpected": ValueError("unexpected"),
    "EMFILE": OSError(errno.EMFILE, "Too many open files"),
    "ENOSPC": OSError(errno.ENOSPC, "No space left on device"),
    "missing file": FileNotFoundError(errno.ENOENT, "No such file or directory", "token"),
    "missing program": AnalysisError("there is no java on the PATH"),
}
STATE = first("c", Member("me", "grpc://127.0.0.1:1", "h1"))


class Fails:
    """Fails at first, then says that it was called."""

    def __init__(self, cause: Exception, times: int = 1) -> None:
        self._cause, self._times, self.calls = cause, times, 0

    def __call__(self, answer: T) -> T:
        self.calls += 1
        if self.calls <= self._times:
            raise self._cause
        return answer

    def is_over(self) -> bool:
        """Whether it has been called again after it had failed."""
        return self.calls > self._times


class _Control(InProcessControl):
    def __init__(self, fails: Fails) -> None:
        super().__init__()
        self._fails = fails

    def confirm(self) -> None:
        self._fails(None)


class _View(View):
    def __init__(self, fails: Fails) -> None:
        super().__init__("me")
        self._fails = fails
        self.changed(STATE)

    @property
    def state(self) -> Any:
        return self._fails(STATE)


class _Membership(Membership):
    fails: Fails

    def _round(self) -> bool:
        return self.fails(True)


class _Ensemble:
    def __init__(self, fails: Fails) -> None:
        self._fails = fails

    def tend(self) -> None:
        self._fails(None)


class _Strangers(Strangers):
    fails: Fails

    def look(self) -> None:
        self.fails(None)


def _lease(fails: Fails) -> Callable[[], None]:
    lease = LeaseRenewal(_Control(fails), View("me", 0.01))
    lease._loop.start()
    return lease.stop


def _pings(fails: Fails) -> Callable[[], None]:
    pings = Pings(lambda: fails([]), lambda _, seconds: None, 0.01)
    pings.start()
    return pings.stop


def _announcements(fails: Fails) -> Callable[[], None]:
    announcements = Announcements(lambda _: fails(None), lambda _: None)
    announcements.publish(STATE)
    return announcements.close


def _copying(fails: Fails) -> Callable[[], None]:
    copying = Copying(Entries(1000), _View(fails), None, InProcessControl())  # type: ignore[arg-type]
    copying.start()
    return copying.stop


def _membership(fails: Fails) -> Membership:
    settings = ZooKeeperSettings("a token for tests")
    membership = _Membership(STATE.members[0], settings, Announcements(lambda _: None, lambda _: None))
    membership.fails = fails
    membership._pause = 0.01
    return membership


def _end(membership: Membership) -> None:
    for loop in (membership._rounds, membership._tending):
        loop.stop()
    membership._announcements.close()


def _rounds(fails: Fails) -> Callable[[], None]:
    membership = _membership(fails)
    membership._rounds.start()
    return lambda: _end(membership)


def _server(fails: Fails) -> Callable[[], None]:
    membership = _membership(fails)
    membership.ensemble = _Ensemble(fails)  # type: ignore[assignment]
    membership._tending.start()
    return lambda: _end(membership)


def _strangers(fails: Fails) -> Callable[[], None]:
    strangers = _Strangers()
    strangers.fails = fails
    strangers.start(9)
    return strangers.stop


LOOPS: dict[str, Callable[[Fails], Callable[[], None]]] = {
    "grid-announcements": _announcements,
    "grid-copying": _copying,
    "grid-lease": _lease,
    "grid-membership": _rounds,
    "grid-pings": _pings,
    "grid-server": _server,
    "grid-strangers": _strangers,
}


@pytest.mark.logs_errors
def test_a_loop_that_fails_says_why_and_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    """All of them at once, as each waits a second before it goes on."""
    fails = {(name, cause): Fails(cause) for name in LOOPS for cause in CAUSES.values()}
    stops = [LOOPS[name](each) for (name, _), each in fails.items()]
    try:
        until(lambda: all(each.is_over() for each in fails.values()), "all of them to go on", 60)
    finally:
        for stop in stops:
            stop()
    told = [record.getMessage() for record in caplog.records if " has failed, and goes on: " in record.getMessage()]
    assert sorted(told) == sorted(f"{name} has failed, and goes on: {cause}" for name, cause in fails)


def test_a_second_attempt_to_re_form_a_grid_is_told_so() -> None:
    """The second command took the place of the first one, which waited for two minutes, and failed."""
    membership = _membership(Fails(ValueError(), 0))
    answer = in_background(lambda: membership.reform(["me"]), "grid-to-one")
    until(lambda: membership._reforming is not None, "the first command")
    with pytest.raises(StorageError, match="is being re-formed already"):
        membership.reform(["another"])
    assert membership._reforming is not None
    survivors, result = membership._reforming
    assert survivors == {"me"}
    result.set_exception(StorageError("it cannot be"))
    assert str(answer.exception(10)) == "[SPARKJET_STORAGE] it cannot be"


@pytest.fixture
def grid(tmp_path: Path) -> Iterator[Grid]:
    with grid_of(tmp_path, 2) as grid:
        yield grid


def _fill(client: GridClient) -> None:
    client.put([client.entry(f"a/{number}", ROWS, [rows_of(9, number)]) for number in range(60)])


@pytest.mark.logs_errors
@pytest.mark.parametrize("cause", CAUSES)
def test_a_copy_that_fails_says_why_and_is_made_again(cause: str, grid: Grid, caplog: pytest.LogCaptureFixture) -> None:
    _fill(grid.client())
    fails = Fails(CAUSES[cause])
    grid.cluster.before_proposal = lambda: fails(None)
    grid.start("host-3", again=0.01)
    grid.settle()
    assert "has failed, and is tried again" in caplog.text
    assert str(CAUSES[cause]) in caplog.text
    assert [member._reason for member in grid.members] == ["", "", ""]


@pytest.mark.logs_errors
@pytest.mark.parametrize("cause", CAUSES)
def test_a_call_that_fails_is_refused_and_the_log_says_why(
    cause: str, grid: Grid, caplog: pytest.LogCaptureFixture
) -> None:
    fails = Fails(CAUSES[cause])
    grid.cluster.before_slot = lambda: fails(None)
    client = grid.client()
    held = client.put([client.entry("a", ROWS, [rows_of(9)])])
    with pytest.raises(GridError, match="the member has failed; its log says why"):
        client.put_slot("log/1", b"token", held)
    assert client.put_slot("log/1", b"token", held)
    assert str(CAUSES[cause]) in caplog.text
    assert [member._reason for member in grid.members] == ["", ""]


@pytest.mark.logs_errors
@pytest.mark.parametrize("cause", CAUSES)
def test_a_member_that_cannot_leave_in_order_says_why_and_ends(
    cause: str, grid: Grid, caplog: pytest.LogCaptureFixture
) -> None:
    """Who stops it would wait forever."""
    fails = Fails(CAUSES[cause])
    grid.cluster.before_proposal = lambda: fails(None)
    going = grid.members[0]
    going.begin_to_leave()
    assert going.wait() == f"it could not leave in order: {CAUSES[cause]}"
    assert not going.has_left(10.0)
    assert "could not leave in order" in caplog.text


@pytest.mark.crash
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_of_kazoos_that_fails_ends_a_session_and_not_the_member(caplog: pytest.LogCaptureFixture) -> None:
    with Controls() as controls:
        controls.fill(1)
        control = controls.any
        session = control._membership._shared.session
        # A request that nobody can send.
        session._client._queue.append((object(), None))
        session._client._connection._write_sock.send(b"\0")
        until(lambda: control._membership._shared.session is not session, "another session", 60)
        assert put(control, "log/1", b"token")
        assert controls.members[0].reasons == []
        assert "Unhandled exception in connection loop" in caplog.text
        assert "goes on in another session" in caplog.text


def _ours(before: set[int | None]) -> dict[str, type]:
    return {thread.name: type(thread) for thread in threading.enumerate() if thread.ident not in before}


@pytest.mark.crash
def test_each_thread_has_an_entry(tmp_path: Path) -> None:
    """Two members that write, copy and leave: of all threads that are seen somebody has said what a failure means."""
    before = {thread.ident for thread in threading.enumerate() if thread is not threading.main_thread()}
    seen: dict[str, type] = {}
    done = threading.Event()

    def watch() -> None:
        while not done.wait(0.001):
            seen.update(_ours(before))

    watching = threading.Thread(target=watch, name="watches")
    watching.start()
    members: list[WholeMember] = []
    try:
        create_token(tmp_path / "token")
        access = Access(str(tmp_path / "token"))
        contacts: list[str] = []
        for number in range(2):
            control = ZooKeeperControl(ZooKeeperSettings(access.token()), contacts, partitions=12)
            member = WholeMember(MemberSettings(1 << 30, host=f"host-{number}"), access, control)
            member.start()
            members.append(member)
            contacts = control.contacts()
        client = GridClient([members[0].address.uri.partition("//")[2]], access)
        _fill(client)
        view = members[0].view
        until(lambda: all(set(row.replicas) == set(row.target) for row in view.state.rows), "copies", 60)
        _fill(client)
        client.close()
        for member in members:
            member.begin_to_leave()
            member.wait()
    finally:
        done.set()
        watching.join()
        for member in members:
            member.end("the test is over")
            member.close()
    seen.pop("watches")
    unknown = {name for name in seen if not any(re.fullmatch(pattern, name) for pattern in CONSEQUENCES)}
    assert unknown == set()
    loops = {name for name, kind in seen.items() if kind is LoopThread}
    assert loops == set(LOOPS)
    assert {"grid-leave"} <= seen.keys()
