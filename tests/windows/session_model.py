"""Naive session windows: keep every event, and find every session from scratch by its definition."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from tests.windows.model import Batch, Event, Fold, Row

Gap: TypeAlias = int | Callable[[Event], int]
"""The gap of all events, or of each; an event without a positive one is in no session."""


def naive(
    batches: Sequence[Batch], gap: Gap, max_duration: int | None, folds: Sequence[Fold]
) -> tuple[list[list[Row]], int]:
    """Final rows by batch, and the number of late events."""
    accepted: list[Event] = []
    closed: int | None = None
    late = 0
    output: list[list[Row]] = []
    for batch in batches:
        events = [event for event in batch.events if _until(event, gap) > event.time]
        on_time = [event for event in events if closed is None or event.time >= closed]
        late += len(events) - len(on_time)
        accepted += on_time
        upto = max((_until(event, gap) + 1 for event in accepted), default=0)
        if batch.watermark is not None:
            upto = batch.watermark
        if closed is not None:
            upto = max(upto, closed)
        output.append(
            [
                row
                for row in sessions(accepted, gap, max_duration, folds)
                if (closed is None or row[2] >= closed) and row[2] < upto
            ]
        )
        closed = upto
    return output, late


def sessions(accepted: Sequence[Event], gap: Gap, max_duration: int | None, folds: Sequence[Fold]) -> list[Row]:
    """All sessions, or their pieces, of some events."""
    rows: list[Row] = []
    for key in {event.key for event in accepted}:
        found: list[list[Event]] = []
        for event in sorted((e for e in accepted if e.key == key), key=lambda e: e.time):
            # Exactly one gap after the last event, two sessions touch and do not overlap.
            if not found or event.time >= max(_until(earlier, gap) for earlier in found[-1]):
                found.append([])
            found[-1].append(event)
        for session in found:
            start, end = session[0].time, max(_until(event, gap) for event in session)
            length = end - start if max_duration is None else max_duration
            for cut in range(start, end, length):
                piece = [event for event in session if cut <= event.time < cut + length]
                if piece:
                    rows.append((key, cut, min(cut + length, end), tuple(fold(piece) for fold in folds)))
    return rows


def _until(event: Event, gap: Gap) -> int:
    """End of what an event covers."""
    return event.time + (gap if isinstance(gap, int) else gap(event))
