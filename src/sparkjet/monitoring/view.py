"""The view of a run: what holds the stream back and by how much, in words and in numbers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec

from sparkjet.query_log import without_users

if TYPE_CHECKING:
    from sparkjet.engine.progress_report import BackupReport, ProgressReport, SubstreamReport
    from sparkjet.monitoring.runs import Run

SECOND = 1_000_000
STANDS = 60 * SECOND
"""Microseconds without progress after which the page says what can be done about a substream."""
_UNITS = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))


def shown(microseconds: int) -> str:
    """A duration for people: its two largest units, tenths below ten seconds.

    >>> shown(252_000_000), shown(90_061_000_000), shown(1_240_000), shown(-5_000_000)
    ('4 min 12 s', '1 d 1 h', '1.2 s', '-5.0 s')
    """
    if microseconds < 0:
        return f"-{shown(-microseconds)}"
    if microseconds < 10 * SECOND:
        return f"{microseconds / SECOND:.1f} s"
    rest, parts = microseconds // SECOND, []
    for unit, seconds in _UNITS:
        amount, rest = divmod(rest, seconds)
        if amount:
            parts.append(f"{amount} {unit}")
        elif parts:
            break
    return " ".join(parts[:2])


def sentence(run: Run, now: int) -> tuple[str, str | None]:
    """The state of the run in one sentence, and what can be done about it, if anything."""
    if run.state == "failed":
        return f"The query has failed. {run.failure}", "Fix what the error names, and start it with the same home."
    if run.failure is not None:
        return f"The records cannot be read. {run.failure}", "They are looked at again each second."
    if run.ended_at is not None:
        return f"The query ended {shown(now - run.ended_at)} ago.", None
    report = run.history.newest
    if report is None:
        return f"No epoch has ended since the start {shown(now - run.started_at)} ago.", None
    waiting = unsettled(run)
    if waiting:
        told = f"{_count(waiting, 'decided transaction')} cannot be committed."
        return told, "The driver's log says why. They are tried again until their sink takes them."
    held = _holder(report, run, now)
    return (_level(report, run, now), None) if held is None else held


def unsettled(run: Run) -> int:
    """Decided transactions that their sinks have not taken: the newest record may name some taken since."""
    if run.waiting is not None:
        return run.waiting()
    report = run.history.newest
    if report is None:
        return 0
    # One that waits for more epochs says so.
    return sum(
        sink.epoch(report.epoch.number) < report.epoch.number and not sink.transaction.get("waits", False)
        for sink in report.sinks
    )


def summary(run: Run, now: int) -> dict[str, Any]:
    """A run in the list of all; JSON, times in microseconds since 1970."""
    told, advice = sentence(run, now)
    report = run.history.newest
    return {
        "run": run.run,
        "query": run.query,
        "name": run.label,
        "state": run.state,
        "sentence": told,
        "advice": advice,
        "condition": run.condition,
        "startedAt": run.started_at,
        "endedAt": run.ended_at,
        "epoch": None if report is None else report.epoch.number,
        "watermark": None if report is None else report.watermark,
        "lateRows": 0 if report is None else report.late_rows.total,
        "nullTimestamps": 0 if report is None else report.null_timestamps.total,
    }


def details(run: Run, now: int) -> dict[str, Any]:
    """Everything shown of one run except its points; JSON, times in microseconds since 1970."""
    report, history = run.history.newest, run.history
    described = {**summary(run, now), "now": now}
    if report is None:
        return described
    standing = history.standing(report)
    return described | {
        "epochEndedAt": history.ended_at,
        "durationMs": report.epoch.duration_ms,
        "rowsIn": history.totals.rows_in,
        "rowsOut": dict(history.totals.rows_out),
        "failedRows": dict(history.totals.failed),
        "epochs": history.totals.epochs,
        "substreams": [
            {"name": name, "movedAt": history.moved_at(name), **msgspec.to_builtins(report.substreams[name])}
            for name in standing.named
        ],
        "otherSubstreams": standing.others.count,
        "snapshot": msgspec.to_builtins(report.snapshot),
        "operators": msgspec.to_builtins(report.operators),
        "openWindows": report.open_windows,
        "withheldWindows": report.withheld_windows,
        "lateRowsShown": history.dropped is not None,
        "grid": run.grid is not None,
        # Not what their sinks keep of them, which is long, and of no use to a reader.
        "transactions": [
            {"output": sink.name, "rows": sink.rows, "epoch": sink.epoch(report.epoch.number)} for sink in report.sinks
        ],
        "unsettled": unsettled(run),
        "backup": _backup(report.backup),
    }


def _backup(report: BackupReport | None) -> dict[str, Any] | None:
    if report is None:
        return None
    return {"epoch": report.epoch, "error": None if report.error is None else without_users(report.error)}


def _level(report: ProgressReport, run: Run, now: int) -> str:
    """The sentence for a run in which no substream is behind the others."""
    ended = f"Epoch {report.epoch.number} ended {shown(now - (run.history.ended_at or now))} ago"
    if not report.substreams:
        return f"{ended}; the query has no watermark."
    if report.watermark is None:
        return f"{ended}; no row with an event time has come yet."
    standing = run.history.standing(report)
    idle = standing.others.idle + sum(report.substreams[name].idle for name in standing.named)
    waited = _count(standing.waited, "substream")
    return f"Nothing holds the stream back: {waited} level{f', {idle} idle' if idle else ''}. {ended}."


def _holder(report: ProgressReport, run: Run, now: int) -> tuple[str, str | None] | None:
    """The substream that the others wait for; None if none is behind the others."""
    standing = run.history.standing(report)
    first = standing.named[0] if standing.named else ""
    if 0 < standing.empty < standing.waited:
        others = f", nor of {_count(standing.empty - 1, 'other')}" if standing.empty > 1 else ""
        told = f"“{first}” holds the stream back: no row of it has come yet{others}."
        return told, _advice(first, report.substreams[first])
    if standing.last == 0:
        return None
    others = f" and {_count(standing.last - 1, 'other')} hold" if standing.last > 1 else " holds"
    told = f"“{first}”{others} the stream back by {shown(standing.behind)}."
    held = standing.others.held + sum(report.substreams[name].held_back is not None for name in standing.named)
    if held:
        told += f" {_count(held, 'substream')} ahead of it wait{'s' if held == 1 else ''} (maxWatermarkDrift)."
    stands = now - (run.history.moved_at(first) or now)
    if stands < STANDS:
        return told, None
    return f"{told} It has not moved for {shown(stands)}.", _advice(first, report.substreams[first])


def _advice(name: str, substream: SubstreamReport) -> str:
    if substream.caught_up is False:
        return "It has rows that are not read yet: nothing is lost by waiting."
    quoted = json.dumps(name, ensure_ascii=False)
    return (
        f"If nothing more comes of it: query.retireSubstream({quoted}), or idleTimeout in withWatermark for all that "
        "are silent."
    )


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
