"""The pool of transactional ids: its requests, when it starts a new generation, and what it leaves alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from sparkjet.connectors.kafka.access import Access
from sparkjet.connectors.kafka.pool import TaskResult, TransactionPool
from sparkjet.connectors.kafka.transactions import KafkaTransactions
from sparkjet.errors import SinkError
from sparkjet.sinks.protocol import Handle, TransactionId
from tests.sinks.brokers import (
    COORDINATOR,
    DESCRIBE,
    END,
    INIT,
    LIST,
    METADATA,
    PRODUCER,
    PRODUCERS,
    Broker,
    coordinator,
    described,
    error,
    in_turn,
    listing,
    metadata,
    producers,
)

FENCED, NO_READ = 90, 29


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker({}) as made:
        made.answers = {
            METADATA: lambda: metadata(made.port, topic=("t", 0)),
            COORDINATOR: lambda: coordinator(made.port),
            DESCRIBE: lambda: described("Ongoing", written="t"),
            END: lambda: error(0),
            INIT: lambda: error(0),
            LIST: listing,
            PRODUCERS: producers,
        }
        yield made


def pool_of(broker: Broker, *, continues: bool = False) -> TransactionPool:
    access = Access.of({"bootstrap.servers": f"127.0.0.1:{broker.port}"})
    return TransactionPool(KafkaTransactions(access, continues=continues, patience=0.2))


def of(epoch: int, attempt: int = 0, takeover: int = 1) -> TransactionId:
    return TransactionId("q", "results", takeover, epoch, attempt)


def prefix(epoch: int, number: int) -> str:
    return f"sparkjet/q/results/000001-{epoch:09d}-{number}/"


def prepared() -> Handle:
    """The entry that the sink adds when its tasks have ended."""
    return {"prepared": int(1000 * time.time())}


def prepare(pool: TransactionPool, transaction: TransactionId, *, is_first: bool = True) -> tuple[str, Handle]:
    begun = pool.begin(transaction)
    handle = pool.fix([TaskResult(None, 0, is_first=True), TaskResult(f"{begun}p00001", 5, is_first=is_first)])
    assert handle is not None
    handle |= prepared()
    return begun, handle


def run(pool: TransactionPool, epoch: int) -> str:
    begun, handle = prepare(pool, of(epoch))
    pool.commit(handle, lambda: None)
    return begun


def test_two_halves_take_turns_and_nothing_is_scanned(broker: Broker) -> None:
    pool = pool_of(broker)
    assert [run(pool, epoch) for epoch in (3, 4, 5, 9)] == [prefix(3, number) for number in (0, 1, 0, 1)]
    assert LIST not in broker.asked


def test_an_epoch_without_rows_asks_nothing_and_uses_nothing_up(broker: Broker) -> None:
    pool = pool_of(broker)
    for epoch in (1, 3):
        pool.begin(of(epoch))
        assert pool.fix([TaskResult(None, 0, is_first=True)] * 2) is None
        assert broker.asked == [] or epoch == 3
        # The first transaction with rows names the generation: nothing committed under it is older.
        assert run(pool, epoch + 1) == prefix(2, epoch // 3)


def irregular(pool: TransactionPool, _: Broker) -> None:
    pool.commit(prepare(pool, of(2), is_first=False)[1], lambda: None)


def irregular_without_rows(pool: TransactionPool, _: Broker) -> None:
    pool.begin(of(2))
    assert pool.fix([TaskResult(None, 0, is_first=False)]) is None


def failed(pool: TransactionPool, _: Broker) -> None:
    pool.begin(of(2))


def not_open(pool: TransactionPool, broker: Broker) -> None:
    broker.answers[DESCRIBE] = in_turn(described("CompleteAbort"), described("Ongoing", written="t"))
    with pytest.raises(SinkError, match="should be open"):
        prepare(pool, of(2))


def aborted(pool: TransactionPool, _: Broker) -> None:
    prepare(pool, of(2))
    pool.abort(of(2))


def not_committed(pool: TransactionPool, _: Broker) -> None:
    prepare(pool, of(2))


def given_up(pool: TransactionPool, broker: Broker) -> None:
    _, handle = prepare(pool, of(2))
    broker.answers |= {END: in_turn(error(FENCED), error(0)), DESCRIBE: lambda: described("CompleteAbort")}
    pool.commit(handle, lambda: None)
    broker.answers[DESCRIBE] = lambda: described("Ongoing", written="t")


def not_told(pool: TransactionPool, broker: Broker) -> None:
    broker.answers[PRODUCERS] = lambda: producers(PRODUCER)
    pool.commit(prepare(pool, of(2))[1], lambda: None)


def may_not_be_asked(pool: TransactionPool, broker: Broker) -> None:
    broker.answers[PRODUCERS] = lambda: producers(code=NO_READ)
    pool.commit(prepare(pool, of(2))[1], lambda: None)


@pytest.mark.parametrize(
    "what",
    [
        irregular,
        irregular_without_rows,
        failed,
        not_open,
        aborted,
        not_committed,
        pytest.param(given_up, marks=pytest.mark.logs_errors),
        not_told,
        may_not_be_asked,
    ],
)
def test_after_an_irregular_epoch_the_ids_are_new(
    broker: Broker, what: Callable[[TransactionPool, Broker], None]
) -> None:
    pool = pool_of(broker, continues=True)
    assert run(pool, 1) == prefix(1, 0)
    what(pool, broker)
    broker.answers[PRODUCERS] = producers
    assert [run(pool, epoch) for epoch in (3, 4, 5)] == [prefix(3, 0), prefix(3, 1), prefix(3, 0)]


def test_an_epoch_that_is_run_again_has_new_ids_each_time(broker: Broker) -> None:
    pool = pool_of(broker)
    assert [pool.begin(of(7, attempt)) for attempt in range(3)] == [prefix(7, 0), prefix(7, 2), prefix(7, 4)]
    assert pool.begin(of(7, takeover=2)) == "sparkjet/q/results/000002-000000007-0/"


def swept(broker: Broker, *names: str) -> Callable[[], int]:
    """Has the brokers list these as open; returns how many are aborted."""
    broker.answers[LIST] = lambda: listing(*names)
    return lambda: broker.asked.count(INIT)


def test_other_attempts_are_rolled_back_when_the_manifest_is_fixed(broker: Broker) -> None:
    pool = pool_of(broker)
    run(pool, 1)
    begun = pool.begin(of(2))
    others = "sparkjet/q/results/000001-000000001-0/p00000", "sparkjet/q/late/000001-000000001-1/p00000"
    count = swept(broker, f"{begun}p00000", f"{begun}p00000-17", *others)
    pool.fix([TaskResult(f"{begun}p00000-17", 5, is_first=False)])
    assert count() == 1


@pytest.mark.parametrize("others", [True, False])
def test_orphans_are_aborted_when_partitions_have_open_transactions(broker: Broker, others: bool) -> None:
    count = swept(
        broker, "sparkjet/q/results/000000-000000001-0/p00003", "sparkjet/q/results/000002-000000001-0/p00003"
    )
    if others:
        broker.answers[PRODUCERS] = lambda: producers(7)
    run(pool_of(broker), 1)
    assert count() == int(others)


def test_after_an_irregularity_each_commit_looks_until_there_is_nothing_left(broker: Broker) -> None:
    pool = pool_of(broker)
    _, handle = prepare(pool, of(1), is_first=False)
    broker.answers[LIST] = in_turn(listing("sparkjet/q/results/000001-000000001-0/p00000"), listing())
    pool.commit(handle, lambda: None)
    for epoch in range(2, 6):
        run(pool, epoch)
    # At the fix, at the commit, and once more.
    assert (broker.asked.count(LIST), broker.asked.count(INIT)) == (3, 1)


def test_where_tasks_may_run_twice_each_epoch_looks(broker: Broker) -> None:
    pool = pool_of(broker)
    for epoch in (1, 2):
        begun = pool.begin(of(epoch))
        handle = pool.fix([TaskResult(f"{begun}p00000", 5, is_first=True)], speculates=True)
        assert handle is not None
        handle |= prepared()
        pool.commit(handle, lambda: None)
        assert begun == prefix(1, epoch - 1)
    assert broker.asked.count(LIST) == 4


def test_an_abort_rolls_back_what_that_transaction_has_open_and_nothing_else(broker: Broker) -> None:
    pool = pool_of(broker)
    begun, _ = prepare(pool, of(1))
    count = swept(broker, f"{begun}p00000", f"{begun}p00000-17", prefix(0, 0) + "p00000", prefix(1, 1) + "p00000")
    pool.abort(of(1, attempt=1))
    pool.abort(of(2))
    assert (count(), LIST in broker.asked) == (0, False)
    pool.abort(of(1))
    assert count() == 2


def test_what_an_earlier_driver_left_is_committed_without_more(broker: Broker) -> None:
    slot: dict[str, Any] = {"id": f"{prefix(1, 0)}00000-17", "rows": 5, "producer": PRODUCER, "epoch": 0}
    slots = [{**slot, "timeout": 60_000, "written": [["t", 0]]}]
    identity = {"query": "q", "sink": "results", "epoch": 1, "takeover": 0, "cluster": "cluster"}
    handle = {**identity, "transactions": slots, **prepared()}
    pool = pool_of(broker)
    pool.commit(handle, lambda: None)
    assert LIST not in broker.asked
    assert run(pool, 2) == prefix(2, 0)
