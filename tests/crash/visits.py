"""Rules of a query of sessions, and of windows over these sessions."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from tests.crash.feeds import Event
from tests.crash.replay import RESULTS, Row, Rules

BUSY = "busy"
"""Name of the directory of the windows over sessions."""


@dataclass(frozen=True)
class VisitRules(Rules):
    """``size`` is that of the windows over the sessions; ``step`` is the granularity of the watermark."""

    gap: int = 0

    @property
    def outputs(self) -> dict[str, list[str]]:
        """Columns of each output by its directory, the window's first."""
        return {
            RESULTS: ["session_window", *self.keys, *self.aggregates],
            BUSY: ["window", *self.keys, "sessions", "longest"],
        }

    def is_late(self, timestamp: int, watermark: int) -> bool:
        """Whether an event is older than the watermark, even if its session is still open."""
        return timestamp < watermark

    def closed_at(self, accepted: Sequence[Event]) -> int:
        """The watermark that closes everything: above every session's end, and one above every window's."""
        last = max(event[self.time] for event in accepted) + self.gap
        return self._end(last - 1) + 1

    def results(self, accepted: Sequence[Event]) -> dict[str, Counter[Row]]:
        """The expected rows of each output for the accepted events."""
        sessions: Counter[Row] = Counter()
        busy: dict[Row, list[int]] = defaultdict(list)
        for key, events in self._sessions(accepted):
            start, end = events[0][self.time], events[-1][self.time] + self.gap
            sessions[(start, end, *key, *(compute(events) for compute in self.aggregates.values()))] += 1
            window_end = self._end(end - 1)
            busy[(window_end - self.size, window_end, *key)].append(len(events))
        return {
            RESULTS: sessions,
            BUSY: Counter((*group, len(rows), max(rows)) for group, rows in busy.items()),
        }

    def _end(self, timestamp: int) -> int:
        return timestamp // self.size * self.size + self.size

    def _sessions(self, accepted: Sequence[Event]) -> list[tuple[Row, list[Event]]]:
        found: list[tuple[Row, list[Event]]] = []
        by_key: dict[Row, list[Event]] = defaultdict(list)
        for event in accepted:
            by_key[tuple(event[key] for key in self.keys)].append(event)
        for key, events in by_key.items():
            last = None
            for event in sorted(events, key=lambda event: event[self.time]):
                # Two sessions exactly one gap apart touch, but stay separate.
                if last is None or event[self.time] - last >= self.gap:
                    found.append((key, []))
                found[-1][1].append(event)
                last = event[self.time]
        return found
