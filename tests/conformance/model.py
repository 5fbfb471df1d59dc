"""A window operator in a few lines of Python, written from the rules alone, to verify the runner."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from sparkjet.time import MIN, WindowGrid
from tests.conformance.verdicts import NotationError
from tests.conformance.window_rows import WindowRow
from tests.conformance.window_setups import Aggregate
from tests.conformance.windows import Event


class ModelWindows:
    """Keeps every accepted value by frame and key; a window reads all of its frames."""

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
        self.next = max(self.next, MIN if watermark == MIN else self.window.ends.higher_frame(watermark))
        oldest = self._oldest(self.next)
        self.frames = {frame: keys for frame, keys in self.frames.items() if frame >= oldest}
        return rows

    def finish(self) -> list[WindowRow]:
        rows = self._emit(max((self.window.last_end(frame) for frame in self.frames), default=MIN))
        self.frames = {}
        return rows

    def early(self) -> list[WindowRow]:
        last = max((self.window.last_end(frame) for frame in self.frames), default=MIN)
        return [replace(row, kind="early") for row in self._emit(last)]

    def restore(self, window: WindowGrid | None) -> None:
        window = self.window if window is None else window
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

    def _oldest(self, end: int) -> int:
        """The first frame of the window that ends then."""
        return self.window.start(end) + self.window.frame

    def _emit(self, last: int) -> list[WindowRow]:
        rows = []
        first = max(self.next, min(self.frames, default=last + 1))
        for end in range(first, last + 1, self.window.step):
            values: dict[str, list[Fraction]] = {}
            for frame in range(self._oldest(end), end + 1, self.window.step):
                for key, some in self.frames.get(frame, {}).items():
                    values.setdefault(key, []).extend(some)
            start = self.window.start(end)
            rows += [WindowRow(start, end, key, result(self.aggregate, some)) for key, some in values.items()]
        return rows


class ModelSessions:
    """Keeps every open event; sessions are recomputed for every query."""

    def __init__(self, gap: int, aggregate: Aggregate) -> None:
        self.gap = gap
        self.aggregate = aggregate
        self.events: list[Event] = []
        self.closed = MIN
        self.late = 0
        self.disposed = False

    def accept(self, events: Sequence[Event]) -> None:
        self.late += sum(event.time < self.closed for event in events)
        self.events += [event for event in events if event.time >= self.closed]

    def close(self, watermark: int) -> list[WindowRow]:
        self.closed = max(self.closed, watermark)
        done = [session for session in self._sessions() if session[-1].time + self.gap < self.closed]
        self.events = [event for event in self.events if not any(event in session for session in done)]
        return self._rows(done, "r")

    def early(self) -> list[WindowRow]:
        return self._rows(self._sessions(), "early")

    def finish(self) -> list[WindowRow]:
        rows = self._rows(self._sessions(), "r")
        self.events = []
        return rows

    def restore(self, window: WindowGrid | None) -> None:
        if window is not None:
            raise NotationError("sessions")

    def is_empty(self) -> bool:
        return not self.events

    def dispose(self) -> None:
        self.disposed = True

    def _sessions(self) -> list[list[Event]]:
        sessions: list[list[Event]] = []
        for event in sorted(self.events, key=lambda event: (event.key, event.time)):
            last = sessions[-1][-1] if sessions else None
            if last is None or last.key != event.key or last.time + self.gap <= event.time:
                sessions.append([])
            sessions[-1].append(event)
        return sessions

    def _rows(self, sessions: list[list[Event]], kind: str) -> list[WindowRow]:
        return [
            WindowRow(
                each[0].time,
                each[-1].time + self.gap,
                each[0].key,
                result(self.aggregate, [e.value for e in each]),
                kind,
            )
            for each in sessions
        ]


def result(aggregate: Aggregate, values: list[Fraction]) -> Fraction:
    match aggregate.function:
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
    """Creates model operators and keeps them."""

    def __init__(self) -> None:
        self.opened: list[ModelWindows | ModelSessions] = []

    def open(self, window: WindowGrid, aggregate: Aggregate) -> ModelWindows:
        opened = ModelWindows(window, aggregate)
        self.opened.append(opened)
        return opened

    def open_sessions(self, gap: int, aggregate: Aggregate) -> ModelSessions:
        opened = ModelSessions(gap, aggregate)
        self.opened.append(opened)
        return opened
