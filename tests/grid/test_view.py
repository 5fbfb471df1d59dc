"""A member acts only on a state that it may still believe in: not after a pause, and not after its end."""

from __future__ import annotations

import pytest

from sparkjet_grid.cluster_state import ClusterState, Member, first, joined
from sparkjet_grid.errors import MovedError, QuorumLostError
from sparkjet_grid.view import LEASE, LeaseRenewal, View
from tests.faults.waiting import until
from tests.grid.shared_control import SharedCluster, SharedControl

A, B = Member("a", "grpc://127.0.0.1:1", "x"), Member("b", "grpc://127.0.0.1:2", "y")
ALONE = first("cluster", A, partitions=2, backup_count=1)
BOTH = joined(ALONE, B)


def test_states_are_taken_in_ascending_versions() -> None:
    view = View("a")
    with pytest.raises(MovedError, match="not yet joined"):
        view.row(0)
    assert view.changed(BOTH)
    assert not view.changed(ALONE)
    assert not view.changed(BOTH)
    assert view.state is BOTH


def test_a_member_is_the_primary_of_its_partitions_only() -> None:
    view = View("b")
    view.changed(BOTH)
    with pytest.raises(MovedError, match="not the primary of partition 0"):
        view.primary_row(0)
    with pytest.raises(MovedError, match="no number 2"):
        view.row(2)
    assert view.holders(0) == {"a"}
    assert view.uri("a") == A.uri
    with pytest.raises(MovedError, match="c has left"):
        view.uri("c")


def test_the_lease_ends_while_the_process_stands_still() -> None:
    now = [100.0]
    view = View("a", now=lambda: now[0])
    view.changed(ALONE)
    with pytest.raises(MovedError, match="not heard of its control plane"):
        view.check()
    view.confirmed(asked=100.0)
    now[0] += LEASE
    view.check()
    # As after SIGSTOP and SIGCONT: the clock has gone on.
    now[0] += 0.1
    with pytest.raises(MovedError):
        view.check()
    # When it was asked counts: the answer may have waited in the socket of a process that stood still.
    view.confirmed(asked=100.05)
    with pytest.raises(MovedError):
        view.check()


def test_after_its_end_a_member_does_nothing_and_nobody_waits() -> None:
    view = View("a")
    view.changed(ALONE)
    view.confirmed(asked=1e12)
    view.end("it was paused.")
    view.end("another reason")
    with pytest.raises(QuorumLostError, match=r"has ended: it was paused\."):
        view.check()
    with pytest.raises(QuorumLostError):
        view.wait(lambda: False, 60)


def test_a_lease_is_renewed_while_the_member_is_not_cut_off() -> None:
    control = SharedControl(SharedCluster())
    view = View("a", lease=0.5)

    def changed(state: ClusterState) -> None:
        view.changed(state)

    control.join(A, changed, view.end)
    lease = LeaseRenewal(control, view)
    lease.start()
    view.check()

    def may_act() -> bool:
        try:
            view.check()
        except MovedError:
            return False
        return True

    for attribute in ("is_cut_off", "is_silent"):
        setattr(control, attribute, True)
        until(lambda: not may_act(), "the end of the lease", 30)
        setattr(control, attribute, False)
        until(may_act, "another lease", 30)
    lease.stop()
