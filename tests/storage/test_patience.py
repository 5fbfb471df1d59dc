"""A store that does not answer is asked again, one that answers is not, and one that stays away is given up once."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

import pytest

from sparkjet.errors import StorageError
from sparkjet.storage.patience import Patience
from tests.faults.waiting import let_pass


def away(times: int, then: str = "answer") -> Callable[[], str]:
    """A call that fails a number of times."""
    left: Iterator[int] = iter(range(times))

    def call() -> str:
        if next(left, None) is not None:
            raise OSError(5, "connection refused.", "s3a://home")
        return then

    return call


@pytest.mark.crash
def test_an_outage_is_carried_and_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "sparkjet"):
        assert Patience(60, has_answered=True).run(away(3)) == "answer"
    assert [record.getMessage() for record in caplog.records] == ["s3a://home: connection refused. It is tried again."]


@pytest.mark.parametrize("answer", [FileNotFoundError, FileExistsError, PermissionError])
def test_an_answer_is_raised_at_once(answer: type[OSError]) -> None:
    calls: list[int] = []

    def call() -> None:
        calls.append(1)
        raise answer

    with pytest.raises(answer):
        Patience(60, has_answered=True).run(call)
    assert len(calls) == 1


def test_a_store_that_stays_away_is_given_up_and_then_tried_once_each() -> None:
    patience, never = Patience(0.2, has_answered=True), away(1_000_000)
    with pytest.raises(
        StorageError, match=r"s3a://home could not be used .*refused\. Nothing is lost: start the query"
    ):
        patience.run(never)
    with pytest.raises(StorageError):
        patience.run(away(1))
    assert patience.run(away(0)) == "answer"
    # From now on with all patience again.
    assert patience.run(away(1)) == "answer"


def test_what_never_succeeds_is_given_up_while_other_calls_succeed() -> None:
    patience, never = Patience(0.2, has_answered=True), away(1_000_000)

    def call() -> None:
        patience.run(away(0))
        never()

    with pytest.raises(StorageError):
        patience.run(call)


def test_a_call_that_took_all_the_time_is_made_once_more() -> None:
    call = away(1)

    def slow() -> str:
        let_pass(0.3)
        return call()

    assert Patience(0.2, has_answered=True).run(slow) == "answer"


def test_a_store_that_has_never_answered_is_asked_once() -> None:
    patience = Patience(60)
    with pytest.raises(OSError, match="refused"):
        patience.run(away(1))
    with pytest.raises(FileNotFoundError):
        patience.run(missing)
    assert patience.run(away(1)) == "answer"


def missing() -> None:
    raise FileNotFoundError


def test_a_store_that_has_just_answered_need_not_be_asked() -> None:
    patience = Patience(0.2, has_answered=True)
    assert not patience.has_just_answered
    with pytest.raises(StorageError):
        patience.run(away(1_000_000))
    assert not patience.has_just_answered
    patience.run(away(0))
    assert patience.has_just_answered
