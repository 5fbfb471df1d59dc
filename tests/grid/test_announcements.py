"""A member is told of states in their order, and of its end."""

from __future__ import annotations

import threading

import msgspec
import pytest

from sparkjet_grid.announcements import Announcements
from sparkjet_grid.cluster_state import ClusterState, Member, first
from tests.faults.waiting import until

STATE = first("c", Member("n1", "grpc://127.0.0.1:1", "h1"))


def at(version: int) -> ClusterState:
    return msgspec.structs.replace(STATE, version=version)


def test_older_states_and_those_between_are_left_out() -> None:
    told: list[int] = []
    free = threading.Event()

    def changed(state: ClusterState) -> None:
        told.append(state.version)
        free.wait(60)

    announcements = Announcements(changed, told.append)  # type: ignore[arg-type]
    announcements.publish(at(1))
    until(lambda: told == [1], "the first state")
    for version in (3, 2, 5, 4):
        announcements.publish(at(version))
    free.set()
    until(lambda: told == [1, 5], "the newest state")
    announcements.close()


def test_the_end_comes_once_and_last() -> None:
    told: list[int | str] = []
    announcements = Announcements(lambda state: told.append(state.version), told.append)
    announcements.end("because")
    announcements.end("something else")
    until(lambda: told == ["because"], "the end")
    announcements.publish(at(1))
    assert told == ["because"]


@pytest.mark.logs_errors
def test_a_state_that_could_not_be_taken_over_is_told_again(caplog: pytest.LogCaptureFixture) -> None:
    told: list[int] = []
    reasons: list[str] = []

    def changed(state: ClusterState) -> None:
        told.append(state.version)
        if len(told) == 1:
            raise ValueError("no room")

    announcements = Announcements(changed, reasons.append)
    announcements.publish(at(7))
    until(lambda: told == [7, 7], "the second attempt")
    announcements.close()
    assert reasons == []
    assert "grid-announcements has failed, and goes on: no room" in caplog.text
