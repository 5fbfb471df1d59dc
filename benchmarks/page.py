"""What the page costs a query: its share of processor time, by thread, with a page open and metrics scraped.

``python -m benchmarks.page [SUBSTREAMS]``: a query over files, with windows by substream; the page's thread, and what
feeds it in the query's own thread, against all threads of the driver, its JVM and its workers.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import sparkjet as sj
from sparkjet.monitoring.feeding import Feed

FILES, ROWS = 40, 20_000
WARM_UP = 8
GOAL = 0.01
_TICKS = os.sysconf("SC_CLK_TCK")
_READER = """
import sys, threading, time, urllib.request
address, _, token = sys.argv[1].partition("#token=")

def asked(path):
    return urllib.request.urlopen(urllib.request.Request(address + path, headers={"Authorization": f"Bearer {token}"}))

def scrape():
    while True:
        with asked("metrics") as answer:
            answer.read()
        time.sleep(15)

threading.Thread(target=scrape, daemon=True).start()
with asked("events") as events:
    for line in events:
        pass
"""


def seconds(task: str) -> float:
    """Processor time of a process or thread below ``/proc``; 0 if it has ended."""
    try:
        fields = Path(f"/proc/{task}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return (int(fields[11]) + int(fields[12])) / _TICKS


def family(process: int) -> list[int]:
    """A process and all that it has started, directly or not."""
    found = [process]
    for each in found:
        for children in Path(f"/proc/{each}/task").glob("*/children"):
            found += map(int, children.read_text(encoding="utf-8").split())
    return found


def feed(place: Path, substreams: int) -> None:
    """Write the files, each with some seconds of all substreams."""
    for number in range(FILES):
        rows = (
            {"ts": 1_767_225_600 + number * 5 + row % 5, "s": row % substreams, "v": row % 97} for row in range(ROWS)
        )
        (place / f"{number:03}.json").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")


def main(substreams: int) -> int:
    """Run the query twice as long as its warm-up, and print the share; returns 1 if it is above the goal."""
    fed = [0.0, 0]
    post = Feed.post

    def timed(self: Feed, report: object) -> None:
        began = time.thread_time()
        post(self, report)  # type: ignore[arg-type]
        fed[0] += time.thread_time() - began
        fed[1] += 1

    Feed.post = timed  # type: ignore[method-assign]
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.sql.session.timeZone", "UTC").getOrCreate()
    with tempfile.TemporaryDirectory() as place:
        home = Path(place)
        (home / "in").mkdir()
        feed(home / "in", substreams)
        source = spark.readStream.schema("ts long, s int, v long").option("maxFilesPerTrigger", 1)
        rows = source.json(str(home / "in")).select(F.timestamp_seconds("ts").alias("ts"), "s", "v")
        windows = sj.stream(rows).withWatermark("ts", "10 seconds", by="s").groupBy(sj.window("ts", "20 seconds"), "s")
        counts = windows.agg(F.count("*").alias("n"), F.sum("v").alias("total"))
        warm = threading.Event()

        def ended(_: sj.EpochPhase, epoch: int) -> None:
            if epoch > WARM_UP:
                warm.set()

        writer = counts.writeStream.format("files").option("path", home / "out").onEpochPhase(ended)
        query = writer.option("checkpointLocation", home / "checkpoint").start()
        page = query.page()
        thread = next(each for each in threading.enumerate() if each.name == "sparkjet-page")
        reader = subprocess.Popen([sys.executable, "-c", _READER, page.url])
        try:
            warm.wait()
            own, others = f"self/task/{thread.native_id}", [each for each in family(os.getpid()) if each != reader.pid]
            page_before, all_before = seconds(own), {each: seconds(str(each)) for each in others}
            fed[:] = [0.0, 0]
            query.processAllAvailable()
            served = seconds(own) - page_before
            others = [each for each in family(os.getpid()) if each != reader.pid]
            total = sum(seconds(str(each)) - all_before.get(each, 0.0) for each in others)
        finally:
            reader.kill()
            reader.wait()
            query.stop()
            page.stop()
    share = (served + fed[0]) / total
    print(
        f"{substreams} substreams, {fed[1]} epochs: the page's thread {served:.2f} s, feeding it {fed[0]:.3f} s, of "
        f"{total:.1f} s of processor time: {100 * share:.2f} % (goal {100 * GOAL:.0f} %)"
    )
    return int(share > GOAL)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 20))
