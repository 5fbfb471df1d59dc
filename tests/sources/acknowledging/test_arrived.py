"""Messages that have arrived on a connection: how many are handed on at once."""

from __future__ import annotations

from sparkjet.sources.acknowledging.arrived import TOGETHER, Arrived
from sparkjet.sources.acknowledging.contract import Message


def filled(*sizes: int) -> Arrived[int]:
    """Messages with bodies of these sizes, acknowledged by their numbers."""
    arrived = Arrived[int]()
    for number, size in enumerate(sizes):
        arrived.append(number, Message(f"m{number}", "q", (bytes(size),)))
    return arrived


def test_small_messages_are_taken_up_to_their_number() -> None:
    arrived = filled(1, 0, 1)
    assert arrived.take(0) == []
    assert not arrived.is_enough(4)
    assert arrived.is_enough(3)
    assert [number for number, _ in arrived.take(2)] == [0, 1]
    assert [message.id for message in arrived] == ["m2"]
    arrived.clear()
    assert arrived.take(2) == []


def test_large_ones_are_taken_up_to_their_size_and_one_at_least() -> None:
    arrived = filled(TOGETHER - 1, 1, 1, 2 * TOGETHER, 1)
    taken = []
    while arrived:
        assert arrived.is_enough(9) == (len(arrived) > 1)
        taken.append([number for number, _ in arrived.take(9)])
    assert taken == [[0, 1], [2, 3], [4]]
