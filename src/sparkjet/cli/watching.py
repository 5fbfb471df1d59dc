"""``page`` and ``top``: watch queries, in a browser or a terminal, through their records or a driver's page."""

from __future__ import annotations

import json
import os
import sys
import time
import urllib.request
from collections.abc import Callable, Sequence
from http.client import HTTPException
from pathlib import Path
from typing import Any, TypeVar
from urllib.error import HTTPError
from urllib.parse import quote

import msgspec
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from sparkjet.cli.arguments import printable, show
from sparkjet.cli.homes import home_at
from sparkjet.errors import AnalysisError
from sparkjet.known_types import known
from sparkjet.monitoring import Runs, open_page
from sparkjet.monitoring.open_pages import OpenPage, open_pages
from sparkjet.monitoring.recorded import RecordedRun
from sparkjet.monitoring.view import details, shown
from sparkjet.query_log import without_users
from sparkjet.snapshots import DirectoryStore
from sparkjet.snapshots.record_log import RecordLog, newest_record

LOOK_SECONDS = 1.0
"""Seconds between looks at records, or a page."""
PATIENCE_SECONDS = 10
"""Seconds that a page may take to respond."""
_IN_A_PIPE = 200
"""Line width at which nothing is folded."""
_T = TypeVar("_T")


class _Listed(msgspec.Struct):
    """The fields needed of a run in a page's list."""

    run: str


def serve(
    homes: Sequence[str], host: str, port: int, token: str | None, settings: Sequence[str], *, as_json: bool
) -> int:
    """Serve the page of some homes until Ctrl-C."""
    recorded = [_recorded(home, settings) for home in homes]
    runs = Runs()
    for each in recorded:
        runs.add(each.run)
    page = open_page(host, port, token, runs=runs)
    print(json.dumps({"url": str(page)}) if as_json else f"{page}  (Ctrl-C ends it)", flush=True)
    try:
        while not page.wait(LOOK_SECONDS):
            for each in recorded:
                each.look()
    except KeyboardInterrupt:
        page.stop()
    return 0


def show_open(*, as_json: bool) -> int:
    """Print the addresses of the pages that this user's processes serve on this machine."""
    told = [{"process": page.process, "url": page.url} for page in _opened()]
    show((f"{each['url']}  (process {each['process']})" for each in told), told, as_json=as_json)
    return 0


def _opened() -> list[OpenPage]:
    """The open pages of this user; an error if there are none."""
    found = open_pages()
    if not found:
        message = (
            "No page of this user is open on this machine. Name a HOME (a query's checkpointLocation), or call "
            "query.page() in the driver."
        )
        raise AnalysisError(message)
    return found


def token_of(token: str | None, file: Path | None) -> str | None:
    """The token of a page, given directly or in a file.

    Raises:
        AnalysisError: The file cannot be read.
    """
    if file is None:
        return token
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise AnalysisError(f'--token-file: "{file}" cannot be read: {reason}.') from error


def watch(homes: Sequence[str], settings: Sequence[str], token: str | None, *, once: bool, as_json: bool) -> int:
    """Show queries in the terminal, until Ctrl-C or once."""
    pages = "http://", "https://"
    watched = [_of_page(each, token) if each.startswith(pages) else _of_home(each, settings) for each in homes]
    # Looked up each time: drivers start and end, and one that has ended must not hide the others.
    watched = watched or [lambda: [run for page in _opened() for run in _of_page(page.url)()]]
    if as_json:
        print(json.dumps([run for look in watched for run in look()], indent=2))
        return 0
    console = Console()
    if not console.is_terminal and "COLUMNS" not in os.environ:
        # Readers of a pipe go by lines, which would be folded.
        console = Console(width=_IN_A_PIPE)
    if once:
        console.print(screen([run for look in watched for run in look()]))
        return 0
    try:
        # Live would hold back output to a pipe or a file until Ctrl-C.
        while not console.is_terminal:
            console.print(screen([run for look in watched for run in look()]))
            sys.stdout.flush()
            time.sleep(LOOK_SECONDS)
        with Live(console=console, screen=sys.stdout.isatty(), auto_refresh=False) as live:
            while True:
                live.update(screen([run for look in watched for run in look()]), refresh=True)
                time.sleep(LOOK_SECONDS)
    except KeyboardInterrupt:
        return 0


def screen(runs: Sequence[dict[str, Any]]) -> Group:
    """Runs in full as a terminal shows them: one sentence each, then its substreams and numbers."""
    parts: list[Table | Text] = []
    for run in runs:
        parts.append(Text.assemble((printable(run["name"]), "bold"), f"  {run['state']}"))
        parts.append(Text(printable(run["sentence"]), style="red" if run["state"] == "failed" else "cyan"))
        if run["advice"]:
            parts.append(Text(printable(run["advice"]), style="dim"))
        parts.append(Text(_numbers(run)))
        if run.get("substreams"):
            table = Table("substream", *_COLUMNS, box=None, pad_edge=False)
            for column in table.columns[1:]:
                column.justify = "right"
            for each in run["substreams"]:
                # As text: a name may look like markup.
                table.add_row(Text(printable(each["name"])), *map(Text, _cells(each, run["now"])))
            parts.append(table)
        if run.get("otherSubstreams"):
            parts.append(Text(f"and {run['otherSubstreams']:,} more, idle or less far behind", style="dim"))
        parts.append(Text())
    return Group(*parts)


_COLUMNS = "behind the clock", "", "late rows", "no event time"


def _cells(substream: dict[str, Any], now: int) -> tuple[str, ...]:
    watermark = substream["watermark"]
    held = "is waited for" if substream["holdsWatermark"] else "idle" if substream["idle"] else ""
    if substream["heldBack"] is not None:
        held = f"waits, {shown(substream['heldBack'])} ahead of {printable(substream['heldBy'])}"
    no_watermark = "no rows yet" if substream["holdsWatermark"] else "–"
    behind = no_watermark if watermark is None else shown(now - watermark)
    return behind, held, f"{substream['lateRows']:,}", f"{substream['nullTimestamps']:,}"


def _numbers(run: dict[str, Any]) -> str:
    if run["epoch"] is None:
        return "no epoch yet"
    told = [f"epoch {run['epoch']}", f"late rows {run['lateRows']:,}", f"without event time {run['nullTimestamps']:,}"]
    told.append(f"rows of state {run['snapshot']['entries']:,}")
    if run["durationMs"]:
        told.append("  ".join(f"{phase} {duration} ms" for phase, duration in run["durationMs"].items()))
    if run["unsettled"]:
        told.append(f"transactions not settled {run['unsettled']}")
    return " · ".join(told)


def _recorded(home: str, settings: Sequence[str]) -> RecordedRun:
    directory = home_at(home, "home", settings)
    # Refused now if it is not a home.
    newest_record(directory, "home")
    log = RecordLog(DirectoryStore(directory.below("snapshots")))
    # JSON has no bytes that are not UTF-8, and a path that has its identity no line breaks, nor an end such as "/.".
    label = without_users(os.fsencode(home).decode(errors="replace"))
    run = quote(os.fsencode(without_users(str(directory))))
    recorded = RecordedRun(log, label, time.time_ns() // 1000, run)
    # Only a home in a grid has it.
    recorded.run.grid = getattr(directory, "standing", None)
    recorded.look()
    return recorded


def _of_home(home: str, settings: Sequence[str]) -> Callable[[], list[dict[str, Any]]]:
    recorded = _recorded(home, settings)

    def look() -> list[dict[str, Any]]:
        recorded.look()
        return [details(recorded.run, time.time_ns() // 1000)]

    return look


def _of_page(address: str, given: str | None = None) -> Callable[[], list[dict[str, Any]]]:
    base, _, fragment = address.partition("#")
    base = f"{base.partition('?')[0].rstrip('/')}/"
    token = fragment.partition("token=")[2] or _noted(base) or given
    # No proxy from the environment: it would get the token, even if the page is on this machine.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def get(path: str, kind: type[_T]) -> _T:
        try:
            request = urllib.request.Request(base + path)  # noqa: S310 - what the user has given
            if token:
                # Not for redirects, which may lead to another host.
                request.add_unredirected_header("Authorization", f"Bearer {token}")
            with opener.open(request, timeout=PATIENCE_SECONDS) as answer:
                return msgspec.json.decode(answer.read(), type=known(kind))
        except (OSError, HTTPException, ValueError, msgspec.DecodeError) as error:
            if isinstance(error, HTTPError):
                # Responses too, as they hold the connection.
                error.close()
            message = (
                f"{base} does not answer as the page of a driver does: {error}. Give what query.page() prints, or "
                "--token-file."
            )
            raise AnalysisError(message) from error

    return lambda: [get(f"runs/{quote(each.run)}?points=no", dict[str, Any]) for each in get("runs", list[_Listed])]


def _noted(address: str) -> str | None:
    """The token of the page that has noted exactly this address: another user may listen at a similar one."""
    return next((page.token for page in open_pages() if page.address == address), None)
