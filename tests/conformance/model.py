"""A window operator in a few lines of Python, written from the rules alone: it shows that the runner judges rightly."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from sparkjet.testing.conformance.window_rows import WindowRow
from sparkjet.testing.conformance.window_setups import Aggregate
from sparkjet.testing.conformance.windows import Event
from sparkjet.time import MIN, WindowGrid


class ModelWindows:
    """Every accepted value by frame and key; a window looks at all of its frames."""

    def __init__(self, window: WindowGrid, aggregate: Aggregate) -> None:
        self.window = window
        self.aggregate = aggregate
        self.frames: dict[int, dict[str, list[Fraction]]] = {}
        self.next = MIN
        self.late = 0
        self.disposed = False

    def accept(self, events: Sequence[Event]) -> None:
        for event in events:
            frame = self.window.grid.higher_frame(event.time)
            if frame < self.next:
                self.late += 1
            else:
                self.frames.setdefault(frame, {}).setdefault(event.key, []).append(event.value)

    def close(self, watermark: int) -> list[WindowRow]:
        rows = self._emit(self.window.closed_end(watermark))
        self.next = max(self.next, self.window.next_end(watermark))
        oldest = self.window.oldest_frame_needed(self.next)
        self.frames = {frame: keys for frame, keys in self.frames.items() if frame >= oldest}
        return rows

    def finish(self) -> list[WindowRow]:
        rows = self._emit(max((self.window.last_end(frame) for frame in self.frames), default=MIN))
        self.frames = {}
        return rows

    def restore(self, window: WindowGrid) -> None:
        if self.next != MIN:
            self.next = window.grid.higher_frame(self.next - 1)
        frames, self.frames = self.frames, {}
        for frame, keys in frames.items():
            for key, values in keys.items():
                moved = self.frames.setdefault(window.grid.higher_frame(frame - 1), {})
                moved.setdefault(key, []).extend(values)
        if self.next != MIN:
            self.frames = {frame: keys for frame, keys in self.frames.items() if frame > self.next - window.size}
        self.window = window

    def is_empty(self) -> bool:
        return not self.frames

    def dispose(self) -> None:
        self.disposed = True

    def _emit(self, last: int) -> list[WindowRow]:
        rows = []
        first = max(self.next, min(self.frames, default=last + 1))
        for end in range(first, last + 1, self.window.step):
            values: dict[str, list[Fraction]] = {}
            for frame in range(self.window.oldest_frame_needed(end), end + 1, self.window.step):
                for key, some in self.frames.get(frame, {}).items():
                    values.setdefault(key, []).extend(some)
            rows += [WindowRow(self.window.start(end), end, key, self._result(some)) for key, some in values.items()]
        return rows

    def _result(self, values: list[Fraction]) -> Fraction:
        match self.aggregate.function:
            case "SUM":
                return sum(values, Fraction(0))
            case "CNT":
                return Fraction(len(values))
            case "AVG":
                return sum(values, Fraction(0)) / len(values)
            case "MAX":
                return max(values)
            case _:
                return min(values)


class ModelDrivers:
    """Makes model operators and remembers them."""

    def __init__(self) -> None:
        self.opened: list[ModelWindows] = []

    def open(self, window: WindowGrid, aggregate: Aggregate) -> ModelWindows:
        self.opened.append(ModelWindows(window, aggregate))
        return self.opened[-1]
