"""A decided transaction whose commit fails: it stays decided, and nothing is opened before it is committed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from sparkjet.engine.outputs import Outputs, Retry
from sparkjet.engine.record import Prepared
from sparkjet.errors import LostTransactionError, UnsettledError
from sparkjet.sinks.protocol import TransactionId
from tests.engine.run import Collected

if TYPE_CHECKING:
    from sparkjet.sinks.protocol import Handle

ONCE = Retry(attempts=2, patient_attempts=4, first_wait=0.001, longest_wait=0.001)


@dataclass
class Refusing(Collected):
    """Refuses a number of commits."""

    refusals: int = 0
    asked: list[str] = field(default_factory=list)
    error: Callable[[str], Exception] = ConnectionError

    def commit(self, handle: Handle, between: Callable[[], None]) -> None:
        """Refuse or show the rows."""
        self.asked.append(handle["transaction"])
        if len(self.asked) <= self.refusals:
            message = "away"
            raise self.error(message)
        super().commit(handle, between)


@dataclass
class Rows:
    """As much of a DataFrame as the sink reads."""

    values: list[tuple[int]]

    def collect(self) -> list[tuple[int]]:
        return self.values


def prepare(outputs: Outputs, epoch: int) -> None:
    transaction = TransactionId("q", "results", 0, epoch, 0)
    outputs.decided(outputs.prepare("results", Rows([(epoch,)]), transaction))  # type: ignore[arg-type]


def test_what_fails_stays_decided_and_is_committed_before_a_new_transaction_is_opened() -> None:
    sink = Refusing(refusals=3)
    outputs = Outputs({"results": sink}, ONCE)
    prepare(outputs, 1)
    outputs.attempt()
    assert (len(sink.asked), sink.committed) == (2, {})
    assert [each.handle for each in outputs.unsettled] == [{"transaction": "000000-000000001-0"}]
    prepare(outputs, 2)
    assert sink.committed == {1: [(1,)]}
    outputs.attempt()
    assert sink.committed == {1: [(1,)], 2: [(2,)]}
    assert outputs.unsettled == []


def test_what_goes_on_failing_lets_no_transaction_be_opened() -> None:
    sink = Refusing(refusals=100)
    outputs = Outputs({"results": sink}, ONCE)
    prepare(outputs, 1)
    outputs.attempt()
    with pytest.raises(UnsettledError, match="Nothing is lost"):
        prepare(outputs, 2)
    assert list(sink.prepared) == ["000000-000000001-0"]
    assert len(outputs.unsettled) == 1


def test_what_is_lost_is_not_tried_again() -> None:
    sink = Refusing(refusals=100, error=LostTransactionError)
    outputs = Outputs({"results": sink}, ONCE)
    prepare(outputs, 1)
    with pytest.raises(LostTransactionError):
        outputs.attempt()
    assert len(sink.asked) == 1


def test_what_one_sink_has_lost_holds_back_no_other() -> None:
    losing, other = Refusing(refusals=100, error=LostTransactionError), Refusing()
    outputs = Outputs({"losing": losing, "other": other}, ONCE)
    for epoch in (1, 2):
        for name in outputs.sinks:
            transaction = TransactionId("q", name, 0, epoch, 0)
            handle = outputs.sinks[name].prepare(Rows([(epoch,)]), transaction)  # type: ignore[arg-type]
            assert handle is not None
            outputs.decided([Prepared(name, handle)])
    with pytest.raises(LostTransactionError):
        outputs.attempt()
    assert other.committed == {1: [(1,)], 2: [(2,)]}
    assert [each.sink for each in outputs.unsettled] == ["losing", "losing"]
    assert len(losing.asked) == 1
