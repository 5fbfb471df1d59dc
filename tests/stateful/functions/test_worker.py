from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import Row
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout
from pyspark.sql.streaming.stateful_processor import ExpiredTimerInfo, StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import IntegerType, LongType, StringType, TimestampType

from sparkjet.stateful.functions.worker import FunctionError
from tests.stateful.functions.worker_run import WorkerRun, group_run, processor_run, schema

EVENTS = schema(k=StringType(), at=LongType())
GAP = 10
Epochs = list[tuple[list[tuple[str, int]], int]]

epochs_of_events = st.lists(
    st.tuples(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 60)), max_size=8), st.integers(0, 20)),
    max_size=6,
)


def session(key: tuple[Any, ...], frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    if state.hasTimedOut:
        events, last = state.get
        state.remove()
        yield pd.DataFrame({"k": [key[0]], "events": [events], "last": [last]})
        return
    events, last = state.getOption or (0, 0)
    for frame in frames:
        events, last = events + len(frame), max(last, frame["at"].max())
    state.update((events, last))
    # The function sees the watermark from before its rows.
    state.setTimeoutTimestamp(int(max(last + GAP, state.getCurrentWatermarkMs())) + 1)


def sessions_by_hand(epochs: Epochs) -> list[tuple[str, int, int]]:
    """Event by event: a session of a key ends when the watermark is more than the gap behind its last event."""
    found, open_ones, watermark = [], {}, 0
    for events, step in epochs:
        touched = {key: watermark for key, at in events if at >= watermark}
        for key, at in events:
            if at >= watermark:
                count, last, _ = open_ones.get(key, (0, 0, 0))
                open_ones[key] = (count + 1, max(last, at), 0)
        for key, before in touched.items():
            count, last, _ = open_ones[key]
            open_ones[key] = (count, last, max(last + GAP, before) + 1)
        watermark += step
        for key in sorted(key for key, (_, _, until) in open_ones.items() if until < watermark):
            count, last, _ = open_ones.pop(key)
            found.append((key, count, last))
    return found


def run_sessions(run: WorkerRun, epochs: Epochs) -> list[tuple[str, int, int]]:
    found, watermark = [], 0
    for events, step in epochs:
        rows = [(key, at) for key, at in events if at >= watermark]
        before, watermark = watermark, watermark + step
        emitted = run.epoch(rows, before=before, watermark=watermark, by="watermark")
        found += sorted((row["k"], row["events"], row["last"]) for row in emitted)
    return found


@settings(deadline=None, max_examples=60)
@given(epochs_of_events)
def test_timeouts_are_those_of_events_one_by_one(epochs: Epochs) -> None:
    output = schema(k=StringType(), events=LongType(), last=LongType())
    run = group_run(session, EVENTS, output, schema(events=LongType(), last=LongType()), "EventTimeTimeout")
    assert run_sessions(run, epochs) == sessions_by_hand(epochs)
    run_sessions(run, [([], 1_000)])
    assert not run.held


class Commands(StatefulProcessor):
    """Does what its rows say, and returns all its state after each of them and at each timer."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self.handle = handle
        of_x, of_name = schema(x=LongType()), schema(name=StringType())
        self.value = handle.getValueState("value", of_x, 7)
        self.items = handle.getListState("items", of_x, 5)
        self.entries = handle.getMapState("entries", of_name, of_x, 3)
        self.kept = handle.getListState("kept", of_x)

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
        for row in rows:
            getattr(self, row.command)(row.x)
            yield self.seen(key, row.command)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: ExpiredTimerInfo) -> Iterator[Row]:
        yield self.seen(key, f"timer {expiredTimerInfo.getExpiryTimeInMs()}")

    def seen(self, key: Any, what: str) -> Row:
        # In Spark a timer that fires is listed until its method is over.
        timers = [each for each in self.handle.listTimers() if what != f"timer {each}"]
        value = self.value.get() if self.value.exists() else None
        entries = dict(self.entries.iterator())
        return Row(k=key[0], seen=repr((what, value, [*self.items.get()], entries, [*self.kept.get()], timers)))

    def update(self, x: int) -> None:
        self.value.update((x,))

    def append(self, x: int) -> None:
        self.items.appendValue((x,))

    def keep(self, x: int) -> None:
        self.kept.appendList([(x,), (x + 1,)])

    def put(self, x: int) -> None:
        self.entries.updateValue((str(x % 2),), (x,))

    def drop(self, x: int) -> None:
        self.entries.removeKey((str(x % 2),))

    def clear(self, x: int) -> None:
        (self.value, self.items, self.entries, self.kept)[x % 4].clear()

    def timer(self, x: int) -> None:
        self.handle.registerTimer(x)

    def untimer(self, x: int) -> None:
        self.handle.deleteTimer(x)


class ByHand:
    """The same for one key, with plain Python: everything has its time, and is dropped when it is looked at."""

    def __init__(self) -> None:
        self.value: list[tuple[int, int]] = []
        self.items: list[tuple[int, int]] = []
        self.entries: dict[str, tuple[int, int]] = {}
        self.kept: list[int] = []
        self.timers: set[int] = set()

    def seen(self, what: str, now: int) -> str:
        value = [(x,) for x, until in self.value if until > now]
        items = [(x,) for x, until in self.items if until > now]
        # Expired entries lose their place, as they are dropped when the key is read.
        self.entries = {name: each for name, each in self.entries.items() if each[1] > now}
        entries = {(name,): (x,) for name, (x, _) in self.entries.items()}
        kept = [(x,) for x in self.kept]
        return repr((what, value[-1] if value else None, items, entries, kept, sorted(self.timers)))

    def run(self, command: str, x: int, now: int) -> None:
        if command == "update":
            self.value = [(x, now + 7)]
        elif command == "append":
            self.items.append((x, now + 5))
        elif command == "keep":
            self.kept += [x, x + 1]
        elif command == "put":
            self.entries[str(x % 2)] = (x, now + 3)
        elif command == "drop":
            self.entries.pop(str(x % 2), None)
        elif command == "clear":
            (self.value, self.items, self.entries, self.kept)[x % 4].clear()
        elif command == "timer":
            self.timers.add(x)
        else:
            self.timers.discard(x)


COMMANDS = ("update", "append", "keep", "put", "drop", "clear", "timer", "untimer")
command_epochs = st.lists(
    st.tuples(
        st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from(COMMANDS), st.integers(1, 25)), max_size=6),
        st.integers(0, 4),
    ),
    max_size=7,
)


@settings(deadline=None, max_examples=60)
@given(command_epochs)
def test_variables_timers_and_ttl_are_those_of_plain_python(
    epochs: list[tuple[list[tuple[str, str, int]], int]],
) -> None:
    rows = schema(k=StringType(), command=StringType(), x=LongType())
    run = processor_run(Commands, rows, schema(k=StringType(), seen=StringType()), "processingtime", pandas=False)
    by_hand = {key: ByHand() for key in "ab"}
    now = 1
    for commands, step in epochs:
        now += step
        expected = []
        for key, each in by_hand.items():
            each.entries = {name: entry for name, entry in each.entries.items() if entry[1] > now}
            for of_key, command, x in commands:
                if of_key == key:
                    each.run(command, x, now)
                    expected.append((key, each.seen(command, now)))
            for timer in sorted(timer for timer in each.timers if timer <= now):
                each.timers.discard(timer)
                expected.append((key, each.seen(f"timer {timer}", now)))
        emitted = run.epoch(commands, now=now, by="clock")
        assert sorted((row["k"], row["seen"]) for row in emitted) == sorted(expected)
    keys = {key for key, each in by_hand.items() if each.kept or [x for x in each.timers if x > now + 100]}
    run.epoch(now=now + 100, by="clock")
    run.epoch(now=now + 101, by="clock")
    assert set(run.held) == keys


def frames_seen(key: tuple[Any, ...], frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    for frame in frames:
        shown = [str(kind) for kind in frame.dtypes], list(frame.index), frame.to_dict("list")
        yield pd.DataFrame({"seen": [repr((key, *shown))]})


def test_a_frame_has_the_types_of_its_own_rows() -> None:
    run = group_run(frames_seen, EVENTS, schema(seen=StringType()), schema(x=LongType()), GroupStateTimeout.NoTimeout)
    run.chunk = 100
    emitted = run.epoch([("a", 1), ("a", 2), ("b", 3), ("b", None)])
    assert [row["seen"] for row in emitted] == [
        repr((("a",), ["object", "int64"], [0, 1], {"k": ["a", "a"], "at": [1, 2]})),
        repr((("b",), ["object", "float64"], [0, 1], {"k": ["b", "b"], "at": [3.0, float("nan")]})),
    ]


@pytest.mark.parametrize("chunk", [1, 2, 3, 4])
def test_a_short_group_comes_at_once_and_a_long_one_in_parts(chunk: int) -> None:
    run = group_run(frames_seen, EVENTS, schema(seen=StringType()), schema(x=LongType()), GroupStateTimeout.NoTimeout)
    run.chunk, run.longest = chunk, 4
    rows = [("a", 1), ("a", 2), ("a", 3), ("c", 9), *(("b", i) for i in range(10)), ("d", 9)]
    frames: dict[str, list[Any]] = {}
    for row in run.epoch(rows):
        (key,), _, index, columns = eval(row["seen"], {"nan": None})  # noqa: S307 - our own text
        assert index == list(range(len(index)))
        frames.setdefault(key, []).append(columns["at"])
    assert frames["a"] == [[1, 2, 3]]
    assert frames["c"] == frames["d"] == [[9]]
    assert sum(frames["b"], []) == list(range(10))  # noqa: RUF017 - short
    assert len(frames["b"]) > 1


def test_rows_that_are_not_read_are_skipped() -> None:
    def none_of_it(key: Any, frames: Any, state: GroupState) -> Iterator[pd.DataFrame]:
        state.update((1,))
        return iter([pd.DataFrame({"k": [key[0]]})])

    state = schema(x=LongType())
    run = group_run(none_of_it, EVENTS, schema(k=StringType()), state, GroupStateTimeout.NoTimeout)
    emitted = run.epoch([(key, i) for key in "abc" for i in range(9)])
    assert [row["k"] for row in emitted] == list("abc")
    assert len(run.held) == 3


def test_keys_are_of_the_types_that_spark_passes() -> None:
    def kinds(key: Any, frames: Any, state: GroupState) -> Iterator[pd.DataFrame]:
        yield pd.DataFrame({"seen": [f"{type(key).__name__} {type(key[0]).__name__} {key[0]}"]})

    instant = dt.datetime(2026, 1, 1, 12, tzinfo=dt.timezone.utc)
    expected = {
        StringType(): ("a", "tuple str a"),
        IntegerType(): (7, "tuple int32 7"),
        TimestampType(): (instant, "tuple Timestamp 2026-01-01 12:00:00"),
    }
    for kind, (key, seen) in expected.items():
        rows = schema(k=kind, at=LongType())
        run = group_run(kinds, rows, schema(seen=StringType()), schema(x=LongType()), GroupStateTimeout.NoTimeout)
        assert run.epoch([(key, 1)]) == [{"seen": seen}]


def test_keys_of_a_processor_are_of_the_types_that_spark_passes() -> None:
    class Kinds(StatefulProcessor):
        def init(self, handle: StatefulProcessorHandle) -> None:
            pass

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[pd.DataFrame]:
            yield pd.DataFrame({"seen": [f"{type(key).__name__} {type(key[0]).__name__} {key[0]}"]})

    instant = dt.datetime(2026, 1, 1, 12, tzinfo=dt.timezone.utc)
    expected = {
        StringType(): ("a", "tuple str a"),
        IntegerType(): (7, "tuple int 7"),
        TimestampType(): (instant, "tuple Timestamp 2026-01-01 12:00:00"),
    }
    for kind, (key, seen) in expected.items():
        rows = schema(k=kind, at=LongType())
        run = processor_run(Kinds, rows, schema(seen=StringType()), "none", pandas=True)
        assert run.epoch([(key, 1)]) == [{"seen": seen}]


@pytest.mark.parametrize(
    ("returned", "expected"),
    [
        (lambda: pd.DataFrame({"k": ["x"]}), "it returned DataFrame, not an iterator of pandas.DataFrame"),
        (lambda: 7, "it returned int, not an iterator"),
        (lambda: [7], "it returned int, not pandas.DataFrame, in its iterator"),
        (lambda: [pd.DataFrame({"other": [1]})], r"has no column 'n'; it has \['other'\]"),
        (lambda: [pd.DataFrame([[1, 2]])], "has 2 columns, not 1"),
        (lambda: [pd.DataFrame({"n": ["x"]})], "column 'n' of what it returned is not int64"),
        (lambda: 1 / 0, "ZeroDivisionError: division by zero"),
    ],
)
def test_an_error_names_the_function_and_the_key(returned: Any, expected: str) -> None:
    def broken(key: Any, frames: Any, state: GroupState) -> Any:
        return returned() if key[0] == "b" else []

    run = group_run(broken, EVENTS, schema(n=LongType()), schema(x=LongType()), GroupStateTimeout.NoTimeout)
    with pytest.raises(
        FunctionError, match=rf"applyInPandasWithState\(broken\) failed for the key \('b',\): .*{expected}"
    ):
        run.epoch([("a", 1), ("b", 1), ("c", 1)])


def test_a_state_that_does_not_fit_names_the_key() -> None:
    def misfit(key: Any, frames: Any, state: GroupState) -> Any:
        state.update((1.5 if key[0] == "b" else 1,))
        return []

    run = group_run(misfit, EVENTS, schema(n=LongType()), schema(x=LongType()), GroupStateTimeout.NoTimeout)
    with pytest.raises(
        FunctionError, match=r"for the key \('b',\): UnfitStateError: \(1.5,\) does not fit struct<x:bigint>"
    ):
        run.epoch([("a", 1), ("b", 1), ("c", 1)])


def test_an_error_of_a_processor_names_its_method() -> None:
    class Failing(StatefulProcessor):
        def init(self, handle: StatefulProcessorHandle) -> None:
            self.handle = handle

        def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
            self.handle.registerTimer(5)
            return iter(())

        def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
            raise LookupError("gone")

    run = processor_run(Failing, EVENTS, schema(n=LongType()), "eventtime", pandas=False)
    assert run.epoch([("a", 1)], by="watermark") == []
    with pytest.raises(
        FunctionError, match=r"Failing.handleExpiredTimer failed for the key \('a',\): LookupError: gone"
    ):
        run.epoch(watermark=5, by="watermark")


def test_a_timer_that_is_set_for_the_past_by_another_one_fires_in_the_next_epoch() -> None:
    class Again(StatefulProcessor):
        def init(self, handle: StatefulProcessorHandle) -> None:
            self.handle = handle

        def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:
            self.handle.registerTimer(2)
            return iter(())

        def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Row]:
            if expiredTimerInfo.getExpiryTimeInMs() == 2:
                self.handle.registerTimer(1)
            yield Row(n=expiredTimerInfo.getExpiryTimeInMs())

    run = processor_run(Again, EVENTS, schema(n=LongType()), "eventtime", pandas=False)
    assert run.epoch([("a", 1)], watermark=5, by="watermark") == [{"n": 2}]
    assert run.epoch(watermark=6, by="watermark") == [{"n": 1}]
    assert not run.held
