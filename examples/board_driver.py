"""A driver of the board: the process that runs both queries, and gets killed.

    python -m examples.board_driver board <directory>

The directory has the feed, the grid's token, and `grid.txt` with the addresses of members. It reports as JSON on its
standard output, one line per phase of the first query; `flights_control.py` reads it.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import sparkjet as sj
from examples.board_queries import TEN_MINUTES, per_hour, per_ten_minutes
from examples.flights_control import Places
from examples.flights_driver import say
from examples.session import local_session
from sparkjet_grid.journal_reader import Journal


def main(root: Path) -> None:
    """Run both queries until the feed is used up."""
    places, grid, token = Places(root), (root / "grid.txt").read_text(), root / "token"
    spark = local_session(root, "board")
    assert spark._jvm is not None  # noqa: S101 - it has just been started
    say(jvm=spark._jvm.java.lang.ProcessHandle.current().pid())
    spark.conf.set("spark.sparkjet.grid.tokenFile", str(token))
    sj.register_sources(spark)

    writer = per_ten_minutes(spark, places.feed, grid, places.late).option("closeWindowsAtEnd", True)
    writer = writer.option("checkpointLocation", places.checkpoint("ten-minutes")).trigger(availableNow=True)
    first = writer.onEpochPhase(lambda phase, epoch: say(phase=phase.value, epoch=epoch)).start()
    await_journal(grid, token, first)
    home = places.checkpoint("board")
    second = per_hour(spark, grid, token).option("checkpointLocation", home).start()
    first.awaitTermination()
    second.processAllAvailable()
    second.stop()
    # Once more, to close what is still open: the first query has ended.
    last = per_hour(spark, grid, token).option("checkpointLocation", home).option("closeWindowsAtEnd", True)
    last.trigger(availableNow=True).start().awaitTermination()
    spark.stop()


def await_journal(grid: str, token: Path, writer: sj.StreamingQuery) -> None:
    """Wait for the first epoch of the first query: then the journal has columns."""
    with Journal(grid, TEN_MINUTES, token_file=str(token)) as journal:
        while True:
            try:
                journal.latest()
            except sj.AnalysisError:
                if writer.exception() is not None:
                    # Of a query that has failed no journal comes; this raises what it has failed with.
                    writer.awaitTermination()
                time.sleep(0.5)
            else:
                return


if __name__ == "__main__":
    main(Path(sys.argv[2]))
