"""Waiting for what a source or its receiver comes to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.faults.waiting import until

if TYPE_CHECKING:
    from sparkjet.sources.acknowledging.contract import AcknowledgingSource
    from sparkjet.sources.acknowledging.receiver import Receiver

LONG = 60.0


def until_ended(receiver: Receiver) -> None:
    """Wait for what ends it."""
    while True:
        receiver.wait(1_000_000, LONG)


def until_alone(source: AcknowledgingSource, queue: str, count: int) -> None:
    """Wait until nobody else has messages of a queue; it must not say so before all ``count`` are back."""
    there = 0

    def is_alone() -> bool:
        nonlocal there
        there += len(source.receive(count, 0.01))
        ready = source.ready()
        assert not source.alone or there + ready[queue] == count
        return source.alone

    until(is_alone, "a queue without another consumer")
