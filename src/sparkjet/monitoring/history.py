"""The history of a run: its epochs' reports, in bounded memory; the older, the coarser."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable
from functools import reduce
from itertools import groupby
from typing import TYPE_CHECKING, Any

import msgspec

from sparkjet.monitoring.late_rows import holds_late_rows
from sparkjet.monitoring.standing import OTHERS, Standing, standing_of

if TYPE_CHECKING:
    from sparkjet.engine.progress_report import ProgressReport

POINTS = 720
"""Points that a history keeps: over a day of epochs, one per four minutes, and one for each of the newest epochs."""
AGE = 24 * 3600 * 1_000_000
"""Microseconds after which a point is dropped."""
SET_BACK = 60_000_000
"""Microseconds; a clock set back by this much is not merely being corrected."""
BUCKETS_MS = (5, 10, 25, 50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 30_000, 60_000, 300_000)
"""Upper bounds of the histogram of durations."""


class Line(msgspec.Struct, frozen=True):
    """Event time of one substream at one point: microseconds since 1970, None before its first row."""

    watermark: int | None
    idle: bool


class Point(msgspec.Struct, frozen=True, rename="camel"):
    """One epoch, or several in a row; times are microseconds since 1970.

    Counts are sums over the epochs, including ``duration_ms`` by phase; everything else is as after the last one.
    """

    at: int
    epoch: int
    epochs: int
    watermark: int | None
    lines: dict[str, Line]
    rows_in: int
    rows_out: int
    late: int
    null_timestamps: int
    failed: int
    duration_ms: dict[str, int]
    entries: int

    def then(self, later: Point) -> Point:
        """This point merged with the next."""
        return msgspec.structs.replace(
            later,
            epochs=self.epochs + later.epochs,
            rows_in=self.rows_in + later.rows_in,
            rows_out=self.rows_out + later.rows_out,
            late=self.late + later.late,
            null_timestamps=self.null_timestamps + later.null_timestamps,
            failed=self.failed + later.failed,
            duration_ms=dict(Counter(self.duration_ms) + Counter(later.duration_ms)),
        )


class Totals(msgspec.Struct):
    """Counts of a run since its start; durations by phase in milliseconds, and how many fell in each bucket."""

    epochs: int = 0
    rows_in: int = 0
    rows_out: Counter[str] = msgspec.field(default_factory=Counter)
    failed: Counter[str] = msgspec.field(default_factory=Counter)
    duration_ms: Counter[str] = msgspec.field(default_factory=Counter)
    buckets: dict[str, list[int]] = msgspec.field(default_factory=dict)


class History:
    """Epochs of one run as points, at most ``points``, and none older than a day; thread-safe.

    When there are too many, neighbours that ended within the same stretch of time are merged; the stretch is lengthened
    until half of the points are free: what a chart can show stays, whatever the number of epochs.

    Args:
        points: The number to keep.
    """

    def __init__(self, points: int = POINTS) -> None:
        self._most = points
        self._stretch = 1_000_000
        self._points: list[Point] = []
        self._lock = threading.Lock()
        self._moved: dict[str, tuple[int | None, int]] = {}
        self._merges = 0
        self._standing: tuple[ProgressReport, Standing] | None = None
        self.totals = Totals()
        self.newest: ProgressReport | None = None
        self.dropped: dict[str, Any] | None = None
        """The newest decision of a sink of late rows that has any."""
        self.ended_at: int | None = None

    @property
    def points(self) -> list[Point]:
        """The points, oldest first."""
        with self._lock:
            return list(self._points)

    def since(self, merges: int | None = None, at: int = 0) -> tuple[int, list[Point], bool]:
        """The news for a reader who has seen the points up to ``at``, when there had been this many merges."""
        with self._lock:
            if merges != self._merges:
                return self._merges, list(self._points), True
            return merges, [each for each in self._points if each.at > at], False

    def add(self, report: ProgressReport, now: int, rows_in: int = 0) -> None:
        """Take in an epoch that ended at ``now``; called once per epoch, by one thread at a time."""
        number = report.epoch.number
        new = [sink for sink in report.sinks if sink.epoch(number) == number]
        failed = report.failed_rows
        if self.newest is not None and self.newest.epoch.number == number:
            # Another record of the epoch, such as the one that names maps for the next: it was counted before.
            new, failed = [], {}
        out = {sink.name: sink.rows for sink in new if sink.rows is not None}
        with self._lock:
            self._move_back(now)
            at = self._points[-1].at if self._points else 0
        point = Point(
            # Strictly later than the last: a reader asks for what came after a point, and clocks may be set back.
            at=max(now, at + 1),
            epoch=number,
            epochs=1,
            watermark=report.watermark,
            lines=_lines(report, self.standing(report)),
            rows_in=rows_in,
            rows_out=sum(out.values()),
            late=report.late_rows.epoch,
            null_timestamps=report.null_timestamps.epoch,
            failed=sum(failed.values()),
            duration_ms=dict(report.epoch.duration_ms),
            entries=report.snapshot.entries,
        )
        with self._lock:
            self._count(point, out, failed)
            self._note_moves(report, now)
            self.newest, self.ended_at = report, now
            self.dropped = next((each.transaction for each in new if holds_late_rows(each.transaction)), self.dropped)
            self._points = [each for each in self._points if point.at - each.at <= AGE]
            self._points.append(point)
            if len(self._points) > self._most:
                self._merge()

    def standing(self, report: ProgressReport) -> Standing:
        """The standing of the substreams in the newest report, or in one that was the newest."""
        known = self._standing
        if known is None or known[0] is not report:
            # Kept together: a viewer holds a report, and an epoch may end in the meantime.
            known = self._standing = report, standing_of(report.substreams)
        return known[1]

    def moved_at(self, substream: str) -> int | None:
        """When an epoch first reported the substream's current watermark; None if none has reported one."""
        with self._lock:
            return self._moved[substream][1] if substream in self._moved else None

    def _move_back(self, now: int) -> None:
        """If the clock was set back, move earlier points along: a chart has no room for hours in one place."""
        behind = self._points[-1].at + 1 - now if self._points else 0
        if behind > SET_BACK:
            self._merges += 1
            self._points = [msgspec.structs.replace(each, at=each.at - behind) for each in self._points]

    def _note_moves(self, report: ProgressReport, now: int) -> None:
        moved = self._moved
        for name, each in report.substreams.items():
            before = moved.get(name)
            if before is None or before[0] != each.watermark:
                moved[name] = each.watermark, now
        if len(moved) > len(report.substreams):
            self._moved = {name: moved[name] for name in report.substreams}

    def _merge(self) -> None:
        self._merges += 1
        self._points = list(_merged(self._points, self._stretch))
        # Only if that is not enough: a stretch that doubles each time exceeds a day after some hours.
        while len(self._points) > self._most // 2:
            self._stretch *= 2
            self._points = list(_merged(self._points, self._stretch))

    def _count(self, point: Point, out: dict[str, int], failed: dict[str, int]) -> None:
        totals = self.totals
        totals.epochs += 1
        totals.rows_in += point.rows_in
        totals.rows_out.update(out)
        totals.failed.update(failed)
        totals.duration_ms.update(point.duration_ms)
        for phase, duration in point.duration_ms.items():
            counts = totals.buckets.setdefault(phase, [0] * (len(BUCKETS_MS) + 1))
            counts[next((i for i, bound in enumerate(BUCKETS_MS) if duration <= bound), len(BUCKETS_MS))] += 1


def _lines(report: ProgressReport, standing: Standing) -> dict[str, Line]:
    substreams, furthest = report.substreams, standing.others.furthest
    lines = {name: Line(substreams[name].watermark, substreams[name].idle) for name in standing.named}
    return lines if furthest is None else {**lines, OTHERS: Line(furthest.watermark, furthest.idle)}


def _merged(points: Iterable[Point], stretch: int) -> Iterable[Point]:
    for _, neighbours in groupby(points, key=lambda each: each.at // stretch):
        yield reduce(Point.then, neighbours)
