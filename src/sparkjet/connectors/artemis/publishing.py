"""Publishing the rows of a decided epoch, in broker transactions that are committed once."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice

from sparkjet.connectors.artemis.markers import Marker, Markers, queue_of
from sparkjet.connectors.artemis.stomp import RefusedError, StompAddress, StompConnection
from sparkjet.connectors.artemis.stomp_frames import Frame
from sparkjet.errors import SinkError
from sparkjet.sinks.copies import check_run
from sparkjet.sinks.naming import ListedTransaction
from sparkjet.sinks.protocol import Handle

TRANSACTION = "part"
"""Name of all transactions of a connection, one after another; each of their frames contains it."""
_TOGETHER = 500
"""Number of frames written at once."""


@contextmanager
def connected(address: StompAddress) -> Iterator[StompConnection]:
    """A connection whose errors are raised as :class:`SinkError`."""
    try:
        connection = StompConnection(address)
        try:
            yield connection
        finally:
            connection.close()
    except OSError as error:
        raise SinkError(f"artemis: {address}: {error}") from error
    except RefusedError as error:
        message = (
            f"artemis: {address} refuses user {address.user!r}: {error}. Its log may say more: whether the user may "
            "send, whether an address is full."
        )
        raise SinkError(message) from error


def publish(
    address: StompAddress,
    handle: Handle,
    frames: Iterable[Frame],
    between: Callable[[], None] = lambda: None,
) -> None:
    """Publish the messages of a handle, except for the parts that the broker has."""
    with connected(address) as connection:
        markers = Markers(connection, handle["query"], handle["sink"])
        newest = markers.read()
        _check_copies(handle, newest)
        if any(marker.epoch > handle["epoch"] for marker in newest):
            # Decided later and published later: this driver was paused, and its successor has done its work.
            return
        there = {marker.part for marker in newest if marker.gid == handle["gid"]}
        every = iter(frames)
        for part in range(parts_of(handle)):
            messages = islice(every, handle["most"])
            if part in there:
                deque(messages, maxlen=0)  # they are passed over
                continue
            _commit(connection, messages, markers.frame(Marker(handle["epoch"], handle["gid"], part), TRANSACTION))
            between()
        markers.release()


def newest_markers(address: StompAddress, query: str, sink: str) -> list[Marker]:
    """The broker's markers of the newest epoch that a query has published."""
    with connected(address) as connection:
        markers = Markers(connection, query, sink)
        newest = markers.read()
        markers.release()
        return newest


def is_published(address: StompAddress, handle: Handle) -> bool:
    """Whether the broker has all parts of a handle, or a later epoch."""
    newest = newest_markers(address, handle["query"], handle["sink"])
    _check_copies(handle, newest)
    there = {marker.part for marker in newest if marker.gid == handle["gid"]}
    return any(marker.epoch > handle["epoch"] for marker in newest) or len(there) == parts_of(handle)


def parts_of(handle: Handle) -> int:
    """The number of transactions needed for the messages of a handle."""
    return -(-int(handle["rows"]) // int(handle["most"]))


def _check_copies(handle: Handle, newest: Iterable[Marker]) -> None:
    for marker in newest:
        run = ListedTransaction(marker.gid).run
        check_run(handle, marker.epoch, run, f"the queue {queue_of(handle['query'], handle['sink'])} in Artemis")


def _commit(connection: StompConnection, frames: Iterator[Frame], marker: Frame) -> None:
    named = {"transaction": TRANSACTION}
    connection.send([Frame("BEGIN", named)])
    while block := list(islice(frames, _TOGETHER)):
        connection.send(block)
    # Last: the broker compares it on arrival, not on commit, with those committed by then.
    # Confirmed: otherwise it could read the COMMIT after a message that it refuses.
    connection.confirm([marker])
    connection.confirm([Frame("COMMIT", named)])
