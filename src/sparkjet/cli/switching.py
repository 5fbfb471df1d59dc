"""``switch``: lets one query go on after another one, and prints how far both are."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sparkjet.api.switch import decide, microseconds
from sparkjet.cli.arguments import show
from sparkjet.cli.homes import home_at
from sparkjet.engine.changed_windows import shown
from sparkjet.errors import AnalysisError
from sparkjet.snapshots.record_log import newest_record
from sparkjet.time import MIN

if TYPE_CHECKING:
    from sparkjet.snapshots.record import Record


def switch_queries(
    old: str, new: str, at: str | None, settings: Sequence[str], *, dry_run: bool, as_json: bool
) -> None:
    """Decide the switch unless told to look only, and print what both queries publish."""
    end = None if at is None else _end(at)
    before, after = home_at(old, "old", settings), home_at(new, "new", settings)
    border = decide(before, after, end, dry_run=dry_run)
    told: dict[str, Any] = {
        "at": border.at.isoformat(),
        "decided": not dry_run or newest_record(before, "switch")[1].until is not None,
    }
    for name, home in (("old", before), ("new", after)):
        told[name] = described(newest_record(home, "switch")[1])
    first = "decided" if told["decided"] else "it would be decided"
    lines = [f"{first}: windows that end up to {told['at']} are the old query's, and those after it the new one's"]
    show([*lines, *(_line(name, told[name]) for name in ("old", "new"))], told, as_json=as_json)


def described(record: Record) -> dict[str, Any]:
    """The outputs of a query and its progress, by its newest record."""
    watermark, ended = record.watermarks.coalescer.emitted, [each for each in record.ended if each is not None]
    return {
        "query": record.query,
        "epoch": record.epoch,
        "publishes": _published(record),
        "closed": shown(max(ended)) if ended else None,
        "watermark": None if watermark == MIN else shown(watermark),
    }


def _published(record: Record) -> str:
    if record.after is not None and record.is_held:
        return f"nothing yet, as it goes on after query {record.after.query}"
    if record.until is not None and record.has_passed(record.until.at or 0):
        return "no more windows"
    after = "" if record.after is None else f" after {shown(record.after.at or 0)}"
    until = "" if record.until is None else f" up to {shown(record.until.at or 0)}"
    return f"windows{after}{until}"


def _line(name: str, told: dict[str, Any]) -> str:
    reached = "no window is closed" if told["closed"] is None else f"windows up to {told['closed']} are closed"
    watermark = "" if told["watermark"] is None else f", watermark {told['watermark']}"
    return f"{name}: query {told['query']}, epoch {told['epoch']}, publishes {told['publishes']}; {reached}{watermark}"


def _end(text: str) -> int:
    try:
        # Python 3.10 does not know Z.
        return microseconds(dt.datetime.fromisoformat(text.replace("Z", "+00:00")))
    except ValueError:
        raise AnalysisError(f'--at: "{text}" is not a time such as 2026-01-05T10:00:00Z.') from None
