from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
from py4j.protocol import Py4JError
from pyspark.errors import PythonException, StreamingQueryException

from sparkjet.engine.ending import Ending
from sparkjet.errors import FencedError, RecoveryError, UnsettledError


def chain(error: BaseException | None) -> Iterator[BaseException]:
    """The exceptions of a traceback, the last first."""
    while error is not None:
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def caused(error: Exception, cause: Exception) -> Exception:
    """An error with a cause, as it is raised."""
    try:
        raise error from cause
    except type(error):
        return error


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_of_two_failures_ours_comes_first_and_none_is_lost(order: tuple[int, int]) -> None:
    errors = [caused(UnsettledError("no room"), OSError("the disk is full")), StreamingQueryException("broker")]
    ending = Ending(lambda: None)
    for number in order:
        ending.fail(errors[number])
    assert ending.failure is errors[0]
    assert [type(each) for each in chain(ending.failure)] == [UnsettledError, OSError, StreamingQueryException]
    with pytest.raises(UnsettledError, match="no room"):
        ending.raise_failure()


def test_errors_of_sparks_are_shown_as_spark_does_and_others_as_they_are() -> None:
    for error in (PythonException("division by zero"), Py4JError("the disk is full")):
        ending = Ending(lambda: None)
        ending.fail(error)
        with pytest.raises(StreamingQueryException, match=r"STREAM_FAILED.*(division by zero|disk is full)") as caught:
            ending.raise_failure()
        assert (caught.value.__cause__, ending.exception) == (error, caught.value)
        assert caught.value.getCondition() == "STREAM_FAILED"
        assert ending.failure is error
    for error in (RecoveryError("ours"), KeyError("the user's"), StreamingQueryException("Spark's")):
        ending = Ending(lambda: None)
        ending.fail(error)
        assert ending.exception is error


def test_of_two_failures_of_ours_the_first_comes_first() -> None:
    ending = Ending(lambda: None)
    ending.fail(first := RecoveryError("first"))
    ending.fail(second := OSError("second"))
    assert list(chain(ending.failure)) == [first, second]


def test_an_error_that_is_in_the_chain_already_is_not_added_again() -> None:
    cause = OSError("the disk is full")
    ending = Ending(lambda: None)
    ending.fail(error := caused(UnsettledError("no room"), cause))
    ending.fail(cause)
    ending.fail(error)
    ending.fail(caused(StreamingQueryException("batch"), cause))
    assert list(chain(ending.failure)) == [error, cause]


def test_a_driver_that_was_taken_over_reports_that_first() -> None:
    fenced = FencedError("by another")
    ending = Ending(lambda: fenced)
    ending.fail(missing := FileNotFoundError("offsets/3"))
    assert list(chain(ending.failure)) == [fenced, missing]


def test_a_store_that_cannot_be_asked_for_a_takeover_hides_no_failure() -> None:
    def broken() -> FencedError | None:
        raise OSError("the store is gone")

    ending = Ending(broken)
    ending.fail(error := RecoveryError("first"))
    assert ending.failure is error


def test_of_several_requests_only_the_first_stops_the_query() -> None:
    ending, calls = Ending(lambda: None), threading.Semaphore(0)
    for _ in range(3):
        ending.ask(calls.release, "stop")
    assert calls.acquire(timeout=60)
    assert (ending.stopping, ending.begun, ending.finished) == (True, True, False)
    assert not ending.wait(0)
    ending.finish()
    assert ending.wait()
    assert not calls.acquire(blocking=False)


def test_a_query_that_has_ended_is_not_stopped() -> None:
    ending = Ending(lambda: None)
    ending.finish()
    ending.ask(lambda: pytest.fail("it has ended"), "stop")
    assert (ending.stopping, ending.begun) == (False, True)
