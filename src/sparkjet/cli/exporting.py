"""``export-checkpoint``: writes a checkpoint from which Spark's own query goes on."""

from __future__ import annotations

from collections.abc import Sequence

from sparkjet.cli.arguments import show
from sparkjet.cli.homes import home_at
from sparkjet.engine.exporting import export_checkpoint
from sparkjet.query_log import without_users


def export(location: str, to: str, after: int | None, settings: Sequence[str], *, as_json: bool) -> None:
    """Export a home, and print after which batch Spark's query goes on."""
    target = home_at(to, "to", settings)
    done = export_checkpoint(home_at(location, "home", settings), target, after)
    place = without_users(str(target))
    line = f"{place} goes on after batch {done.batch}, epoch {done.epoch}; queries can no longer start in {location}"
    show([line], {"to": place, "epoch": done.epoch, "batch": done.batch}, as_json=as_json)
