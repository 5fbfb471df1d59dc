"""Networks that fail as a seed says, and an engine that reads a queue through one: epochs, records, restarts."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.datasource import ReadMaxRows

from sparkjet.engine.receivers import Receivers
from sparkjet.errors import SourceError

if TYPE_CHECKING:
    from pathlib import Path

    from sparkjet.sources.acknowledging.reader import AcknowledgingStreamReader
    from tests.servers.tcp_proxy import TcpProxy

from sparkjet.snapshots import DirectoryStore

_OFTEN = ("nothing", "nothing", "delay", "cut", "cut later", "silence")
_ONCE = ("no server", "no client")
"""Half open: one side must notice by its heartbeat, which takes seconds."""
_LONGEST = 0.5
"""Seconds of a silence, and fifty times a delay."""
_MOST_BYTES = 3_000
"""After this many bytes at most, a connection is cut in the middle of what the server says."""


class Network:
    """A proxy's treatment of the connections through it, derived from a seed.

    Args:
        proxy: The proxy.
        random: The source of all chances.

    Attributes:
        history: What it has done, for whoever must repeat it.
    """

    def __init__(self, proxy: TcpProxy, random: Random) -> None:
        self._proxy, self._random = proxy, random
        self._kinds = [*_OFTEN, *_ONCE]
        self.history: list[str] = []

    def strike(self) -> None:
        """Let something fail, or nothing."""
        proxy, random = self._proxy, self._random
        kind = random.choice(self._kinds)
        self.history.append(kind)
        if kind in _ONCE:
            self._kinds.remove(kind)
        proxy.delay = 0.0
        if kind == "delay":
            proxy.delay = random.uniform(0, _LONGEST / 50)
        elif kind == "cut":
            proxy.cut()
        elif kind == "cut later":
            proxy.left = random.randrange(_MOST_BYTES)
        elif kind == "silence":
            proxy.hold()
            threading.Timer(random.uniform(0, _LONGEST), proxy.release).start()
        elif kind == "no server":
            proxy.lose_servers()
        elif kind == "no client":
            proxy.lose_clients()

    def heal(self) -> None:
        """Let nothing else fail; connections that are half open are ended."""
        self.history.append("healed")
        self._proxy.delay, self._proxy.left = 0.0, None
        self._proxy.release()
        self._proxy.cut()


class Reading:
    """A query over the queues, without Spark: its epochs, what it has decided, and its restarts.

    Args:
        make: Makes the reader of a run.
        home: Where the records keep what they say of the queues.

    Attributes:
        decided: The queues and bodies of all decided messages.
    """

    def __init__(self, make: Callable[[], AcknowledgingStreamReader], home: Path) -> None:
        self._make = make
        self._store = DirectoryStore(home)
        self._store.open("checkpointLocation")
        self._offset: dict[str, Any] | None = None
        self._saved: dict[str, str] = {}
        self._epoch = 0
        self.decided: list[tuple[str, bytes]] = []

    def run(self, epochs: int, most: int, before: Callable[[], bool]) -> None:
        """Run some epochs; a source that gives up ends it as well.

        Args:
            epochs: How many.
            most: Messages of an epoch at most.
            before: Called before every step; whether the driver dies there.
        """
        reader = self._make()
        receivers = Receivers(self._store, identified=True)
        try:
            at = self._offset or reader.initialOffset()
            for number in range(epochs + 1):
                # The first one has no rows, and introduces the receiver.
                end = reader.latestOffset(at, ReadMaxRows(most))
                if number and before():
                    return
                positions = receivers.meet({"0": json.dumps(end)}, self._saved)
                rows = [
                    (row["queue"], row["body"])
                    for task in reader.partitions(at, end)
                    for batch in reader.read(task)
                    for row in batch.select(["queue", "body"]).to_pylist()
                ]
                self._epoch += 1
                saved = receivers.save(positions, f"{self._epoch:06d}")
                if before():
                    return
                self._offset, self._saved = end, saved
                self.decided += rows
                if before():
                    return
                receivers.acknowledge(positions)
                at = end
        except SourceError:
            return
        finally:
            receivers.stop()
            reader.stop()
