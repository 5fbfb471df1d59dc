"""Markers: messages by which the broker itself knows what was published."""

from __future__ import annotations

import time
from dataclasses import dataclass
from uuid import uuid4

from sparkjet.connectors.artemis.sink_settings import ANYCAST
from sparkjet.connectors.artemis.stomp import StompConnection
from sparkjet.connectors.artemis.stomp_frames import Frame

PREFIX = "sparkjet.commits."
"""Prefix of the names of marker queues."""
_ME = "markers"
_GROUP = "sparkjet"
"""All messages of a queue are in one group, which the broker gives to one consumer as long as it is there: a lock."""
_FOUND_WITHIN = 30.0
"""Seconds within which our own last message must have come; another driver may hold the lock, and be stalled."""
_LAST = "sparkjet_last"


@dataclass(frozen=True)
class Marker:
    """A published transaction: a part of an epoch.

    Attributes:
        epoch: The epoch.
        gid: Id of the attempt at it.
        part: Its number, from 0.
    """

    epoch: int
    gid: str
    part: int


class Markers:
    """The queue of markers of one sink of one query, for one driver at a time: from :meth:`read` to :meth:`release`.

    A connection that ends also releases it; the broker ends that of a driver that misses its heartbeat.

    Args:
        connection: The connection to use.
        query: Identity of the query.
        sink: Name of the sink.
    """

    def __init__(self, connection: StompConnection, query: str, sink: str) -> None:
        self._connection = connection
        self._queue = queue_of(query, sink)
        self._headers = {"destination": self._queue, "destination-type": ANYCAST, "JMSXGroupID": _GROUP}

    def frame(self, marker: Marker, transaction: str) -> Frame:
        """The message to send in the same transaction as the others, last: refused if it has been committed before."""
        headers = {
            "persistent": "true",
            "transaction": transaction,
            "_AMQ_DUPL_ID": f"{marker.gid}/{marker.part}",
            "epoch": str(marker.epoch),
            "gid": marker.gid,
            "part": str(marker.part),
        }
        return Frame("SEND", {**self._headers, **headers})

    def read(self, *, keep: bool = True) -> list[Marker]:
        """The markers of the newest epoch; older ones are removed, and without ``keep`` these as well."""
        where = {"id": f"{_ME}/1", "destination": self._queue, "subscription-type": ANYCAST}
        how = {"ack": "client-individual", "consumer-window-size": "-1"}
        self._connection.confirm([Frame("SUBSCRIBE", {**where, **how})])
        *found, own = self._up_to_own()
        markers = [(_marker(frame), frame.headers["ack"]) for frame in found if _LAST not in frame.headers]
        newest = max((marker.epoch for marker, _ in markers), default=0)
        done = [ack for marker, ack in markers if marker.epoch < newest or not keep]
        # Younger ones are awaited by drivers waiting for the lock; those that put the others there have given up.
        before = int(own.headers["timestamp"]) - 2000 * _FOUND_WITHIN
        awaited = [frame for frame in found if _LAST in frame.headers and int(frame.headers["timestamp"]) > before]
        done += [frame.headers["ack"] for frame in (*found, own) if _LAST in frame.headers and frame not in awaited]
        self._connection.confirm([Frame("ACK", {"id": ack}) for ack in done])
        return [marker for marker, _ in markers if marker.epoch == newest]

    def release(self) -> None:
        """Let others read; in order, as the broker removes what it took back ten times from lost connections."""
        self._connection.confirm([Frame("UNSUBSCRIBE", {"id": f"{_ME}/1"})])

    def _up_to_own(self) -> list[Frame]:
        """Messages in the queue, up to our own: a queue has no end mark, and a consumer cannot tell that it waits."""
        own = uuid4().hex
        self._connection.send([Frame("SEND", {**self._headers, _LAST: own})])
        until = time.monotonic() + _FOUND_WITHIN
        found: list[Frame] = []
        while time.monotonic() < until:
            for frame in self._connection.messages(_ME, until - time.monotonic()):
                found.append(frame)
                if frame.headers.get(_LAST) == own:
                    return found
        raise TimeoutError(f"another driver of this query holds the queue {self._queue}")


def queue_of(query: str, sink: str) -> str:
    """The name of the queue, which is also that of its address."""
    return f"{PREFIX}{query}.{sink}"


def _marker(frame: Frame) -> Marker:
    return Marker(int(frame.headers["epoch"]), frame.headers["gid"], int(frame.headers["part"]))
