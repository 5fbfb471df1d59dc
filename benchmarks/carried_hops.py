"""Event to final result over two queries in a row: the second has its own lag, or the first one's watermark.

    python -m benchmarks.carried_hops SECONDS

The first counts 5-second windows of events that come up to 2 seconds late, into files; the second adds these up to
10-second windows. Printed is how long after its end a window of the second is final, of those that are.
"""

from __future__ import annotations

import json
import random
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

import sparkjet as sj
from benchmarks.local import local_session
from sparkjet.time import MIN, SubstreamTracker

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

    from sparkjet.time import PolicySettings

LAG = "2 seconds"
TRIGGER = "500 milliseconds"


def by_policies(policy: PolicySettings) -> list[float]:
    """The same with the policies alone, epochs of half a second, and a machine that takes no time."""
    chance, second = random.Random(7), 1_000_000  # noqa: S311 - no secret
    one, two = SubstreamTracker(sj.limiting_lag(LAG)), SubstreamTracker(policy)
    one.add("", 0)
    two.add("", 0)
    closed, told = 0, MIN
    results: list[int] = []
    final: dict[int, int] = {}
    for now in range(second // 2, 200 * second, second // 2):
        # What the first has published in the epoch before.
        if results:
            two.report("", max(results), now)
        two.carry("", told, now)
        two.advance(now)
        for end in range(20 * second, two.watermark + 1, 10 * second):
            final.setdefault(end, now - end)
        one.report("", max(now - round(chance.uniform(0, 2) * second) for _ in range(25)), now)
        one.advance(now)
        ends = range(closed + 5 * second, one.watermark + 1, 5 * second)
        closed, results, told = max(ends, default=closed), [end - 1 for end in ends], one.watermark
    return [time / second for time in final.values()]


def feed(place: Path, stop: threading.Event) -> None:
    """Write a file of events every half second; they are up to two seconds old."""
    chance, number = random.Random(7), 0  # noqa: S311 - no secret
    while not stop.wait(0.5):
        rows = [{"ts": time.time() - chance.uniform(0, 2), "k": chance.choice("abc")} for _ in range(50)]
        temporary = place / f".{number}.json"
        temporary.write_text("\n".join(map(json.dumps, rows)))
        temporary.rename(place / f"{number}.json")
        number += 1


def hops(spark: SparkSession, home: Path, policy: Any, seconds: float) -> list[float]:
    """How long after its end each window of the second query was final, in seconds."""
    (home / "in").mkdir(parents=True)
    stop = threading.Event()
    feeder = threading.Thread(target=feed, args=(home / "in", stop))
    feeder.start()
    events = spark.readStream.schema("ts double, k string").json(str(home / "in"))
    events = events.select(F.col("ts").cast("timestamp").alias("ts"), "k")
    first = sj.stream(events).withWatermark("ts", LAG).groupBy(sj.window("ts", "5 seconds"), "k").count()
    results = first.select(F.expr("window.end - INTERVAL 1 MICROSECOND AS ts"), "k", "count")
    writer = results.writeStream.format("files").option("path", home / "between").option("progressInterval", "1s")
    one = writer.option("checkpointLocation", home / "one").trigger(processingTime=TRIGGER).start()
    while sj.complete_until(home / "between").until is None:
        time.sleep(0.1)
    found: list[float] = []
    started = float("inf")

    def final(rows: DataFrame, _: int) -> None:
        now = time.time()
        # What ended before the second query ran waited for its start.
        found.extend(now - row["end"] for row in rows.collect() if row["end"] > started)

    between = spark.readStream.format("sparkjet-files").load(str(home / "between"))
    second = sj.stream(between).withWatermark("ts", policy).groupBy(sj.window("ts", "10 seconds")).agg(F.sum("count"))
    ends = second.select(F.col("window.end").cast("double").alias("end"))
    writer = ends.writeStream.foreachBatch(final).option("checkpointLocation", home / "two")
    two = writer.trigger(processingTime=TRIGGER).start()
    while not two.lastProgress:
        time.sleep(0.1)
    started = time.time()
    time.sleep(seconds)
    stop.set()
    feeder.join()
    for query in (two, one):
        query.stop()
    return found


def main(seconds: float) -> None:
    """By the policies, then both queries in turn, twice."""
    policies: dict[str, PolicySettings] = {"carried": sj.carried(), f"lag of {LAG}": sj.limiting_lag(LAG)}
    for name, policy in policies.items():
        show(f"{name}, by the policies", by_policies(policy))
    spark = local_session(memory="1g", settings={"spark.sql.shuffle.partitions": "2"})
    sj.register_sources(spark)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place:
        for turn in range(2):
            for name, policy in policies.items():
                show(name, hops(spark, Path(place) / f"{name}-{turn}".replace(" ", "-"), policy, seconds))


def show(name: str, times: Sequence[float]) -> None:
    """Print how long windows took."""
    shown = f", median {statistics.median(times):.1f} s, {min(times):.1f} to {max(times):.1f} s" if times else ""
    print(f"{name}: {len(times)} windows{shown}", flush=True)


if __name__ == "__main__":
    main(float(sys.argv[1]))
