"""Epochs to publish, and what a broker must have of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from sparkjet.connectors.artemis.publishing import TRANSACTION
from sparkjet.connectors.artemis.stomp_frames import Frame
from sparkjet.sinks.naming import prefix_of
from sparkjet.sinks.protocol import Handle, TransactionId

if TYPE_CHECKING:
    from tests.servers.artemis import ArtemisServer


def handle_of(query: str, epoch: int, rows: int = 10, most: int = 4, attempt: int = 0) -> Handle:
    return {
        "query": query,
        "sink": "s",
        "epoch": epoch,
        "gid": f"{prefix_of(query, 's', TransactionId(query, 's', 1, epoch, attempt))}rows",
        "rows": rows,
        "most": most,
    }


def frames(
    queue: str, epoch: int, rows: int = 10, at: dict[int, Callable[[], object]] | None = None
) -> Iterator[Frame]:
    """The messages of an epoch; something may happen before some of them are sent."""
    headers = {"destination": queue, "destination-type": "ANYCAST", "persistent": "true", "transaction": TRANSACTION}
    for number in range(rows):
        if at and number in at:
            at[number]()
        yield Frame("SEND", headers, f"{epoch}-{number}".encode())


def expected(*epochs: int, rows: int = 10) -> list[str]:
    return [f"{epoch}-{number}" for epoch in epochs for number in range(rows)]


def bodies(server: ArtemisServer, queue: str) -> list[str]:
    with server.client() as client:
        return [frame.body.decode() for frame in client.read(queue, server.count(queue))]
