"""Groups SW and SES: windows fed epoch by epoch, also across a restore."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Protocol

from tests.conformance.notation import call, integer, tokens, value
from tests.conformance.verdicts import MismatchError, NotationError
from tests.conformance.window_rows import Output, WindowRow, read_outputs, watermark
from tests.conformance.window_setups import Aggregate, WindowSetup, window_grid, window_setup

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparkjet.time import WindowGrid
    from tests.conformance.cases import Case


@dataclass(frozen=True)
class Event:
    """A row of an epoch: key, event time, value; a ``partial`` has the combined value of many events."""

    key: str
    time: int
    value: Fraction
    partial: bool = False


@dataclass(frozen=True)
class Step:
    """Input other than events: ``w`` with its time, ``restore`` with its window, ``early`` or ``end``."""

    kind: str
    time: int = 0
    window: WindowGrid | None = None


class WindowDriver(Protocol):
    """A window operator as driven by cases; rows are late by the watermark of the last :meth:`close`."""

    @property
    def late(self) -> int:
        """Number of rows dropped so far, across restores."""
        ...

    def accept(self, events: Sequence[Event]) -> None:
        """Add the rows of one epoch."""
        ...

    def close(self, watermark: int) -> list[WindowRow]:
        """The rows of the windows that a watermark closes, ascending by their end."""
        ...

    def early(self) -> list[WindowRow]:
        """Rows of kind ``early`` of the open windows, ascending by their end; changes nothing."""
        ...

    def finish(self) -> list[WindowRow]:
        """The rows of all open windows, ascending by their end; afterwards no state may be left."""
        ...

    def restore(self, window: WindowGrid | None) -> None:
        """Save the state, discard the operator, and load the state into a new one, optionally with another window."""
        ...

    def is_empty(self) -> bool:
        """Whether no state is left."""
        ...

    def dispose(self) -> None:
        """Free the operator's state; the driver must not be used afterwards."""
        ...


class WindowDrivers(Protocol):
    """Creates operators for cases."""

    def open(self, window: WindowGrid, aggregate: Aggregate) -> WindowDriver:
        """An operator without state, its rows grouped by one key."""
        ...

    def open_sessions(self, gap: int, aggregate: Aggregate) -> WindowDriver:
        """A session operator without state, its rows grouped by one key."""
        ...


def run_windows(case: Case, drivers: WindowDrivers) -> None:
    """Check a row of the groups SW and SES.

    Raises:
        NotationError: The row cannot be read.
        MismatchError: The windows output something else.
    """
    setup = window_setup(case.setup)
    steps = [_step(token) for token in tokens(case.cell(2, "the input"))]
    expected = read_outputs(case.cell(3, "the expected output"))
    aggregate, steps = _fed(setup, steps)
    driver = open_driver(setup, aggregate, drivers)
    try:
        expected.require(_run(driver, steps), driver.late, any_order=setup.session is not None)
    finally:
        driver.dispose()


def open_driver(setup: WindowSetup, aggregate: Aggregate, drivers: WindowDrivers) -> WindowDriver:
    """An operator for the window of a setup."""
    if setup.window is not None:
        return drivers.open(setup.window, aggregate)
    assert setup.session is not None
    return drivers.open_sessions(setup.session, aggregate)


def finish(driver: WindowDriver) -> list[WindowRow]:
    """The rows of all open windows at the end of the input.

    Raises:
        MismatchError: State is left.
    """
    rows = driver.finish()
    if not driver.is_empty():
        raise MismatchError("state is left after the end of the input")
    return rows


def _run(driver: WindowDriver, steps: Sequence[Event | Step]) -> list[Output]:
    output: list[Output] = []
    epoch: list[Event] = []
    for step in [*steps, Step("over")]:
        if isinstance(step, Event):
            epoch.append(step)
            continue
        if epoch:
            driver.accept(epoch)
            epoch = []
        if step.kind == "w":
            output += [*driver.close(step.time), watermark(step.time)]
        elif step.kind == "early":
            output += driver.early()
        elif step.kind == "restore":
            driver.restore(step.window)
        elif step.kind == "end":
            output += finish(driver)
    return output


def _step(token: str) -> Event | Step:
    if token in {"early", "end", "restore"}:
        return Step(token)
    step = call(token)
    if step.name == "e":
        key, time, *rest = step.take(2, 3)
        return Event(key, integer(time), value(rest[0]) if rest else Fraction(1))
    if step.name == "f":
        key, end, partial = step.take(3)
        # A frame is identified by its exclusive end.
        return Event(key, integer(end) - 1, value(partial), partial=True)
    if step.name == "w":
        return Step("w", time=integer(step.take(1)[0]))
    if step.name == "restore":
        return Step("restore", window=window_grid(step.take(1)[0]))
    raise NotationError(f"not understood: {token}")


def _fed(setup: WindowSetup, steps: list[Event | Step]) -> tuple[Aggregate, list[Event | Step]]:
    """The aggregate and the steps for an operator: a partial is fed as one event of its frame.

    Counts become sums of ones, so that a partial count stays one item, which is late as a whole.
    """
    events = [step for step in steps if isinstance(step, Event)]
    function = setup.aggregate.function
    if any(event.partial for event in events):
        if function == "AVG":
            raise NotationError("a partial of an average is not one number")
        if function == "CNT":
            function = "SUM"
            steps = [
                replace(step, value=Fraction(1)) if isinstance(step, Event) and not step.partial else step
                for step in steps
            ]
    fractional = function != "CNT" and any(event.value.denominator != 1 for event in events)
    return replace(setup.aggregate, function=function, fractional=fractional), steps
