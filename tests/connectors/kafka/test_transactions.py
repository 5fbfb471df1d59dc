"""A broker's response to a commit: committed, lost, in another cluster, or to be retried."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from sparkjet.connectors.kafka.access import Access
from sparkjet.connectors.kafka.transactions import KafkaTransactions, check_alive
from sparkjet.errors import LostTransactionError, SinkError
from sparkjet.sinks.naming import ListedTransaction
from sparkjet.sinks.protocol import TransactionId
from tests.sinks.brokers import (
    COORDINATOR,
    DESCRIBE,
    END,
    INIT,
    LIST,
    METADATA,
    PRODUCER,
    TIMEOUT,
    Broker,
    coordinator,
    described,
    error,
    in_turn,
    listing,
    metadata,
)

PREFIX = "sparkjet/q/results/000001-000000007-0/"


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker({}) as made:
        made.answers = {
            METADATA: lambda: metadata(made.port),
            COORDINATOR: lambda: coordinator(made.port),
            END: lambda: error(0),
            INIT: lambda: error(0),
            LIST: listing,
        }
        yield made


def handle(*tasks: str, cluster: str = "cluster", prepared: float | None = None) -> dict[str, Any]:
    since = int(1000 * (time.time() if prepared is None else prepared))
    slots = [
        {
            "id": PREFIX + task,
            "rows": 5,
            "producer": PRODUCER,
            "epoch": 0,
            "timeout": TIMEOUT,
            "written": [],
        }
        for task in tasks or ("00000-1",)
    ]
    identity = {"query": "q", "sink": "results", "epoch": 7, "takeover": 1, "way": "kafka", "prepared": since}
    return {**identity, "cluster": cluster, "transactions": slots}


def transactions(broker: Broker, *, continues: bool = False) -> KafkaTransactions:
    access = Access.of({"bootstrap.servers": f"127.0.0.1:{broker.port}"})
    return KafkaTransactions(access, continues=continues, patience=0.5)


INVALID_EPOCH, INVALID_STATE, INVALID_MAPPING, FENCED, NOT_FOUND = 47, 48, 49, 90, 105


@pytest.mark.parametrize("code", [INVALID_EPOCH, INVALID_STATE, INVALID_MAPPING, FENCED])
@pytest.mark.parametrize(("state", "epoch"), [("CompleteCommit", 0), ("PrepareCommit", 0), ("CompleteCommit", 1)])
def test_committed_before_is_committed_by_any_process(broker: Broker, code: int, state: str, epoch: int) -> None:
    broker.answers |= {END: lambda: error(code), DESCRIBE: lambda: described(state, epoch=epoch)}
    transactions(broker).commit(handle(), lambda: None)


@pytest.mark.logs_errors
@pytest.mark.parametrize(
    ("code", "answer", "why"),
    [
        (FENCED, described("CompleteAbort", epoch=1), r"aborted \(CompleteAbort\), after its timeout of 60000 ms"),
        (INVALID_STATE, described("PrepareAbort"), r"aborted \(PrepareAbort\)"),
        (FENCED, described("Ongoing", epoch=2), "another producer uses its id"),
        (FENCED, described("Empty", epoch=2), r"aborted \(Empty\)"),
        (INVALID_MAPPING, described("CompleteCommit", producer=43), r"aborted \(CompleteCommit\)"),
        (INVALID_MAPPING, described("", code=NOT_FOUND), "do not know it.*may or may not be committed"),
    ],
)
def test_lost_rows_are_reported_with_the_reason_and_the_way_out(
    broker: Broker, caplog: pytest.LogCaptureFixture, code: int, answer: bytes, why: str
) -> None:
    broker.answers |= {END: lambda: error(code), DESCRIBE: lambda: answer}
    with pytest.raises(LostTransactionError, match=rf"Epoch 7 was decided, but 5 of its 5 rows.*{why}.*onLostTrans"):
        transactions(broker).commit(handle(), lambda: None)
    transactions(broker, continues=True).commit(handle(), lambda: None)
    assert "5 of its 5 rows" in caplog.text


def test_the_others_of_an_epoch_are_committed_before_the_loss_is_an_error(broker: Broker) -> None:
    broker.answers |= {END: in_turn(error(FENCED), error(0)), DESCRIBE: lambda: described("CompleteAbort")}
    committed: list[None] = []
    with pytest.raises(LostTransactionError, match="5 of its 15 rows"):
        transactions(broker).commit(handle("0-1", "1-2", "2-3"), lambda: committed.append(None))
    assert broker.asked.count(END) == len(committed) == 3


def test_another_cluster_is_not_a_loss(broker: Broker) -> None:
    broker.answers |= {END: lambda: error(INVALID_MAPPING), DESCRIBE: lambda: described("", code=NOT_FOUND)}
    with pytest.raises(SinkError, match="wait in cluster 'other', but the options lead to 'cluster'"):
        transactions(broker).commit(handle(cluster="other"), lambda: None)


@pytest.mark.parametrize("code", [51, 14, 16, 53, 87])
def test_any_other_error_is_retried(broker: Broker, code: int) -> None:
    broker.answers |= {END: lambda: error(code)}
    with pytest.raises(SinkError):
        transactions(broker).commit(handle(), lambda: None)


def test_what_is_open_is_rolled_back_but_not_what_counts_or_is_of_a_successor_or_not_ours(broker: Broker) -> None:
    swept: list[bytes] = []
    names = [
        "sparkjet/q/results/000001-000000007-0/late",
        "sparkjet/q/results/000000-000000006-0/x",
        "sparkjet/q/results/000001-000000007-0/p00000",
        "sparkjet/q/results/000001-000000007-0/p00000-17",
        "sparkjet/q/results/000002-000000007-0/of-a-successor",
        "sparkjet/q/results/not-ours",
        "sparkjet/q/late/000000-000000001-0/of-another-output",
    ]
    broker.answers |= {LIST: lambda: listing(*names), INIT: lambda: swept.append(b"") or error(0)}  # type: ignore[func-returns-value]
    assert transactions(broker).abort_open("sparkjet/q/results/", 1, names[2:3]) == len(swept) == 3
    assert [ListedTransaction.is_ours(name) for name in names] == [True] * 5 + [False, True]
    assert [ListedTransaction(name).is_pooled for name in names[:5]] == [False, False, True, True, False]


@pytest.mark.parametrize("state", ["CompleteAbort", "Empty", "PrepareAbort"])
def test_what_is_no_longer_open_is_not_recorded(broker: Broker, state: str) -> None:
    broker.answers |= {DESCRIBE: lambda: described(state)}
    with pytest.raises(SinkError, match=rf"should be open, but is {state}.*Nothing of the epoch is published"):
        transactions(broker).fix(TransactionId("q", "results", 1, 7, 0), [(f"{PREFIX}0-1", 5)])


def test_an_epoch_without_rows_has_no_handle(broker: Broker) -> None:
    assert transactions(broker).fix(TransactionId("q", "results", 1, 7, 0), []) is None


@pytest.mark.parametrize(("age", "warned"), [(10, False), (40, True), (86_400, False)])
def test_a_commit_in_the_second_half_of_its_time_is_warned_about_and_not_one_that_is_repeated_later(
    broker: Broker, caplog: pytest.LogCaptureFixture, age: float, warned: bool
) -> None:
    transactions(broker).commit(handle(prepared=time.time() - age), lambda: None)
    assert ("Raise kafka.transaction.timeout.ms" in caplog.text) is warned


def test_what_brokers_could_drop_before_its_commit_is_not_decided() -> None:
    patient_and_not = handle("0-1", "1-2", prepared=1000)
    patient_and_not["transactions"][0]["timeout"] += 40_000
    check_alive(patient_and_not, 1000 + 48)
    with pytest.raises(
        SinkError,
        match=r"epoch 7 is not published.*1-2' has been open for 49 s.*timeout\.ms=60000.*raise kafka\.transaction",
    ):
        check_alive(patient_and_not, 1000 + 48.6)
