"""Queries from and into Kafka through Spark: drivers and the broker killed at the phases of an epoch."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sparkjet import EpochPhase
from tests.crash.delivered import check_topic
from tests.crash.drivers import Query
from tests.crash.farm import FAULTS, NEAR, SERVER, ZOMBIE, Crash, Farm, Suite
from tests.crash.feeds import skewed_batches, write_skewed
from tests.crash.invariants import check, check_files, same_epochs
from tests.crash.jobs import AHEAD
from tests.crash.readers import listed, result_rows
from tests.crash.topics import Topic

if TYPE_CHECKING:
    from tests.servers.kafka import KafkaServer

pytestmark = [pytest.mark.crash, pytest.mark.timeout(3600)]

SEED = 2011
FILES = 4
INTO = ("topic", "rows-topic")
"""The jobs from files into files and Kafka; ``source`` is from Kafka into files."""
SOURCE = "source"
SOME = [
    Crash(EpochPhase.SAVE, "both", f"{SOURCE}{AHEAD}"),
    Crash(EpochPhase.COMMITTING, "jvm", "rows-topic"),
    Crash(EpochPhase.DECIDE, ZOMBIE, "topic"),
    Crash(EpochPhase.COMMITTING, SERVER, "topic"),
]
"""Faults of the driver, one that another has taken over, and of the broker of a sink.

Without Spark, each fault is tried at the points of both ways in `protocol/kafka`; the broker of a source is killed in
`connectors/kafka/test_consumers.py`.
"""
MORE = [
    *(Crash(NEAR[(n + turn) % 5], fault, "topic") for turn in (0, 2) for n, fault in enumerate(FAULTS)),
    Crash(EpochPhase.DECIDE, "jvm", SOURCE),
]
"""Every fault twice, every phase around the decision twice."""
ALL = [
    *(Crash(step, fault, job) for job, step, fault in product(INTO, EpochPhase, FAULTS)),
    *(Crash(step, fault, f"{SOURCE}{AHEAD * (n % 2)}") for n, (step, fault) in enumerate(product(EpochPhase, FAULTS))),
]
PREPARED = [
    Crash(EpochPhase.PREPARE, "both", "topic"),
    Crash(EpochPhase.DECIDE, "both", "topic"),
    Crash(EpochPhase.COMMITTING, "jvm", "topic"),
    Crash(EpochPhase.COMMITTING, SERVER, "topic"),
    Crash(EpochPhase.DECIDE, "both", "rows-topic"),
    Crash(EpochPhase.COMMITTING, "both", "rows-topic"),
    Crash(EpochPhase.DECIDE, ZOMBIE, "topic"),
]
"""Around the decision, with ``commit=prepared``."""
SERVERS = ("kafka",)


class Topics(Suite):
    """Each query into Kafka has its own topic; those from Kafka share one."""

    def __init__(self, root: Path, server: KafkaServer, crashes: list[Crash], **options: str) -> None:
        super().__init__(root, crashes, [SOURCE])
        self._server, self._options = server, options
        self._topic = Topic(server)

    def prepare(self) -> None:
        for query in (self.whole(SOURCE), *self.queries()):
            self._tell(query)
        write_skewed(self.root / "feed", SEED, 0, FILES)
        for batch in skewed_batches(SEED, FILES):
            self._topic.send(batch)
        self._topic.flush()

    def restart(self) -> None:
        self._server.restart()

    def judge(self, name: str, query: Query) -> None:
        """Neither the files nor the topic are wrong, and nothing is left open."""
        place, rules = query.place, query.rules.rules
        if query.job in INTO:
            check(place, query.rules, batches=FILES, closings=[FILES], swept=False)
            check_topic(self._server, place, result_rows(listed(place.out), rules))
        else:
            batches = self._topic.batches(place)
            assert len(batches) >= Crash.epoch
            rules = replace(rules, listed=self._topic.substreams)
            check_files(place, rules, batches, self._topic.sent, [len(batches)])
            same_epochs(place, self.whole(SOURCE).place, query.rules)

    def _tell(self, query: Query) -> None:
        """Tell a query's process how to reach the broker."""
        place = query.place
        place.history.mkdir(parents=True)
        if query.job in INTO:
            given = {f"kafka.{name}": value for name, value in self._server.client().items()}
            sink = {**given, "topic": self._server.topic(partitions=2), "kafka.log_level": "0", **self._options}
            (place.root / "kafka.json").write_text(json.dumps(sink))
        else:
            # The partition that is ahead is held back: a driver that goes on must decide as the killed one has.
            options = self._topic.options(maxOffsetsPerTrigger="40", maxWatermarkDrift="20 seconds")
            (place.root / "source.json").write_text(json.dumps(options))


def suite(root: Path, server: KafkaServer) -> Topics:
    return Topics(root, server, SOME)


@pytest.mark.parametrize("name", [*(each.name for each in SOME), SOURCE])
def test_a_crash_loses_and_repeats_nothing(verdicts: dict[str, str], name: str) -> None:
    """Neither does the uninterrupted run."""
    assert verdicts[name] == ""


@pytest.mark.long
@pytest.mark.parametrize("crashes", [MORE, ALL], ids=["more", "all"])
def test_more_crashes_lose_and_repeat_nothing(kafka: KafkaServer, tmp_path: Path, crashes: list[Crash]) -> None:
    topics = Topics(tmp_path / "topics", kafka, crashes)
    Farm(tmp_path, [topics]).crash()
    assert topics.verdicts == dict.fromkeys(topics.verdicts, "")


@pytest.mark.long
def test_a_crash_loses_and_repeats_nothing_where_rows_wait_in_transactions(kafka: KafkaServer, tmp_path: Path) -> None:
    topics = Topics(tmp_path / "topics", kafka, PREPARED, commit="prepared")
    Farm(tmp_path, [topics]).crash()
    assert topics.verdicts == dict.fromkeys(topics.verdicts, "")
