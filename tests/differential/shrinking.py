"""Makes a case smaller as long as it differs in the same way."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from tests.differential.cases import Case, Epoch, Event, Input, Step

Differs = Callable[[Case], bool]


def shrunk(case: Case, differs: Differs, seconds: float) -> Case:
    """The smallest case that was found in some time.

    Args:
        case: A case that differs.
        differs: Whether another case differs in the same way.
        seconds: How long to look for a smaller one.
    """
    until = time.monotonic() + seconds
    found = True
    while found:
        found = False
        for smaller in _smaller(case):
            if time.monotonic() > until:
                return case
            if differs(smaller):
                case, found = smaller, True
                break
    return case


def _smaller(case: Case) -> Iterator[Case]:
    """Cases with a little less, what takes away most first."""
    yield from _fewer_branches(case)
    yield from _fewer_epochs(case)
    for number, branch in enumerate(case.branches):
        for place, step in enumerate(branch):
            yield _with_branch(case, number, _without(branch, place))
            for smaller in _fewer(step):
                yield _with_branch(case, number, (*branch[:place], smaller, *branch[place + 1 :]))
    for number, each in enumerate(case.inputs):
        for place in range(len(each.before)):
            yield _with_input(case, number, replace(each, before=_without(each.before, place)))
        for plainer in _fewer_marks(each):
            yield _with_input(case, number, plainer)
    for number, _ in enumerate(case.diverting.tries if case.diverting else ()):
        yield replace(case, diverting=replace(case.diverting, tries=_without(case.diverting.tries, number)))
    plain: dict[str, object] = {"options": (), "zone": "UTC", "through": "driver", "home": "path", "sink": "collected"}
    plain |= {"diverting": None, "many": False, "dropped": None}
    for plainer in (replace(case, **{name: value}) for name, value in plain.items()):
        if plainer != case:
            yield plainer
    yield from _fewer_rows(case)
    yield from _fewer_columns(case)


def _fewer_marks(each: Input) -> Iterator[Input]:
    if each.known:
        yield replace(each, known=())
    if each.mark is None:
        return
    for name in ("by", "idle", "gone", "discover"):
        if getattr(each.mark, name):
            yield replace(each, mark=replace(each.mark, **{name: False if name == "by" else None}))
    for name, plainest in (("policy", "lag"), ("throttle", "none")):
        if getattr(each.mark, name) != plainest:
            yield replace(each, mark=replace(each.mark, **{name: plainest}))


def _fewer_branches(case: Case) -> Iterator[Case]:
    for number in range(len(case.branches)):
        if len(case.branches) > 1:
            dropped = None if case.dropped in (None, number) else case.dropped - (number < case.dropped)
            yield replace(case, branches=_without(case.branches, number), dropped=dropped)


def _fewer_epochs(case: Case) -> Iterator[Case]:
    for number, epoch in enumerate(case.epochs):
        if len(case.epochs) > 1:
            yield replace(case, epochs=_without(case.epochs, number))
        if epoch.then:
            yield _with_epoch(case, number, replace(epoch, then=""))
        if epoch.pause and not any(each.timed for each in case.inputs):
            yield _with_epoch(case, number, replace(epoch, pause=0))


def _with_input(case: Case, number: int, each: Input) -> Case:
    return replace(case, inputs=(*case.inputs[:number], each, *case.inputs[number + 1 :]))


def _without(items: tuple, place: int) -> tuple:  # type: ignore[type-arg] - of anything
    return (*items[:place], *items[place + 1 :])


def _with_branch(case: Case, number: int, branch: tuple[Step, ...]) -> Case:
    return replace(case, branches=(*case.branches[:number], branch, *case.branches[number + 1 :]))


def _with_epoch(case: Case, number: int, epoch: Epoch) -> Case:
    return replace(case, epochs=(*case.epochs[:number], epoch, *case.epochs[number + 1 :]))


def _fewer(step: Step) -> Iterator[Step]:
    for place in range(len(step.parts)):
        if len(step.parts) > 1:
            yield replace(step, parts=_without(step.parts, place))
    for place in range(len(step.keys)):
        yield replace(step, keys=_without(step.keys, place))


def _fewer_rows(case: Case) -> Iterator[Case]:
    """Without halves of an epoch's input, without single rows, and with rows that have no values."""
    for number, epoch in enumerate(case.epochs):
        for side, rows in enumerate(epoch.rows):
            half = len(rows) // 2
            kept = [rows[half:], rows[:half]] if half > 1 else []
            single = [_without(rows, place) for place in range(len(rows))]
            empty = [(*rows[:i], _emptied(row), *rows[i + 1 :]) for i, row in enumerate(rows) if any(row.values)]
            for fewer in [*kept, *single, *empty]:
                yield _with_epoch(
                    case, number, replace(epoch, rows=(*epoch.rows[:side], fewer, *epoch.rows[side + 1 :]))
                )


def _emptied(row: Event) -> Event:
    return replace(row, values=(None,) * len(row.values))


def _without_last(each: Input) -> Input:
    columns = each.columns[:-1]
    return replace(each, columns=columns, known=tuple(place for place in each.known if place < len(columns)))


def _fewer_columns(case: Case) -> Iterator[Case]:
    """Without the last column of an input, which keeps the places of the others."""
    for side, each in enumerate(case.inputs):
        if not each.columns:
            continue
        inputs = (*case.inputs[:side], _without_last(each), *case.inputs[side + 1 :])
        epochs = tuple(
            replace(
                epoch,
                rows=tuple(
                    tuple(replace(row, values=row.values[:-1]) for row in rows) if i == side else rows
                    for i, rows in enumerate(epoch.rows)
                ),
            )
            for epoch in case.epochs
        )
        yield replace(case, inputs=inputs, epochs=epochs)
