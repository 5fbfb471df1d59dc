"""Departures on a board: two queries joined by a journal, and a map that a terminal reads while things are killed.

    make board          or: .venv/bin/python examples/board.py [--year] [--directory DIR]

The queries (`board_queries.py`, the part to read first) run over the feed of `make run`: the first counts departures
of each airport in ten minutes and appends them to a journal of the grid; the second makes hours of them, every ten
minutes, and keeps them in a map. It has the first one's watermark, so nobody had to guess a lag for it. This process,
without Spark, reads the map into a live table, a whole epoch at a time. In the middle a member of the grid is killed,
and then the driver. At the end DuckDB computes the same from the files of the feed.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

# Started as a file, Python looks for modules in the file's directory only.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

try:
    import pyarrow as pa
    from rich.console import Console
    from rich.live import Live
    from rich.table import Table

    from examples.board_check import differences
    from examples.board_queries import BOARD
    from examples.flights_control import DriverError, Places, run
    from examples.flights_feed import TWO_DAYS, WHOLE_YEAR, NoFlightsError, Slices, write_feed
    from sparkjet_grid.errors import AnalysisError, StorageError
    from sparkjet_grid.map_reader import Map
    from tests.grid.processes import GridProcesses
except ModuleNotFoundError as missing:
    sys.exit(f"board: the package {missing.name} is not installed. Run `make setup`, which needs a network.")


def main() -> int:
    """Run the job; the exit status is 0 if every check passed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--year", action="store_true", help="a year instead of two days")
    parser.add_argument("--directory", type=Path, help="work in this new directory and keep it")
    options = parser.parse_args()
    console = Console()
    root = (options.directory or Path(tempfile.mkdtemp(prefix="sparkjet-board-"))).absolute()
    root.mkdir(parents=True, exist_ok=options.directory is None)
    good = False
    try:
        good = job(root, WHOLE_YEAR if options.year else TWO_DAYS, console)
    except (NoFlightsError, DriverError) as error:
        console.print(f"board: {error}", style="red", markup=False, soft_wrap=True)
    if options.directory is not None or not good:
        console.print(f"Everything is in {root}", soft_wrap=True)
    else:
        shutil.rmtree(root, ignore_errors=True)
    return 0 if good else 1


def job(root: Path, slices: Slices, console: Console) -> bool:
    """The whole job; whether every check passed."""
    began, places = time.monotonic(), Places(root)
    write_feed(places.feed, slices)
    with GridProcesses(root) as grid:
        address = f"grid://{','.join(member.address for member in grid.members)}"
        (root / "grid.txt").write_text(address)
        board = Board(address, root / "token")
        happened: list[str] = []

        def doomed(phase: str, epoch: int, kills: int) -> bool:
            if phase == "prepare" and epoch == slices.files // 2 and not happened:
                grid.members[-1].kill()
                happened.append(f"member killed in epoch {epoch}")
            # After that epoch, and before the decision of one that is computed again then.
            return kills == 0 and phase == "prepare" and epoch > slices.files // 2

        def report(phase: str, epoch: int) -> None:
            if phase == "killed":
                happened.append(f"driver killed in epoch {epoch}")
            board.told = f"epoch {epoch} of the first query: {phase}. {', '.join(happened)}"

        with ThreadPoolExecutor(1) as beside, Live(console=console, refresh_per_second=2) as live:
            running = beside.submit(run, "board", places, report, doomed, "examples.board_driver")
            while not running.done():
                live.update(board.table())
                time.sleep(0.5)
            _, kills = running.result()
            live.update(board.table())
        rows = board.rows()
    problems = differences(places.feed, places.late, rows)
    if (kills, len(happened)) != (1, 2):
        problems.append(f"a member and a driver should have been killed, and {happened} happened")
    for problem in problems:
        console.print(f"✗ {problem}", style="red", markup=False)
    if not problems:
        seconds = time.monotonic() - began
        console.print(f"✓ {rows.num_rows} rows, each once and as DuckDB has it: {seconds:.0f} seconds.", style="green")
    return not problems


class Board:
    """What the terminal shows of the map."""

    def __init__(self, address: str, token: Path) -> None:
        self._map = Map(address, BOARD, token_file=str(token))
        self._shown: pa.Table | None = None
        self.told = "starting Spark"

    def rows(self) -> pa.Table:
        """All rows, of one epoch."""
        return self._map.scan().read_all()

    def table(self) -> Table:
        """The newest hour of each airport, as the map has it now; as before where it cannot be read at the moment."""
        # Not begun yet, or a member is just being replaced.
        with contextlib.suppress(AnalysisError, StorageError):
            self._shown = self.rows()
        table = Table("Airport", "Hour from (UTC)", "Departures", "Mean delay", title="Departures", caption=self.told)
        newest: dict[str, dict[str, object]] = {}
        for row in [] if self._shown is None else self._shown.sort_by("since").to_pylist():
            newest[row["origin"]] = row
        for origin, row in sorted(newest.items()):
            mean = int(str(row["delay"])) / int(str(row["departures"]))
            table.add_row(origin, f"{row['since']:%Y-%m-%d %H:%M}", str(row["departures"]), f"{mean:.1f} minutes")
        return table


if __name__ == "__main__":
    sys.exit(main())
