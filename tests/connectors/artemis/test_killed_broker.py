"""A broker that is killed at every step of a publication, and at random moments: every message once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import product
from random import Random
from typing import TYPE_CHECKING

import pytest

from sparkjet.connectors.artemis.publishing import is_published, publish
from sparkjet.connectors.artemis.stomp import StompAddress, StompConnection
from sparkjet.connectors.artemis.stomp_frames import Frame
from sparkjet.errors import SinkError
from tests.connectors.artemis.epochs import bodies, expected, frames, handle_of
from tests.parameters import mostly_crash
from tests.servers.artemis import PASSWORD, USER

if TYPE_CHECKING:
    from tests.servers.artemis import ArtemisServer

pytestmark = pytest.mark.crash

STEPS = ["SUBSCRIBE", "ACK", "SEND", "COMMIT", "UNSUBSCRIBE"]
"""Commands of a publication whose answer is awaited."""


@pytest.fixture
def address(artemis: ArtemisServer) -> StompAddress:
    return StompAddress("127.0.0.1", artemis.port, USER, PASSWORD)


OFTEN = {*zip(STEPS, [True, False, True, False, True], strict=True), ("COMMIT", True)}
"""Each step, heard or not in turns, and the one that publishes in both ways."""


@pytest.mark.parametrize(("step", "heard"), mostly_crash([*product(STEPS, [False, True])], quick=(), crash=OFTEN))
def test_a_broker_killed_at_a_step(
    artemis: ArtemisServer, address: StompAddress, monkeypatch: pytest.MonkeyPatch, step: str, *, heard: bool
) -> None:
    queue, query = artemis.queue(), f"killed-{step}-{heard}"
    publish(address, handle_of(query, 1), frames(queue, 1))
    confirm, killed = StompConnection.confirm, []

    def kill(self: StompConnection, given: list[Frame]) -> None:
        if killed or given[-1].command != step:
            confirm(self, given)
            return
        killed.append(step)
        if heard:
            # Done and confirmed, but the driver does not hear it.
            confirm(self, given)
        else:
            self.send(given)
        artemis.kill()
        raise ConnectionResetError(step)

    monkeypatch.setattr(StompConnection, "confirm", kill)
    with pytest.raises(SinkError, match=step):
        publish(address, handle_of(query, 2), frames(queue, 2))
    artemis.start()
    publish(address, handle_of(query, 2), frames(queue, 2))
    assert bodies(artemis, queue) == expected(1, 2)
    assert is_published(address, handle_of(query, 2))


@contextmanager
def killed_after(server: ArtemisServer, delay: float) -> Iterator[None]:
    """Kills the broker after a while, and starts it again at the end."""
    timer = threading.Timer(delay, server.kill)
    timer.start()
    try:
        yield
    finally:
        timer.join()
        # Not by the timer: what a thread has started ends with it.
        server.start()


@pytest.mark.parametrize("seed", [pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 30)])
def test_a_broker_killed_at_any_moment(artemis: ArtemisServer, address: StompAddress, seed: int) -> None:
    random = Random(seed)
    queue, query, rows = artemis.queue(), f"random-{seed}", 2000
    epochs = range(1, 6)
    for epoch in epochs:
        handle = handle_of(query, epoch, rows=rows, most=300)
        with killed_after(artemis, random.uniform(0, 0.3)), suppress(SinkError):
            publish(address, handle, frames(queue, epoch, rows=rows))
        for _ in range(2):
            publish(address, handle, frames(queue, epoch, rows=rows))
    assert bodies(artemis, queue) == expected(*epochs, rows=rows)
