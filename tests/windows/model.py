"""A naive sliding window: keeps every event, and computes every window from scratch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sparkjet.time import WindowGrid


@dataclass(frozen=True)
class Event:
    """A row: key, time and value."""

    key: str | None
    time: int
    value: int


@dataclass(frozen=True)
class Batch:
    """The events of one epoch and the watermark at its end; None closes everything."""

    events: Sequence[Event]
    watermark: int | None


Row = tuple[str | None, int, int, tuple[Any, ...]]
Fold = Callable[[Sequence[Event]], Any]


def naive(batches: Sequence[Batch], window: WindowGrid, folds: Sequence[Fold]) -> tuple[list[list[Row]], int]:
    """Final rows by batch, and the number of late events."""
    accepted: list[Event] = []
    closed: int | None = None
    late = 0
    output: list[list[Row]] = []
    for batch in batches:
        for event in batch.events:
            if closed is not None and _ends(event, window)[0] <= closed:
                late += 1
            else:
                accepted.append(event)
        upto = batch.watermark
        if upto is None:
            upto = max((_ends(event, window)[-1] for event in accepted), default=None)
        rows: list[Row] = []
        if upto is not None:
            upto -= (upto - window.offset - window.size) % window.step
            for end in sorted({e for event in accepted for e in _ends(event, window)}):
                if end <= upto and (closed is None or end > closed):
                    rows += _rows(end, accepted, window, folds)
            closed = upto if closed is None else max(closed, upto)
        output.append(rows)
    return output, late


def _rows(end: int, accepted: Sequence[Event], window: WindowGrid, folds: Sequence[Fold]) -> list[Row]:
    inside: dict[str | None, list[Event]] = {}
    for event in accepted:
        if end - window.size <= event.time < end:
            inside.setdefault(event.key, []).append(event)
    return [(key, end - window.size, end, tuple(fold(events) for fold in folds)) for key, events in inside.items()]


def _ends(event: Event, window: WindowGrid) -> list[int]:
    """Ends of the windows that an event is in, ascending."""
    last = event.time - (event.time - window.offset) % window.step
    return [
        start + window.size
        for start in range(last - window.size, last + 1)
        if _begins(start, window) and start + window.size > event.time
    ]


def _begins(time: int, window: WindowGrid) -> bool:
    return (time - window.offset) % window.step == 0
