"""MK: an epoch that changes 10,000 keys of a rolling aggregate of 20 million, by one of a million, and its restart.

``python -m benchmarks.many_keys [KEYS]``. Both sizes take turns in one warm driver, with the operator alone, as in T18.
Then the larger state is stored, and read back as a restart does it: until all of it is partitioned and held in memory.
``--growth`` draws the time of an epoch for one to ten million keys instead.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path

import matplotlib as mpl

from benchmarks.local import local_session
from benchmarks.ratio import RESULTS, Ratio, save
from benchmarks.rolling import Feed
from benchmarks.studies import main
from benchmarks.touched import PARTITIONS, seconds_of_epochs, touched
from benchmarks.work import Goal
from sparkjet.engine.context import configure
from sparkjet.state.partitions import release
from sparkjet.state.segments import to_store

mpl.use("Agg")

from matplotlib import pyplot as plt

FEW, MANY = 1_000_000, 20_000_000
CHANGED = 10_000
ROUNDS = 3
RATE = 100
"""Megabytes of a stored state in a second."""
GROWTH = (1_000_000, 2_000_000, 5_000_000, 10_000_000)


def study() -> list[Ratio]:
    """Two ratios: an epoch with few keys by one with many, and the rate of a restart; none of the growth."""
    # Not held in four gigabytes: Spark would move what has no room to the disk.
    session = local_session(memory="10g")
    apart = session.newSession()
    configure(apart, PARTITIONS)
    if sys.argv[1:] == ["--growth"]:
        grown = seconds_of_epochs("keys", lambda size: Feed(apart, size, CHANGED), GROWTH)
        draw({size: statistics.median(seconds) for size, seconds in grown.items()})
        session.stop()
        return []
    many = int(sys.argv[1]) if sys.argv[1:] else MANY
    feeds: dict[int, Feed] = {}

    def feed_of(size: int) -> Feed:
        return feeds.setdefault(size, Feed(apart, size, CHANGED))

    ratios = [touched("MK-touched", "keys", feed_of, (FEW, many), CHANGED), restarted(feeds[many])]
    session.stop()
    return ratios


def restarted(feed: Feed) -> Ratio:
    """The rate at which the oldest segment is read, in megabytes of its files."""
    (segment, *_), megabytes = feed.operator.segments, 1e6
    seconds = []
    with tempfile.TemporaryDirectory(prefix="sparkjet-many-keys-") as home:
        to_store(segment.partials).write.parquet(f"{home}/delta")
        size = sum(each.stat().st_size for each in Path(home).rglob("*.parquet")) / megabytes
        for _ in range(ROUNDS):
            started = time.perf_counter()
            loaded = feed.operator.partitioned(feed.session.read.parquet(f"{home}/delta"))
            loaded.count()
            seconds.append(time.perf_counter() - started)
            release(loaded)
            print(f"restart: {size:.0f} MB in {seconds[-1]:.2f} s", file=sys.stderr)
    what = f"a restart with {segment.statistics.rows:,} keys, {size / statistics.median(seconds):.0f} MB/s"
    return Ratio.of_seconds("MK-restart", what, Goal(f"{RATE} MB/s", 1.0), seconds, [size / RATE] * ROUNDS)


def draw(seconds: dict[int, float]) -> None:
    """Save the time of an epoch by the number of keys, as figures and as a picture."""
    save(seconds, RESULTS / "keys.json")
    figure, axes = plt.subplots(figsize=(6, 3.5), layout="constrained")
    axes.plot([size / 1e6 for size in seconds], list(seconds.values()), "o-")
    axes.set_xlabel("million keys")
    axes.set_ylabel("seconds")
    axes.set_ylim(bottom=0)
    axes.set_title(f"An epoch that changes {CHANGED:,} keys of a rolling aggregate")
    figure.savefig(RESULTS / "keys.png", dpi=110)
    plt.close(figure)


if __name__ == "__main__":
    main(study)
