"""Parts of a soak: queries with feeds that grow, and how each is judged at the end."""

from __future__ import annotations

import json
import uuid
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from sparkjet.snapshots.record import Record
from tests.crash.delivered import check_table, check_topic
from tests.crash.drivers import Query
from tests.crash.farmed.test_postgres import delivered
from tests.crash.feeds import skewed_feed, write_skewed
from tests.crash.history import end_of, keep
from tests.crash.invariants import check_accepted
from tests.crash.readers import newest_record
from tests.crash.replay import RESULTS
from tests.crash.topics import Topic
from tests.servers.kafka import KafkaServer
from tests.servers.postgres import PostgresServer

BATCH = 2000
"""Rows of a topic that a batch reads at most."""
AHEAD = 3
"""Batches that a topic may be ahead: what comes faster than it is read would be read forever at the end."""


class Part(Protocol):
    """A query whose feed grows."""

    query: Query

    def grow(self, newest: Record | None) -> None:
        """Add to the feed, unless far ahead of the newest record; does not wait."""

    def fed(self) -> None:
        """Wait until all that was added can be read."""

    def judge(self) -> str:
        """The faults found once the query has ended; none if all is well."""


class FromFiles:
    """Files into files and a table; one file a batch, added when the others have been read."""

    def __init__(self, root: Path, server: PostgresServer, seed: int) -> None:
        self._server = server
        self._seed = seed
        self._files = 0
        self.query = _query(root, "from-files", "prepared")
        (self.query.place.root / "dsn").write_text(server.database(f"t{uuid.uuid4().hex}"))
        self.grow(None)

    def __str__(self) -> str:
        return f"{self._files} files"

    def grow(self, newest: Record | None) -> None:
        """See :meth:`Part.grow`."""
        if (newest.epoch if newest is not None else 0) >= self._files - 1:
            write_skewed(self.query.place.feed, self._seed, self._files, self._files + 1)
            self._files += 1

    def fed(self) -> None:
        """See :meth:`Part.fed`."""

    def judge(self) -> str:
        """See :meth:`Part.judge`."""
        try:
            delivered(self._server, self.query, self._files)
        except AssertionError as error:
            return str(error) or repr(error)
        return ""


class Through:
    """A topic into another one and a table; the producer goes on, whoever is dead."""

    def __init__(self, root: Path, broker: KafkaServer, server: PostgresServer, seed: int) -> None:
        self._broker = broker
        self._server = server
        self._batches = skewed_feed(seed)
        self._topic = Topic(broker)
        self._results = self._late = 0
        self.query = _query(root, "through", "through")
        place = self.query.place
        place.history.mkdir()
        client = {f"kafka.{name}": value for name, value in broker.client().items()}
        sink = {**client, "topic": broker.topic(partitions=2), "kafka.log_level": "0"}
        (place.root / "source.json").write_text(json.dumps(self._topic.options(maxOffsetsPerTrigger=str(BATCH))))
        (place.root / "kafka.json").write_text(json.dumps(sink))
        (place.root / "dsn").write_text(server.database(f"t{uuid.uuid4().hex}"))

    def __str__(self) -> str:
        return f"{self._topic.sent.total()} rows, {self._late} of them dropped, {self._results} results"

    def grow(self, newest: Record | None) -> None:
        """See :meth:`Part.grow`."""
        keep(self.query.place)
        position = newest.spark if newest is not None else None
        read = sum(end_of(position).values()) if position is not None else 0
        if self._topic.sent.total() < read + AHEAD * BATCH:
            self._topic.send(next(self._batches))

    def fed(self) -> None:
        """See :meth:`Part.fed`."""
        self._topic.flush()

    def judge(self) -> str:
        """See :meth:`Part.judge`."""
        place = self.query.place
        rules = replace(self.query.rules.rules, listed=self._topic.substreams)
        try:
            batches = self._topic.batches(place)
            given = Counter(event["id"] for batch in batches for event in batch)
            assert given == self._topic.sent, "the topic is not what was sent"
            accepted = check_accepted(place, rules, batches, given, [len(batches)])
            results = rules.results(accepted)[RESULTS]
            self._late, self._results = given.total() - len(accepted), results.total()
            check_topic(self._broker, place, results)
            check_table(self._server, place, results)
        except AssertionError as error:
            return str(error) or repr(error)
        return ""


def newest(query: Query) -> Record | None:
    """The newest record, None before the first."""
    try:
        return newest_record(query.place)
    except (AssertionError, FileNotFoundError):
        return None


def _query(root: Path, name: str, job: str) -> Query:
    query = Query(name, job, str(root / name), str(root / f"{name}-feed"), until_end=False)
    query.place.root.mkdir()
    return query
