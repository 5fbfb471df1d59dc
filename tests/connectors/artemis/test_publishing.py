"""Publishing to a real broker: every message once, whoever is killed, paused or refused."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING
from uuid import uuid4

import pytest

from sparkjet.connectors.artemis import markers
from sparkjet.connectors.artemis.markers import Marker, Markers
from sparkjet.connectors.artemis.publishing import connected, is_published, newest_markers, parts_of, publish
from sparkjet.connectors.artemis.stomp import StompAddress
from sparkjet.connectors.artemis.stomp_frames import Frame
from sparkjet.errors import SinkError
from tests.connectors.artemis.epochs import bodies, expected, frames, handle_of
from tests.servers.artemis import CLERK, PASSWORD, USER

if TYPE_CHECKING:
    from tests.servers.artemis import ArtemisServer


LONG = 60.0
"""Seconds that a test waits at most."""


class _CrashError(Exception):
    """Stands for the death of the driver."""


@pytest.fixture
def address(artemis: ArtemisServer) -> StompAddress:
    return StompAddress("127.0.0.1", artemis.port, USER, PASSWORD)


@pytest.fixture
def query() -> str:
    return uuid4().hex


def test_an_epoch_is_sent_once_however_often_it_is_published(
    artemis: ArtemisServer, address: StompAddress, query: str
) -> None:
    queue = artemis.queue()
    for epoch in (1, 2, 2, 2, 3, 3):
        publish(address, handle_of(query, epoch), frames(queue, epoch))
    assert bodies(artemis, queue) == expected(1, 2, 3)
    assert is_published(address, handle_of(query, 3))
    assert is_published(address, handle_of(query, 2))
    assert not is_published(address, handle_of(query, 4))
    # Another attempt at the epoch is not what was decided.
    assert not is_published(address, handle_of(query, 3, attempt=1))
    assert [marker.part for marker in newest_markers(address, query, "s")] == [0, 1, 2]


@pytest.mark.parametrize("change", [1, 2, 3])
def test_a_commit_cut_short_is_finished_by_the_next(
    artemis: ArtemisServer, address: StompAddress, query: str, change: int
) -> None:
    queue = artemis.queue()
    seen: list[None] = []

    def between() -> None:
        seen.append(None)
        if len(seen) == change:
            raise _CrashError

    with pytest.raises(_CrashError):
        publish(address, handle_of(query, 1), frames(queue, 1), between)
    assert len(bodies(artemis, queue)) == min(4 * change, 10)
    assert is_published(address, handle_of(query, 1)) == (change == 3)
    publish(address, handle_of(query, 1), frames(queue, 1))
    assert bodies(artemis, queue) == expected(1)


@pytest.mark.parametrize("moment", [0, 3, 4, 9])
def test_two_drivers_do_not_publish_at_the_same_time(
    artemis: ArtemisServer, address: StompAddress, query: str, moment: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = artemis.queue()
    monkeypatch.setattr(markers, "_FOUND_WITHIN", 0.3)

    def rival() -> None:
        with pytest.raises(SinkError, match="another driver of this query holds the queue"):
            publish(address, handle_of(query, 1), frames(queue, 1))

    publish(address, handle_of(query, 1), frames(queue, 1, at={moment: rival}))
    publish(address, handle_of(query, 1), frames(queue, 1))
    assert bodies(artemis, queue) == expected(1)


@pytest.mark.parametrize("moment", [0, 3, 4, 9])
def test_what_another_driver_has_sent_in_between_is_refused(
    artemis: ArtemisServer, address: StompAddress, query: str, moment: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = artemis.queue()

    held: list[Markers] = []
    read = Markers.read

    def remembered(self: Markers) -> list[Marker]:
        held.append(self)
        return read(self)

    monkeypatch.setattr(Markers, "read", remembered)

    def rival() -> None:
        # As if the broker had given up the first driver, and what that sends came through nevertheless.
        held[0].release()
        publish(address, handle_of(query, 1), frames(queue, 1))

    with pytest.raises(SinkError, match="Error committing"):
        publish(address, handle_of(query, 1), frames(queue, 1, at={moment: rival}))
    assert sorted(bodies(artemis, queue)) == sorted(expected(1))
    publish(address, handle_of(query, 1), frames(queue, 1))
    assert sorted(bodies(artemis, queue)) == sorted(expected(1))


def test_a_driver_that_was_passed_sends_nothing(artemis: ArtemisServer, address: StompAddress, query: str) -> None:
    queue = artemis.queue()
    publish(address, handle_of(query, 3), frames(queue, 3))
    publish(address, handle_of(query, 2), frames(queue, 2))
    assert bodies(artemis, queue) == expected(3)


def test_nothing_of_a_part_is_seen_if_a_message_is_refused(
    artemis: ArtemisServer, address: StompAddress, query: str
) -> None:
    queue = f"small.{query}"
    handle = handle_of(query, 1, rows=2000, most=2000)
    with pytest.raises(SinkError, match="whether an address is full"):
        publish(address, handle, frames(queue, 1, rows=2000))
    assert artemis.count(queue) == 0
    assert newest_markers(address, query, "s") == []


def test_nothing_is_marked_if_the_destination_is_refused(
    artemis: ArtemisServer, address: StompAddress, query: str
) -> None:
    clerk = dataclasses.replace(address, user=CLERK, password=CLERK)
    for _ in range(20):
        with pytest.raises(SinkError, match="refuses user 'clerk'"):
            publish(clerk, handle_of(query, 1), frames("closed.q", 1))
    assert newest_markers(address, query, "s") == []


def test_all_messages_of_the_queue_of_markers_are_for_its_holder(
    artemis: ArtemisServer, address: StompAddress, query: str
) -> None:
    queue = markers.queue_of(query, "s")
    headers = {"id": "a/1", "destination": queue, "ack": "client-individual", "subscription-type": "ANYCAST"}
    with connected(address) as first, connected(address) as second:
        holder, other = Markers(first, query, "s"), Markers(second, query, "s")
        holder.read()
        second.confirm([Frame("SUBSCRIBE", {**headers, "consumer-window-size": "-1"})])
        sent = [other.frame(Marker(1, "gid", part), "none") for part in range(4)]
        plain = [frame._replace(headers={**frame.headers, "persistent": "false"}) for frame in sent]
        for frame in plain:
            second.confirm([frame._replace(headers={n: v for n, v in frame.headers.items() if n != "transaction"})])
        assert second.messages("a", 0.3) == []
        holder.release()
        found: list[Frame] = []
        while len(found) < len(sent):
            found += second.messages("a", LONG)
        assert [frame.headers["part"] for frame in found] == ["0", "1", "2", "3"]


def test_markers_of_older_epochs_are_removed_and_the_newest_is_read_any_number_of_times(
    artemis: ArtemisServer, address: StompAddress, query: str
) -> None:
    queue = artemis.queue()
    for epoch in (1, 2):
        publish(address, handle_of(query, epoch, rows=4), frames(queue, epoch, rows=4))
    # The broker removes what was delivered ten times.
    for _ in range(12):
        assert newest_markers(address, query, "s") == [Marker(2, handle_of(query, 2)["gid"], 0)]
    assert artemis.count(markers.queue_of(query, "s")) == 1


@pytest.mark.crash
def test_the_lock_of_a_driver_that_stands_still_is_given_to_the_next(
    artemis: ArtemisServer, address: StompAddress, query: str
) -> None:
    queue = artemis.queue()
    with connected(dataclasses.replace(address, heartbeat=1)) as paused:
        Markers(paused, query, "s").read()
        # It no longer sends heartbeats.
        publish(address, handle_of(query, 1), frames(queue, 1))
    assert bodies(artemis, queue) == expected(1)


def test_the_number_of_parts() -> None:
    assert [parts_of(handle_of("q", 1, rows=rows, most=4)) for rows in (1, 4, 5, 8, 9)] == [1, 1, 2, 2, 3]
