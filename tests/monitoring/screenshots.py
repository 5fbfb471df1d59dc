"""Pictures of the page, as the guide shows them: `python -m tests.monitoring.screenshots`."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from sparkjet.clock import ManualClock
from sparkjet.engine.progress_report import SinkReport
from sparkjet.errors import SinkError
from sparkjet.monitoring import Run, Runs
from sparkjet.monitoring.page import Page
from tests.monitoring.browser import Browser
from tests.monitoring.reports import NOW, SECOND, report, substream

IMAGES = Path(__file__).parents[2] / "docs" / "guide" / "images"
WIDTH, PHONE, HEIGHT = 1000, 390, 700
EPOCHS = 120
MEMBERS = [
    {"id": str(n), "address": f"10.0.0.{n}:5710", "host": f"node{n}", "primaryOf": 90, "backupOf": 90, "copying": 0,
     "entries": 1_204, "used": 310 << 20, "limit": 8 << 30, "frozen": False}
    for n in (1, 2, 3)
]  # fmt: skip
GRID = {"members": MEMBERS, "frozen": False, "partitions": 271, "backupCount": 1, "lost": []}


def runs(directory: Path) -> Runs:
    """A query of which one partition is behind and another one is idle, and one that has failed."""
    late = [f"2023-11-14 21:5{second}:07" for second in range(6)]
    columns = {"ts": late, "device": ["d-17"] * 6, "_substream": ["readings/3"] * 6, "_reason": ["late"] * 6}
    pq.write_table(pa.table(columns), directory / "part-000000090-0.parquet")
    schema = {"fields": [{"name": name} for name in columns]}
    handle = {"directory": str(directory), "epoch": 90, "format": "parquet", "schema": schema}
    handle["files"] = [["staged", "part-000000090-0.parquet"]]
    run = Run("7d1f2c9a", "run-1", "readings", NOW - EPOCHS * 5 * SECOND, grid=lambda: GRID)
    for epoch in range(1, EPOCHS + 1):
        at = NOW - (EPOCHS - epoch) * 5 * SECOND
        behind = min(epoch, 60) * 4 * SECOND
        substreams = {f"readings/{n}": substream(at - (2 + n) * SECOND) for n in range(3)}
        substreams["readings/3"] = substream(at - behind - 5 * SECOND, holds=True, caught_up=False)
        substreams["readings/4"] = substream(min(at, NOW - 300 * SECOND), idle=at > NOW - 280 * SECOND)
        wave = math.sin(epoch / 9)
        phases = {"aggregate": 300 + round(90 * wave), "save": 60, "prepare": 110, "decide": 14, "commit": 45}
        dropped = {90: 6, 91: 2}.get(epoch, 0)
        sinks = [SinkReport("results", 900 + round(200 * wave), {"epoch": epoch})]
        sinks += [SinkReport("late", 6, handle)] if epoch == 90 else []
        told = report(epoch, substreams, late=dropped, duration_ms=phases, sinks=sinks, open_windows=9)
        run.history.add(told, at, 24_000 + round(6_000 * wave))
    failed = Run("11aa22bb", "run-2", "orders", NOW - 900 * SECOND)
    failed.history.add(report(4), NOW - 700 * SECOND)
    failed.end(NOW - 600 * SECOND, SinkError('table "orders" refuses a row: value too long for type varchar(20).'))
    found = Runs()
    for each in (run, failed):
        found.add(each)
    return found


def open_there(browser: Browser, page: Page, width: int, *, dark: bool = False) -> None:
    """The page with all that it shows by itself."""
    browser.shows(page.url, width, HEIGHT, dark=dark)
    browser.waits_for("document.querySelectorAll('#members td').length", "members of the grid")
    browser.waits_for("document.querySelectorAll('figure svg').length === 4", "charts")


def take(directory: Path) -> None:
    """Take them: a wide one, and one of a phone that is set to dark."""
    with tempfile.TemporaryDirectory() as place:
        page = Page(runs=runs(Path(place)), clock=ManualClock(NOW))
        try:
            with Browser(Path(place) / "profile") as browser:
                open_there(browser, page, WIDTH)
                browser.picture(directory / "page.png")
                open_there(browser, page, PHONE, dark=True)
                browser.picture(directory / "page-phone.png")
        finally:
            page.stop()


if __name__ == "__main__":
    take(IMAGES)
