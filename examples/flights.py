"""A year of flights through sliding windows: skewed feeds, a killed driver, every row exactly once.

    make run            or: .venv/bin/python examples/flights.py [--small] [--directory DIR]

The three airports of New York deliver their departures of 2013, each at its own pace: LGA is twelve hours behind.
A query (`flights_query.py`, the part to read first) computes for each airport and airline, over the last hour and
every ten minutes, the number of departures and the mean, worst and p95 delay, into Parquet files. Half-way its driver
is killed, Python and JVM, in the middle of an epoch, and another one continues. At the end DuckDB computes the same
from the same files without a stream, and the two are compared row by row.

In parallel the same feed runs, with the same delay, under Spark's own `withWatermark`. It has one watermark for all
three: where a micro-batch is shorter than LGA's lag, LGA's flights are late and dropped. Most of
the year comes as a backlog in coarse files, so this affects the last six days, which arrive live.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

# Started as a file, Python looks for modules in the file's directory only.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

try:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
    from rich.table import Table

    from examples.flights_check import Verdict, check
    from examples.flights_control import DriverError, Places, Report, never, run
    from examples.flights_feed import AIRPORTS, LGA_BEHIND, TWO_DAYS, WHOLE_YEAR, NoFlightsError, Slices, write_feed
    from examples.flights_query import LAG
except ModuleNotFoundError as missing:
    sys.exit(f"flights: the package {missing.name} is not installed. Run `make setup`, which needs a network.")


def main() -> int:
    """Run the job; the exit status is 0 if every check passed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--small", action="store_true", help="two days instead of a year")
    parser.add_argument("--directory", type=Path, help="work in this new directory and keep it")
    parser.add_argument("--keep", action="store_true", help="keep the temporary directory")
    options = parser.parse_args()
    console = Console()
    try:
        root = (options.directory or Path(tempfile.mkdtemp(prefix="sparkjet-flights-"))).absolute()
        root.mkdir(parents=True, exist_ok=options.directory is None)
    except OSError as error:
        complain(f"flights: --directory {options.directory}: {error.strerror}. Name a new directory.")
        return 2
    good = False
    try:
        good = job(Places(root), TWO_DAYS if options.small else WHOLE_YEAR, console)
    except (NoFlightsError, DriverError) as error:
        complain(f"flights: {error}")
    except KeyboardInterrupt:
        complain("flights: stopped.")
    # A failed run is kept for inspection, unless nothing has been written.
    if options.directory is not None or options.keep or (not good and any(root.iterdir())):
        console.print(f"Everything is in {root}", soft_wrap=True)
    else:
        shutil.rmtree(root, ignore_errors=True)
    return 0 if good else 1


def complain(text: str) -> None:
    """Print an error verbatim: no markup, no wrapping in the middle of a path."""
    Console(stderr=True).print(text, style="red", markup=False, highlight=False, soft_wrap=True)


def job(places: Places, slices: Slices, console: Console) -> bool:
    """The whole job; whether every check passed."""
    began = time.monotonic()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[note]}"))
    with Progress(*columns, TimeElapsedColumn(), console=console) as progress:
        feed = progress.add_task("Feed", total=None, note="being written")
        write_feed(places.feed, slices)
        behind = f"LGA {LGA_BEHIND // timedelta(hours=1)} hours behind"
        progress.update(feed, total=slices.files, completed=slices.files, note=behind)

        def doomed(phase: str, epoch: int, kills: int) -> bool:
            # At its end the epoch's files are written, and nothing is decided yet.
            return kills == 0 and phase == "prepare" and epoch >= slices.files // 2

        ours = bar(progress, "sparkjet", slices.files)
        theirs = bar(progress, "Spark's own withWatermark", slices.files)
        with ThreadPoolExecutor(1) as beside:
            other = beside.submit(run, "spark", places, theirs, never)
            _, kills = run("sparkjet", places, ours, doomed)
            counted = other.result()[0].counts

        comparing = progress.add_task("Comparison with DuckDB", total=1, note="row by row")
        verdict = check(places.feed, places.out, places.late, LAG)
        progress.update(comparing, completed=1)

    problems = [*verdict.problems]
    if kills != 1:
        problems.append(f"the driver should have been killed once, and was killed {kills} times")
    console.print(results(verdict, kills), airports(verdict, counted))
    for problem in problems:
        complain(f"✗ {problem}")
    if not problems:
        console.print(f"✓ All as it must be, in {time.monotonic() - began:.0f} seconds.", style="green")
    return not problems


def bar(progress: Progress, name: str, files: int) -> Report:
    """A progress bar over the micro-batches of a query, as a listener to its phases."""
    task = progress.add_task(name, total=files, note="")
    killed_in: list[int] = []

    def report(phase: str, epoch: int) -> None:
        if phase == "killed":
            killed_in.append(epoch)
            progress.update(task, note=f"[red]driver killed in epoch {epoch}, starting another")
        elif phase == "started" and not killed_in:
            progress.update(task, note="starting Spark")
        elif phase == "finished":
            progress.update(task, completed=files)
        elif phase == "commit":
            # The epoch that closes the last windows comes after the last file.
            note = f"killed in epoch {killed_in[-1]}, restarted" if killed_in else ""
            progress.update(task, completed=min(epoch, files), note=note)

    return report


def results(verdict: Verdict, kills: int) -> Table:
    """The outcome of the comparison."""
    table = Table("Sliding windows of an hour by ten minutes", "", title="Results")
    table.columns[1].justify = "right"
    table.add_row("driver killed (SIGKILL to Python and JVM) and started again", f"{kills} ×")
    table.add_row("result rows", f"{verdict.rows:,}")
    table.add_row("equal to DuckDB's batch computation over the accepted flights", f"{verdict.equal:,}")
    table.add_row("duplicates", f"{verdict.duplicates:,}")
    table.add_row("lost", f"{verdict.lost:,}")
    return table


def airports(verdict: Verdict, counted: dict[str, int]) -> Table:
    """Where the flights of each airport went."""
    delivered, cancelled, late = verdict.delivered, verdict.cancelled, verdict.late
    table = Table("Flights", *AIRPORTS, "all", title="What happened to the flights")
    for column in table.columns[1:]:
        column.justify = "right"
    for name, numbers in {
        "in the feed": delivered,
        "cancelled, so without event time": cancelled,
        "late, so delivered to lateRowsPath": late,
        "accepted, so in the results": {a: delivered[a] - cancelled[a] - late[a] for a in AIRPORTS},
        "lost by Spark's own withWatermark": {a: delivered[a] - cancelled[a] - counted.get(a, 0) for a in AIRPORTS},
    }.items():
        table.add_row(name, *(f"{numbers[airport]:,}" for airport in AIRPORTS), f"{sum(numbers.values()):,}")
    return table


if __name__ == "__main__":
    sys.exit(main())
