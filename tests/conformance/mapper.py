"""Group MAP: substreams, idle timeout and throttling, event by event."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkjet.time import MAX
from tests.conformance.notation import call, integer, show
from tests.conformance.steps import read_steps
from tests.conformance.trackers import tracker_setup
from tests.conformance.verdicts import NotationError, require_equal
from tests.time.reinstating import reinstate

if TYPE_CHECKING:
    from sparkjet.time import SubstreamTracker
    from tests.conformance.cases import Case
    from tests.conformance.steps import Step


def run_mapper(case: Case) -> None:
    """Check a row ``@now op -> output …`` on a :class:`sparkjet.time.SubstreamTracker`.

    Raises:
        NotationError: The row cannot be read.
        MismatchError: A step outputs something else.
    """
    setup = tracker_setup(case.setup)
    if setup.rest or setup.substreams is None:
        raise NotationError(f"not understood: {', '.join(setup.rest) or case.setup}")
    mapper = _Mapper(setup.tracker(), setup.substreams)
    for step in read_steps(case, clock=True):
        expected = tuple(_output(token) for token in step.output)
        require_equal(" ".join(expected) or "-", " ".join(mapper.run(step)) or "-", str(step))


class _Mapper:
    """A tracker whose substreams are numbered, as Jet numbers them: after a removal the later ones move down."""

    def __init__(self, tracker: SubstreamTracker, substreams: int) -> None:
        self.tracker = tracker
        self.names: list[str] = []
        self.added = 0
        self.add(substreams, now=0)

    def run(self, step: Step) -> list[str]:
        now = step.now or 0
        if step.operation == "idle":
            return self.advance(now)
        operation = call(step.operation)
        if operation.name == "ev":
            place, time = operation.take(2)
            self.tracker.report(self.name(place), integer(time), now)
            return [*self.advance(now, cap=integer(time)), f"e({show(integer(time))})"]
        if operation.name == "add":
            self.add(integer(operation.take(1)[0]), now)
            return []
        if operation.name == "rem":
            name = self.name(operation.take(1)[0])
            self.names.remove(name)
            self.tracker.retire(name, now)
            return self.advance(now)
        if operation.name == "restore":
            place, watermark = operation.take(2)
            reinstate(self.tracker, self.name(place), integer(watermark))
            return []
        raise NotationError(f"not understood: {step.operation}")

    def add(self, count: int, now: int) -> None:
        for _ in range(count):
            # A number is reused after a removal, but for a different substream.
            self.names.append(f"substream {self.added}")
            self.added += 1
            self.tracker.add(self.names[-1], now)

    def advance(self, now: int, cap: int = MAX) -> list[str]:
        advance = self.tracker.advance(now, cap)
        output = [] if advance.watermark is None else [f"w({show(advance.watermark)})"]
        return [*output, "IDLE"] if advance.went_idle else output

    def name(self, place: str) -> str:
        number = integer(place)
        if not 0 <= number < len(self.names):
            raise NotationError(f"there is no substream {place}")
        return self.names[number]


def _output(text: str) -> str:
    if text == "IDLE":
        return text
    emitted = call(text)
    if emitted.name not in {"w", "e"}:
        raise NotationError(f"not understood: {text}")
    return f"{emitted.name}({show(integer(emitted.take(1)[0]))})"
