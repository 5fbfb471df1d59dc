"""The driver's part of the Kafka sink without Spark, against small servers that play its brokers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest
from pyspark.sql.types import StructType

from sparkjet.connectors.kafka import sink
from sparkjet.connectors.kafka.access import Access
from sparkjet.connectors.kafka.pool import TaskResult
from sparkjet.connectors.kafka.producer_settings import KafkaSettings
from sparkjet.connectors.kafka.sink import KafkaSink
from sparkjet.errors import AnalysisError, CopiedHomeError, SinkError
from sparkjet.options import Options
from sparkjet.sinks.copies import origin
from sparkjet.sinks.protocol import TransactionId, Unknown
from tests.sinks.brokers import (
    CONFIGS,
    COORDINATOR,
    DESCRIBE,
    INIT,
    LIST,
    METADATA,
    Broker,
    configs,
    coordinator,
    described,
    error,
    in_turn,
    listing,
    metadata,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PREFIX = "sparkjet/q/results/000001-000000007-0/"


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker({}) as made:
        made.answers = {
            METADATA: lambda: metadata(made.port),
            COORDINATOR: lambda: coordinator(made.port),
            CONFIGS: lambda: configs("delete"),
        }
        yield made


def sink_of(broker: Broker, **options: str) -> KafkaSink:
    # librdkafka connects when it checks settings: not to this broker, whose requests the test counts.
    settings = KafkaSettings.of(Options({"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "out", **options}))
    return KafkaSink(replace(settings, access=Access.of({"bootstrap.servers": f"127.0.0.1:{broker.port}"})))


def test_an_attempt_that_cannot_be_fixed_leaves_nothing_that_readers_wait_for(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"{PREFIX}p00000", f"{PREFIX}p00001"]
    monkeypatch.setattr(KafkaSink, "_written", lambda *_: [TaskResult(name, 5, is_first=True) for name in names])
    monkeypatch.setattr(sink, "_speculates", lambda _: False)
    broker.answers |= {
        LIST: lambda: listing(*names),
        DESCRIBE: in_turn(described("Ongoing"), described("CompleteAbort")),
        INIT: lambda: error(0),
    }
    prepared = TransactionId("q", "results", 1, 7, 0)
    with pytest.raises(SinkError, match="should be open, but is CompleteAbort"):
        sink_of(broker).prepare(cast("DataFrame", None), prepared)
    assert broker.asked.count(INIT) == 2
    sink_of(broker).abort(prepared)
    assert broker.asked.count(INIT) == 2


def test_what_was_committed_after_the_record_is_named_with_the_way_out(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    broker.answers[LIST] = lambda: listing(f"{PREFIX}p00000", f"{PREFIX}p00001", state="CompleteCommit")
    newest = TransactionId("q", "results", 1, 6, 0)
    clause = sink_of(broker).published_after(newest, None)
    assert clause is not None
    assert clause.startswith(f"Kafka has committed epoch 7 or a later one ('{PREFIX}p00000' and 1 more). Restore the ")
    assert 'option("onRestoredBackup", "continue")' in clause
    assert sink_of(broker, onRestoredBackup="continue").published_after(newest, None) is None
    assert "committed epoch 7 or a later one" in caplog.text
    assert sink_of(broker, processingGuarantee="at-least-once").published_after(newest, None) is Unknown.UNKNOWN


def test_copies_of_the_home_are_looked_for_at_times_and_not_after_a_backup(broker: Broker) -> None:
    handle = {"query": "q", "sink": "results", "epoch": 7, "run": "aaaaaaaa", "since": 6, "transactions": []}
    own, earlier, other = (
        f"sparkjet/q/results/{name}/p00000"
        for name in ("000001-000000007-0-aaaaaaaa", "000000-000000006-0-bbbbbbbb", "000002-000000007-0-cccccccc")
    )
    broker.answers[LIST] = lambda: listing(own, earlier, state="CompleteCommit")
    once = sink_of(broker)
    for _ in range(2):
        once.commit(handle, lambda: None)
    assert broker.asked.count(LIST) == 1
    broker.answers[LIST] = lambda: listing(own, earlier, other, state="CompleteCommit")
    with pytest.raises(CopiedHomeError, match=r"cccccccc.* has epoch 7 .*another copy of this home.*onRestoredBackup"):
        sink_of(broker).commit(handle, lambda: None)
    sink_of(broker, onRestoredBackup="continue").commit(handle, lambda: None)


def test_what_was_decided_after_a_backup_is_committed_without_the_option_too(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = TransactionId("q", "results", 1, 20, 0, "aaaaaaaa", since=6)
    before = "sparkjet/q/results/000000-000000017-0-bbbbbbbb/p00000"
    broker.answers[LIST] = lambda: listing(before, state="CompleteCommit")
    continued = sink_of(broker, onRestoredBackup="continue")
    decided = {"query": "q", "sink": "results", "epoch": 20, "transactions": [], **origin(of)}
    pool = SimpleNamespace(begin=lambda _: "", fix=lambda _, speculates: dict(decided))
    monkeypatch.setattr(continued, "_pool", pool)
    monkeypatch.setattr(continued, "_written", lambda *_: [])
    monkeypatch.setattr(sink, "_speculates", lambda _: False)
    handle = continued.prepare(cast("DataFrame", None), of)
    assert handle is not None
    assert handle["prepared"] == pytest.approx(1000 * time.time(), abs=600_000)
    sink_of(broker).commit(handle, lambda: None)
    with pytest.raises(CopiedHomeError):
        sink_of(broker).commit(decided, lambda: None)


def test_the_age_of_a_transaction_at_its_decision_is_measured_by_the_clock(broker: Broker) -> None:
    slot = {"id": f"{PREFIX}0-1", "rows": 5, "producer": 1, "epoch": 0, "timeout": 60_000}
    handle = {"epoch": 7, "transactions": [slot], "prepared": int(1000 * time.time())}
    sink_of(broker).check_alive(handle)
    handle["prepared"] = int(1000 * time.time()) - 59_000
    with pytest.raises(SinkError, match="is not published"):
        sink_of(broker).check_alive(handle)


@pytest.mark.parametrize("hours", [1, -1])
def test_a_clock_that_is_set_during_an_epoch_makes_no_transaction_older_or_younger(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, hours: int
) -> None:
    kafka, now = sink_of(broker), time.time()
    slot = {"id": f"{PREFIX}0-1", "rows": 5, "producer": 1, "epoch": 0, "timeout": 60_000}
    handle = {"epoch": 7, "transactions": [slot], "prepared": int(1000 * now)}
    monkeypatch.setattr(time, "time", lambda: now + 3600 * hours)
    kafka.check_alive(handle)
    with pytest.raises(SinkError, match="is not published"):
        kafka.check_alive({**handle, "prepared": handle["prepared"] - 59_000})


def test_a_compacted_topic_takes_no_rows_without_a_column_of_keys(broker: Broker) -> None:
    keyed = schema().add("key", "string")
    sink = sink_of(broker, processingGuarantee="at-least-once")
    for policy in ("compact", "compact,delete"):
        broker.answers[CONFIGS] = lambda policy=policy: configs(policy)
        with pytest.raises(
            AnalysisError, match=f'"out" has cleanup.policy={policy} .*Add one.*cleanup.policy to delete'
        ):
            sink.check(schema())
        sink.check(keyed)
    # A user who may write, but not read the settings.
    broker.answers[CONFIGS] = lambda: configs("", 29)
    sink.check(schema())


def schema() -> StructType:
    return StructType().add("value", "string")


UNKNOWN, NO_LEADER, FORBIDDEN = 3, 5, 29


def test_a_topic_that_was_just_created_is_asked_for_again(broker: Broker) -> None:
    said = [metadata(broker.port, topic=("out", code)) for code in (UNKNOWN, NO_LEADER, 0)]
    broker.answers[METADATA] = in_turn(*said)
    sink_of(broker, processingGuarantee="at-least-once").check(schema())
    assert broker.asked == [METADATA] * 3 + [CONFIGS]


@pytest.mark.parametrize(
    ("code", "message", "again"),
    [
        (UNKNOWN, '"out" does not exist.*UNKNOWN_TOPIC_OR_PART', True),
        (NO_LEADER, "has no leader.*LEADER_NOT_AVAILABLE", True),
        (FORBIDDEN, "not visible to this user.*TOPIC_AUTHORIZATION_FAILED", False),
    ],
)
def test_a_topic_that_stays_away_is_refused(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, code: int, message: str, again: bool
) -> None:
    monkeypatch.setattr(sink, "_SETTLING", 1.0)
    broker.answers[METADATA] = lambda: metadata(broker.port, topic=("out", code))
    with pytest.raises(AnalysisError, match=message):
        sink_of(broker, processingGuarantee="at-least-once").check(schema())
    assert (len(broker.asked) > 1) is again
