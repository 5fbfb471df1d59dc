"""The ledger: the rules J01 to J09, what a message is known by, and when it is forgotten."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import pytest

from sparkjet.sources.acknowledging.contract import NOTICES_WITHIN, Message
from sparkjet.sources.acknowledging.ledger import (
    ACKNOWLEDGED_FOR,
    UNREAD_FOR,
    Ledger,
    LedgerState,
    MissingIdError,
)

WITHIN = 180_000_000
"""Microseconds in which the broker notices a dead client."""


def connected(ledger: Ledger, broker: str = "b", *queues: str) -> Ledger:
    ledger.connect(broker, WITHIN, queues or ("q",))
    return ledger


def new() -> Ledger:
    return connected(Ledger())


def received(ledger: Ledger, *ids: str | None, queue: str = "q", again: bool = True) -> list[str | None]:
    """Those that are not dropped."""
    found: list[str | None] = []

    def hold(messages: Sequence[Message]) -> None:
        found.extend(message.id for message in messages)

    ledger.receive([Message(each, queue, (), redelivered=again) for each in ids], hold)
    return found


def acknowledged(ledger: Ledger, position: int, now: int = 0) -> int:
    """How many messages the broker hears of."""
    due = ledger.due(position)
    ledger.acknowledge(due, now)
    return due


def ids(state: LedgerState, queue: str = "q") -> list[str]:
    """All that a snapshot has of a queue."""
    return sorted(each for expected in state.expected for each in expected.ids.get(queue, []))


def restarted(state: LedgerState, *, identified: bool = True, now: int = 0, broker: str = "b") -> Ledger:
    """The ledger of the next run; the snapshot travels as a blob."""
    ledger = Ledger(identified=identified)
    ledger.restore(msgspec.json.decode(msgspec.json.encode(state), type=LedgerState), now)
    return connected(ledger, broker)


def seen(ledger: Ledger, now: int, **ready: int) -> None:
    """The broker says how many messages each queue has."""
    counts: Mapping[str, int] = ready or {"q": 0}
    ledger.look(counts, now)


def test_j01_what_was_decided_and_not_acknowledged_is_dropped() -> None:
    ledger = new()
    assert received(ledger, "m1", "m2") == ["m1", "m2"]
    ledger = restarted(ledger.snapshot(ledger.position))
    assert received(ledger, "m1", "m2", "m3") == ["m3"]
    assert ledger.position == 3
    # All three: the broker has not heard of any.
    assert ids(ledger.snapshot(3)) == ["m1", "m2", "m3"]
    assert acknowledged(ledger, 2) == 2
    assert ledger.unacknowledged == 1


def test_j02_what_was_not_decided_comes_again() -> None:
    ledger = new()
    before = ledger.snapshot(0)
    received(ledger, "m1", "m2")
    assert received(restarted(before), "m1", "m2", "m3") == ["m1", "m2", "m3"]


def test_j03_restored_ids_stay_in_snapshots_until_they_are_forgotten() -> None:
    ledger = new()
    received(ledger, "m1", "m2")
    ledger = restarted(ledger.snapshot(2))
    assert received(ledger, "m3", again=False) == ["m3"]
    assert ids(ledger.snapshot(3)) == ["m1", "m2", "m3"]
    seen(ledger, WITHIN)
    assert ids(ledger.snapshot(3)) == ["m3"]
    assert ledger.remembered == 0


def test_j05_each_delivery_of_an_id_is_dropped_once() -> None:
    ledger = new()
    received(ledger, "m1")
    assert received(restarted(ledger.snapshot(1)), "m1", "m1") == ["m1"]


def test_j05_copies_within_a_connection_are_messages_and_each_is_dropped_when_they_come_again() -> None:
    ledger = new()
    assert received(ledger, "m1", "m1", again=False) == ["m1", "m1"]
    ledger.disconnect(0)
    assert received(connected(ledger), "m1", "m1", "m1") == ["m1"]
    assert received(restarted(ledger.snapshot(2)), "m1", "m1", "m1") == ["m1"]
    # Of one that is decided and one that is not, one is dropped.
    assert received(restarted(ledger.snapshot(1)), "m1", "m1") == ["m1"]


def test_j07_only_what_the_epoch_holds_is_acknowledged() -> None:
    ledger = new()
    received(ledger, "m1", "m2")
    barrier = ledger.position
    received(ledger, "m3")
    assert ids(ledger.snapshot(barrier)) == ["m1", "m2"]
    assert acknowledged(ledger, barrier) == 2
    # A commit that is repeated.
    assert acknowledged(ledger, barrier) == 0
    assert not ledger.is_due(barrier)
    assert ledger.unacknowledged == 1


def test_j08_with_at_least_once_nothing_is_dropped() -> None:
    ledger = connected(Ledger(identified=False))
    assert received(ledger, "m1", "m2") == ["m1", "m2"]
    assert ledger.snapshot(2) == LedgerState(2)
    # Nor what a run with exactly-once has left.
    assert received(restarted(LedgerState(2, ["m1"]), identified=False), "m1") == ["m1"]
    ledger.disconnect(0)
    assert received(connected(ledger), "m1", "m2") == ["m1", "m2"]
    assert acknowledged(ledger, 4) == 2


@pytest.mark.parametrize("id_", [None, ""])
def test_j09_a_message_without_an_id_is_an_error_in_exactly_once_only(id_: str | None) -> None:
    ledger = new()
    with pytest.raises(
        MissingIdError, match=r'of queue \'q\' has no id.*option\("processingGuarantee", "at-least-once"'
    ):
        received(ledger, id_)
    assert ledger.position == 0
    assert received(connected(Ledger(identified=False)), id_) == [id_]


def test_a_message_is_known_by_its_queue_and_its_broker() -> None:
    ledger = connected(Ledger(), "b", "q", "other")
    received(ledger, "m1")
    received(ledger, "m1", queue="other")
    state = ledger.snapshot(1)
    assert received(restarted(state), "m1", queue="other") == ["m1"]
    assert received(restarted(state, broker="b2"), "m1") == ["m1"]
    assert received(restarted(state), "m1") == []
    # Of the other broker's it is none, but that may be read again.
    away = restarted(state, broker="b2")
    seen(away, WITHIN)
    assert ids(away.snapshot(1)) == ["m1"]
    seen(away, UNREAD_FOR)
    assert away.snapshot(1) == LedgerState(1)


def test_what_is_delivered_for_the_first_time_is_compared_with_nothing() -> None:
    ledger = new()
    received(ledger, "m1", again=False)
    ledger = restarted(ledger.snapshot(1))
    assert received(ledger, "m1", again=False) == ["m1"]
    assert received(ledger, "m1") == []


def test_a_dead_letter_is_known_by_the_queue_that_it_comes_from() -> None:
    ledger = connected(Ledger(), "b", "q", "dead")
    received(ledger, "m1")
    ledger = connected(restarted(ledger.snapshot(1)), "b", "q", "dead")
    ledger.receive([Message("m1", "dead", (), origin="q"), Message("m1", "dead", (), origin="other")], lambda _: None)
    assert ledger.position == 2


def test_ids_of_a_record_from_before_queues_were_told_apart_are_of_any() -> None:
    old = msgspec.json.decode(b'{"position":2,"ids":["m1","m2"]}', type=LedgerState)
    ledger = restarted(old)
    assert received(ledger, "m1", "m3", queue="any") == ["m3"]
    assert ids(ledger.snapshot(2), "") == ["m2"]
    assert received(restarted(ledger.snapshot(2)), "m2") == []
    seen(ledger, int(NOTICES_WITHIN * 1e6))
    assert received(ledger, "m2") == ["m2"]


def test_ids_are_kept_until_the_broker_has_noticed_and_what_it_had_then_was_received() -> None:
    ledger = new()
    received(ledger, "m1", "m2")
    ledger = restarted(ledger.snapshot(2), now=1000)
    # Empty queues say nothing yet: the broker may still hold it for the one that is dead.
    seen(ledger, 1000 + WITHIN - 1)
    assert not ledger.wants_look(1000 + WITHIN - 1)
    assert ledger.wants_look(1000 + WITHIN)
    seen(ledger, 1000 + WITHIN, q=3)
    assert not ledger.wants_look(1000 + WITHIN)
    assert received(ledger, "m2", "m3") == ["m3"]
    assert ids(ledger.snapshot(2)) == ["m1", "m2"]
    received(ledger, "m4")
    assert ledger.remembered == 0
    assert received(ledger, "m1") == ["m1"]


def test_what_others_have_taken_is_not_waited_for() -> None:
    ledger = new()
    received(ledger, "m1")
    ledger = restarted(ledger.snapshot(1))
    seen(ledger, WITHIN, q=3)
    assert ledger.remembered == 1
    seen(ledger, WITHIN, q=0)
    assert ledger.remembered == 0


def test_a_run_that_fails_may_have_had_them_again_so_the_next_one_waits_again() -> None:
    ledger = new()
    received(ledger, "m1")
    second = restarted(ledger.snapshot(1), now=1000)
    state = second.snapshot(1)
    assert [each.since for each in state.expected] == [1000]
    third = restarted(state, now=WITHIN + 1000)
    assert not third.wants_look(2 * WITHIN + 999)
    assert third.wants_look(2 * WITHIN + 1000)
    # The longer of what was agreed on then and what is agreed on now.
    third.connect("b", 2 * WITHIN, ["q"])
    assert not third.wants_look(3 * WITHIN + 999)


def test_runs_that_are_shorter_than_the_broker_needs_to_notice_do_not_leave_their_ids_forever() -> None:
    minute, state = 60_000_000, LedgerState(0)
    for run in range(20):
        ledger = restarted(state, now=run * minute)
        received(ledger, f"m{run}", again=False)
        acknowledged(ledger, run)
        # The end of the queue, where nobody else has anything of it: whatever earlier runs were given was put back.
        ledger.look({"q": 0}, run * minute + 1, alone=True)
        state = ledger.snapshot(run + 1)
    # The last three minutes may come from a dead-letter queue, or a broker that has lost acknowledgements.
    assert ids(state) == ["m16", "m17", "m18", "m19"]


def test_what_somebody_else_may_have_been_given_is_kept_over_short_runs() -> None:
    ledger = new()
    received(ledger, "m1")
    state = restarted(ledger.snapshot(1), now=0).snapshot(1)
    ledger = restarted(state, now=10 * WITHIN)
    ledger.look({"q": 0}, 10 * WITHIN)
    assert ids(ledger.snapshot(1)) == ["m1"]
    # There are two now, of which one is the one that is missed.
    ledger.look({"q": 2}, 10 * WITHIN, alone=True)
    assert received(ledger, "m2", again=False) == ["m2"]
    assert received(ledger, "m1") == []


def test_a_lost_connection_restarts_the_look() -> None:
    ledger = new()
    received(ledger, "m1")
    ledger = restarted(ledger.snapshot(1))
    seen(ledger, WITHIN, q=2)
    received(ledger, "m2", again=False)
    ledger.disconnect(WITHIN)
    # m2 is in the queue again, before m1.
    connected(ledger)
    assert not ledger.wants_look(2 * WITHIN - 1)
    seen(ledger, 2 * WITHIN, q=2)
    assert received(ledger, "m2") == []
    assert received(ledger, "m1") == []


def test_ids_of_queues_that_are_not_read_now_are_kept_for_a_week() -> None:
    ledger = new()
    received(ledger, "m1")
    ledger = connected(restarted(ledger.snapshot(1)), "b", "other")
    seen(ledger, WITHIN, other=0)
    received(ledger, "m2", queue="other")
    assert ids(ledger.snapshot(1)) == ["m1"]
    seen(ledger, UNREAD_FOR, other=0)
    assert ids(ledger.snapshot(1)) == []


def test_acknowledged_ids_are_kept_for_a_while() -> None:
    ledger = connected(Ledger(most_acknowledged=3))
    received(ledger, "m1", "m2", "m3", "m4", "m5")
    acknowledged(ledger, 2, now=100)
    assert ids(ledger.snapshot(3)) == ["m1", "m2", "m3"]
    acknowledged(ledger, 3, now=200)
    acknowledged(ledger, 3, now=100 + ACKNOWLEDGED_FOR)
    assert ids(ledger.snapshot(3)) == ["m3"]
    assert acknowledged(ledger, 5, now=300 + ACKNOWLEDGED_FOR) == 2
    received(ledger, "m6")
    acknowledged(ledger, 6, now=300 + ACKNOWLEDGED_FOR)
    # Of four the newest three.
    assert ids(ledger.snapshot(6)) == ["m4", "m5", "m6"]
    # The broker was killed and has forgotten what it had confirmed.
    ledger.disconnect(300 + ACKNOWLEDGED_FOR)
    assert received(connected(ledger), "m6", "m5", "m7", "m4") == ["m7"]


def test_a_lost_connection_loses_and_repeats_nothing() -> None:
    ledger = new()
    received(ledger, "m1", "m2", "m3")
    ledger.disconnect(0)
    # None of these can be acknowledged now.
    assert acknowledged(ledger, 2) == 0
    # m3 is not decided: the next run must not drop it.
    assert ids(ledger.snapshot(2)) == ["m1", "m2"]
    assert received(connected(ledger), "m2", "m3", "m4") == ["m4"]
    assert ids(ledger.snapshot(2)) == ["m1", "m2"]
    assert ids(ledger.snapshot(3)) == ["m1", "m2", "m3"]
    assert acknowledged(ledger, 2) == 1
    assert acknowledged(ledger, 4) == 2


def test_of_two_messages_with_one_id_the_undecided_one_is_not_acknowledged_for_the_other() -> None:
    ledger = new()
    received(ledger, "m1", "m1")
    acknowledged(ledger, 1)
    ledger.disconnect(0)
    # The second one: the broker has heard of the first. Not the first one's row, which is decided.
    assert received(connected(ledger), "m1") == []
    assert ledger.due(1) == 0
    assert ledger.due(2) == 1
