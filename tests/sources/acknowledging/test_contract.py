"""The contract of acknowledging sources: passed by a simple source, and failed by ones that are wrong on purpose."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from sparkjet.sources.acknowledging.contract import AcknowledgingSource
from sparkjet.testing import acknowledging_contract
from sparkjet.testing.acknowledging_contract import AcknowledgingContract, QueuesUnderTest
from tests.contracts import broken
from tests.parameters import mostly_crash
from tests.sources.acknowledging.directory_queue import DirectoryQueues
from tests.sources.acknowledging.queues import Broker, BrokerSource


class TestInMemory(AcknowledgingContract):
    @pytest.fixture
    def target(self) -> QueuesUnderTest:
        return in_memory(BrokerSource)


class TestDirectories(AcknowledgingContract):
    @pytest.fixture
    def target(self, tmp_path: Path) -> QueuesUnderTest:
        directories = [tmp_path / "orders", tmp_path / "returns"]
        for each in directories:
            each.mkdir()

        def send(queue: str, ids: Sequence[str]) -> None:
            for each in ids:
                (tmp_path / queue / each).write_text(f"body of {each}")

        return QueuesUnderTest(lambda: DirectoryQueues(*directories), send)


def in_memory(source: Callable[[Broker], AcknowledgingSource]) -> QueuesUnderTest:
    broker = Broker("orders", "returns")
    return QueuesUnderTest(lambda: source(broker), lambda queue, ids: broker.send(queue, *ids), broker.cut)


class AcknowledgesEverything(BrokerSource):
    def acknowledge(self, count: int) -> None:
        super().acknowledge(len(self._broker.unacknowledged))


class AcknowledgesTooEarly(BrokerSource):
    def receive(self, most: int, seconds: float) -> Any:
        found = super().receive(most, seconds)
        self._broker.unacknowledged.clear()
        return found

    def acknowledge(self, count: int) -> None:
        pass


class AcknowledgesNothing(BrokerSource):
    def acknowledge(self, count: int) -> None:
        self._broker._check(self._connection)


class TakesMore(BrokerSource):
    def receive(self, most: int, seconds: float) -> Any:
        return super().receive(most + 1, seconds)


class ReconnectsInSilence(BrokerSource):
    def receive(self, most: int, seconds: float) -> Any:
        self.open()
        return super().receive(most, seconds)


class CountsNothing(BrokerSource):
    def ready(self) -> dict[str, int]:
        return dict.fromkeys(self.queues, 0)


WRONG = {
    AcknowledgesEverything: "test_the_oldest_are_acknowledged_whatever_their_queue",
    AcknowledgesTooEarly: "test_what_is_not_acknowledged_comes_again",
    AcknowledgesNothing: "test_what_is_not_acknowledged_comes_again",
    TakesMore: "test_no_more_come_than_are_asked_for",
    ReconnectsInSilence: "test_a_lost_connection_says_so_and_its_messages_come_again",
    CountsNothing: "test_what_nobody_was_given_is_ready",
}


@pytest.mark.parametrize("wrong", mostly_crash(WRONG, quick=WRONG.keys() - {ReconnectsInSilence}))
def test_a_wrong_source_is_found(wrong: type[BrokerSource], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acknowledging_contract, "WITHIN", 0.3)
    assert broken(Suite, lambda: {"target": in_memory(wrong)}, only=WRONG[wrong]) == {WRONG[wrong]}


class Suite(AcknowledgingContract):
    """Without a fixture, so that pytest does not run it."""

    __test__ = False
