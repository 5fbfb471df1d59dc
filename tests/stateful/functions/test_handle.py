from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import types as T

from sparkjet.stateful.functions.handle import EVENT_TIME, NONE, PROCESSING_TIME, EpochTimes, Handle, HandleError
from tests.stateful.functions.worker_run import schema

OF_X = schema(x=T.LongType())


@pytest.mark.parametrize(
    ("mode", "call", "reason"),
    [
        (NONE, lambda handle: handle.registerTimer(1), 'with timeMode "None" there are no timers'),
        (NONE, lambda handle: handle.listTimers(), 'with timeMode "None" there are no timers'),
        (EVENT_TIME, lambda handle: handle.registerTimer(1), r"in init\(\) there is no key yet"),
        (
            EVENT_TIME,
            lambda handle: handle.getValueState("v", OF_X, 5),
            'needs timeMode "ProcessingTime", not "EventTime"',
        ),
        (PROCESSING_TIME, lambda handle: handle.getListState("v", OF_X, 0), "ttlDurationMs=0 must be above zero"),
        (NONE, lambda handle: [handle.getListState("v", OF_X) for _ in "ab"], "'v' is declared twice"),
    ],
)
def test_what_cannot_be_done_in_init(mode: str, call: Callable[[Any], Any], reason: str) -> None:
    with pytest.raises(HandleError, match=reason):
        call(Handle(mode, {}))


def test_variables_are_declared_in_init() -> None:
    handle = Handle(NONE, {})
    handle.start(EpochTimes(0, 0, 0))
    with pytest.raises(HandleError, match="'v': declare it in init"):
        handle.getMapState("v", OF_X, OF_X)
    with pytest.raises(HandleError, match="call it in init"):
        handle.deleteIfExists("v")


def test_a_variable_that_is_deleted_in_init_is_not_kept() -> None:
    handle = Handle(NONE, {"x long": OF_X})
    handle.getValueState("old", "x long")
    handle.deleteIfExists("old")
    handle.deleteIfExists("never there")
    assert handle.variables == {}


def test_nothing_has_changed_if_nothing_was_written() -> None:
    handle = Handle(PROCESSING_TIME, {})
    value, items = handle.getValueState("value", OF_X), handle.getListState("items", OF_X, 10)
    handle.start(EpochTimes(100, 0, 0))
    stored = (((1,), None), [((2,), 120), ((3,), 130)], [150])
    handle.open(stored)
    assert (value.get(), list(items.get()), list(handle.listTimers())) == ((1,), [(2,), (3,)], [150])
    assert not handle.changed
    assert handle.stored() == stored
    assert handle.due() == 130
    handle.open((((1,), None), [((2,), 90), ((3,), 130)], [150]))
    # Something has expired.
    assert handle.changed
    assert list(items.get()) == [(3,)]


def test_what_is_handed_out_is_a_copy() -> None:
    handle = Handle(NONE, {})
    value = handle.getValueState("value", schema(many=T.ArrayType(T.LongType())))
    handle.start(EpochTimes(0, 0, 0))
    handle.open(None)
    mine = [1]
    value.update((mine,))
    mine.append(2)
    found = value.get()
    assert found is not None
    found[0].append(3)
    assert value.get() == ([1],)
