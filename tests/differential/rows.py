"""Random rows, cut into epochs, with crashes and restarts between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

from tests.differential.cases import Case, Epoch, Event, Input
from tests.differential.values import TYPE, Type

SECOND = 1_000_000
UNITS = (SECOND, SECOND, 600 * SECOND, 1000)
"""How far apart two event times are, and what windows' lengths are multiples of."""
BASES = {
    "2026": 1_767_268_800 * SECOND,
    "before 1970": -50 * SECOND,
    "a repeated hour": 1_792_889_400 * SECOND,
    "a skipped hour": 1_774_745_400 * SECOND,
    "1582": -12_219_310_000 * SECOND,
}
SKIPPED = range(BASES["1582"] - 30 * 86_400 * SECOND, BASES["1582"] + 30 * 86_400 * SECOND)
"""Times near days that the calendar of some files does not have: those of windows may be among them."""
YEAR_1, YEAR_9999 = -62_135_596_800 * SECOND, 253_402_300_799_999_999
THEN = ("restart", "stop", "PREPARE", "DECIDE", "COMMIT", "SAVE", "BEGIN")
# Each of them costs as much as two epochs.
QUIET = 0.8
PAUSE = 15
"""Units of processing time that pass at once, or a multiple of it; event times go on as fast."""


SPREAD = 8
"""How many units back the rows of an epoch go."""


WITHIN = "dropDuplicatesWithinWatermark"
UNIQUE = ("dropDuplicates", "distinct")


def arrivals(rng: Random, case: Case, unit: int, beside: Random) -> Case:
    """The case with rows, mostly in the order of their times, and lags for which no row is late, or some are."""
    base = BASES["2026"] if case.clocked else rng.choice(list(BASES.values()))
    nulls = rng.random() < 0.25
    # Many epochs now and then: what is stored is merged only then.
    number = rng.choice([1, 2, 2, 3]) if rng.random() < 0.95 else 10
    number += 1 if case.clocked or (1 < number < 10 and beside.random() < 0.3) else 0
    supply = _Supply(beside)
    cut = [
        [_events(rng, each, supply, base + epoch * PAUSE * unit, unit, epoch == 0, nulls) for each in case.inputs]
        for epoch in range(number)
    ]
    if rng.random() < 0.1:
        _put(rng, cut[0][0], YEAR_1)
    if rng.random() < 0.15:
        # All rows behind it are late.
        _put(rng, rng.choice(cut if case.late else cut[-1:])[-1], YEAR_9999)
    then = ["" if rng.random() < QUIET else rng.choice(THEN) for _ in cut]
    if number > 1 and then[-1] and beside.random() < 0.7:
        # After the last epoch, few rows need what is restored.
        place = beside.randrange(number - 1)
        then[place], then[-1] = then[-1], then[place]
    if any(step.operator.startswith(UNIQUE) for branch in case.branches for step in branch):
        _repeat(beside, cut)
    epochs = tuple(Epoch(tuple(map(tuple, rows)), after) for rows, after in zip(cut, then, strict=True))
    if case.clocked:
        case = replace(case, start=base)
        epochs = _paused(rng, case, epochs, unit)
    if any(step.operator == WITHIN for branch in case.branches for step in branch):
        # Otherwise some keys are forgotten, and in a batch none is.
        times = [event.time for rows in cut for each in rows for event in each if event.time is not None]
        span = max(times, default=0) - min(times, default=0)
        return _with_lags(replace(case, epochs=epochs), [span] * len(case.inputs))
    lags = [_lag(rng, [rows[i] for rows in cut], unit, late=case.late) for i in range(len(case.inputs))]
    return _with_lags(replace(case, epochs=epochs), lags)


def _with_lags(case: Case, lags: Sequence[int]) -> Case:
    inputs = tuple(
        each if each.mark is None else replace(each, mark=replace(each.mark, lag=lag))
        for each, lag in zip(case.inputs, lags, strict=True)
    )
    return replace(case, inputs=inputs)


def _paused(rng: Random, case: Case, epochs: Sequence[Epoch], unit: int) -> tuple[Epoch, ...]:
    """Time passes before some epochs, and after the last one more than any state is kept, where rows know of it."""
    now, found = case.start, []
    for epoch in epochs:
        pause = rng.choice([0, 0, 1, 1, 2, 4]) * PAUSE * unit
        now += pause
        rows = tuple(
            tuple(replace(event, arrived=now) for event in events) if each.timed else events
            for each, events in zip(case.inputs, epoch.rows, strict=True)
        )
        found.append(replace(epoch, rows=rows, pause=pause))
    if any(each.timed for each in case.inputs):
        found.append(Epoch(tuple(() for _ in case.inputs), pause=100 * PAUSE * unit))
    return tuple(found)


class _Supply:
    """Values for the rows of a case: others in each epoch, or a few all along, so that keys meet theirs again."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng
        self._few = rng.random() < 0.6
        self._pools: dict[tuple[int, str], list[str | None]] = {}
        self.numbers = rng.sample(range(-3, 10), 4) if self._few else range(-3, 10)
        self.most = 20 if self._few and rng.random() < 0.4 else 8
        """How many rows of an input come together at most."""
        self.past = 60 if rng.random() < 0.5 else SPREAD
        """How far back the first rows go: as far as the longest windows that close with the next ones, or less."""
        self._hurried = 0.1 if rng.random() < 0.3 else 0

    def pool(self, place: int, ddl: str) -> list[str | None]:
        """The values of a column; in both inputs of a join, its key has the same few."""
        found = self._pools.get((place, ddl)) if self._few else None
        if found is None:
            found = self._pools[place, ddl] = [None, *self._texts(TYPE[ddl])]
        return found

    def _texts(self, kind: Type) -> Sequence[str]:
        if kind.alike and self._rng.random() < 0.5:
            return kind.alike
        return self._rng.sample(kind.texts, min(len(kind.texts), 2 if self._few else 3))

    def hurry(self) -> int:
        """How many microseconds an event comes before a full unit: 1 now and then, the last moment of a window."""
        return int(self._rng.random() < self._hurried)


def _events(rng: Random, each: Input, supply: _Supply, base: int, unit: int, first: bool, nulls: bool) -> list[Event]:
    pools = [supply.pool(place, ddl) for place, (_, ddl) in enumerate(each.columns)]
    found = []
    for _ in range(rng.randint(0, supply.most)):
        apart = rng.randint(-(supply.past if first else SPREAD), 20) * unit
        time = None if nulls and rng.random() < 0.2 else base + apart - supply.hurry()
        number = None if rng.random() < 0.1 else rng.choice(supply.numbers)
        values = tuple(rng.choice(pool) for pool in pools)
        found.append(Event(time, rng.choice("xy"), number, values))
    return found


def _repeat(rng: Random, cut: Sequence[Sequence[list[Event]]]) -> None:
    """Some rows come once more in a later epoch: few are equal by chance. Some epochs end where the last one begins."""
    for number in range(1, len(cut)):
        for side, events in enumerate(cut[number]):
            before = [event for rows in cut[:number] for event in rows[side]]
            times = [event.time for event in cut[number - 1][side] if event.time is not None]
            if times and rng.random() < 0.2:
                events[:] = [event for event in before if event.time == min(times)]
                continue
            for place in range(len(events)):
                if before and rng.random() < 0.3:
                    events[place] = rng.choice(before)


def _put(rng: Random, events: list[Event], time: int) -> None:
    if events:
        place = rng.randrange(len(events))
        events[place] = replace(events[place], time=time)


def _lag(rng: Random, epochs: Sequence[Sequence[Event]], unit: int, *, late: bool) -> int:
    """A lag for which no row is late, or any small one."""
    if late:
        return rng.choice([0, 2, 5]) * unit
    needed, top = 0, None
    for events in epochs:
        times = [event.time for event in events if event.time is not None]
        if not times:
            continue
        needed = max(needed, 0 if top is None else top - min(times))
        top = max(times) if top is None else max(top, *times)
    return needed
