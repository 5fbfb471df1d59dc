"""Queries into Artemis through Spark: drivers and the broker killed at the phases of an epoch."""

from __future__ import annotations

import json
from collections import Counter
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.crash.drivers import Query
from tests.crash.farm import NEAR, SERVER, ZOMBIE, Crash, Farm, Suite
from tests.crash.feeds import write_skewed
from tests.crash.invariants import check, difference
from tests.crash.readers import listed, result_rows
from tests.servers.artemis import PASSWORD, USER

if TYPE_CHECKING:
    from tests.servers.artemis import ArtemisServer

pytestmark = [pytest.mark.crash, pytest.mark.long, pytest.mark.timeout(3600)]

SEED = 2009
FILES = 4
CRASHES = [Crash(step, fault, "queue") for step, fault in product(NEAR, ("both", "jvm", ZOMBIE, SERVER))]


class ArtemisQueues(Suite):
    """Each query has its own queue."""

    def __init__(self, root: Path, server: ArtemisServer) -> None:
        super().__init__(root, CRASHES)
        self._server = server

    def prepare(self) -> None:
        for query in self.queries():
            query.place.root.mkdir()
            options = {"host": "127.0.0.1", "port": self._server.port, "user": USER, "password": PASSWORD}
            chosen = {"queue": self._server.queue(), "maxMessagesPerTransaction": 5}
            (query.place.root / "artemis.json").write_text(json.dumps({**options, **chosen}))
        write_skewed(self.root / "feed", SEED, 0, FILES)

    def restart(self) -> None:
        self._server.restart()

    def judge(self, name: str, query: Query) -> None:
        place = query.place
        queue = json.loads((place.root / "artemis.json").read_text())["queue"]
        check(place, query.rules, batches=FILES, closings=[FILES], swept=False)
        with self._server.client() as client:
            messages = client.read(queue, self._server.count(queue))
        found = Counter(tuple(json.loads(message.body).values()) for message in messages)
        rows = result_rows(listed(place.out), query.rules.rules)
        assert found == rows, difference("the queue", found, rows)


def test_a_crash_loses_and_repeats_nothing(artemis: ArtemisServer, tmp_path: Path) -> None:
    queues = ArtemisQueues(tmp_path / "queues", artemis)
    Farm(tmp_path, [queues]).crash()
    assert queues.verdicts == dict.fromkeys(queues.verdicts, "")
