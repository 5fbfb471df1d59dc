"""The query whose homes are kept: its feed, its outputs, and what they must hold in the end, computed in plain Python.

It has as much state as a record can hold. Three inputs with a policy each are united, and one pass over them makes
sliding windows with early rows, late rows, and sessions. Every version must be able to go on from homes of older ones,
so this query must never change.
"""

from __future__ import annotations

import json
import os
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import sparkjet as sj

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

    from sparkjet.api.writer import StreamWriter

BATCHES = 8
"""Files of each input."""
RECORDED = 6
"""How many of them a kept home has read, at most."""
SECOND = 1_000_000
START = 1_700_000_000 * SECOND // (60 * SECOND) * 60 * SECOND
PAUSE = 45 * SECOND
"""Processing time between two batches."""
SIZE, SLIDE, GAP = 60, 20, 15
INPUTS = {"till": "1/till/", "web": "1/web/", "app": "app/"}
"""Prefix of the substreams of each input, as two unions make it."""
GONE = "1/till/gone"
"""The substream that is retired after the first batch."""
QUIET = "1/till/quiet"
"""The substream that is idle when the home is kept."""

Event = dict[str, Any]


def feed(name: str, batch: int) -> list[Event]:
    """Rows of one file; ``time`` is in seconds from the start, and ``late`` says what must become of the row."""
    substreams = {"till": ["a", "b"], "web": ["c"], "app": ["d", "e"]}[name]
    if name == "till" and batch in {0, BATCHES - 1}:
        substreams = [*substreams, "quiet", "gone"]
    events = [
        {"sub": sub, "user": f"u{(batch + place) % 3}", "time": 60 * batch + second, "cents": 7 * second + place}
        for place, sub in enumerate(substreams)
        for second in (3 + 5 * place, 11 + 5 * place, 40, 58)
    ]
    if batch >= 3:
        events.append({"sub": substreams[0], "user": "u1", "time": -3600 + batch, "cents": batch, "late": "late"})
    if batch % 4 == 1:
        events.append({"sub": substreams[-1], "user": "u2", "time": None, "cents": 1, "late": "null_timestamp"})
    return events


def events() -> Iterator[tuple[str, Event]]:
    """All rows of all inputs."""
    for name in INPUTS:
        for batch in range(BATCHES):
            yield from ((name, event) for event in feed(name, batch))


def arrive(root: Path, batches: range) -> None:
    """Write the files of some batches; those of one batch are read together."""
    for name in INPUTS:
        folder = root / "feed" / name
        folder.mkdir(parents=True, exist_ok=True)
        for batch in batches:
            # Under another name first: a running query must never see half a file.
            hidden, file = folder / f".{batch}.json", folder / f"{batch}.json"
            rows = [
                {**event, "ts": None if event["time"] is None else START + event["time"] * SECOND}
                for event in feed(name, batch)
            ]
            hidden.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
            os.utime(hidden, (1_600_000_000 + batch,) * 2)
            hidden.rename(file)


def outputs(spark: SparkSession, root: Path, clock: sj.Clock) -> list[StreamWriter]:
    """The results on their way to files, up to the trigger."""
    from pyspark.sql import functions as F

    def read(name: str, policy: Any, **settings: Any) -> sj.Stream:
        source = spark.readStream.schema("sub string, user string, ts long, cents long")
        rows = source.option("maxFilesPerTrigger", 1).json(f"file:{root}/feed/{name}")
        timed = sj.stream(rows.withColumn("ts", F.timestamp_micros("ts")))
        return timed.withWatermark("ts", policy, by="sub", **settings).alias(name)

    till = read("till", "10 seconds", substreams=["a", "b", "quiet", "gone"], idleTimeout="60 seconds")
    web = read("web", sj.limiting_lag_and_delay("10 seconds", "30 seconds"), discover="1 second")
    app = read("app", sj.limiting_lag_and_lull("10 seconds", "1 hour"), substreams=["d", "e"])
    united = till.union(web).union(app)
    sums = [F.count("*").alias("rows"), F.sum("cents").alias("cents")]
    sliding = united.groupBy(sj.window("ts", f"{SIZE} seconds", f"{SLIDE} seconds"), "user").agg(*sums)
    sessions = united.groupBy(sj.session_window("ts", f"{GAP} seconds"), "user").agg(*sums)
    first = sliding.writeStream.outputMode("update").options(earlyResultsPeriod="30 seconds", isEarly=True).clock(clock)
    first = first.option("checkpointLocation", root / "home").option("lateRowsPath", root / "late")
    return [
        first.format("files").option("fileFormat", "json").option("path", root / "sliding"),
        sessions.writeStream.format("files").option("fileFormat", "json").option("path", root / "sessions"),
    ]


def expected() -> dict[str, Counter[tuple[Any, ...]]]:
    """The rows of each output, times in seconds from the start."""
    accepted = [event for _, event in events() if "late" not in event]
    windows: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    by_user: dict[str, list[Event]] = defaultdict(list)
    for event in accepted:
        first = event["time"] // SLIDE * SLIDE + SLIDE
        for end in range(first, first + SIZE, SLIDE):
            windows[end - SIZE, end, event["user"]].append(event["cents"])
        by_user[event["user"]].append(event)
    sessions = Counter(
        (part[0]["time"], part[-1]["time"] + GAP, user, len(part), sum(event["cents"] for event in part))
        for user, own in by_user.items()
        for part in _parts(sorted(own, key=lambda event: event["time"]))
    )
    late = Counter(
        (INPUTS[name] + event["sub"], event["user"], event["time"], event["cents"], event["late"])
        for name, event in events()
        if "late" in event
    )
    return {
        "sliding": Counter((*window, len(cents), sum(cents)) for window, cents in windows.items()),
        "sessions": sessions,
        "late": late,
    }


def found(spark: SparkSession, root: Path) -> dict[str, Counter[tuple[Any, ...]]]:
    """The same, as readers find it."""

    def span(row: Row, window: str) -> tuple[int, int]:
        return _seconds(row[window]["start"]), _seconds(row[window]["end"])

    sliding = [row for row in sj.read_files(str(root / "sliding")).collect() if not row["is_early"]]
    sessions = sj.read_files(str(root / "sessions")).collect()
    late = sj.read_files(str(root / "late")).collect()
    return {
        "sliding": Counter((*span(row, "window"), row["user"], row["rows"], row["cents"]) for row in sliding),
        "sessions": Counter((*span(row, "session_window"), row["user"], row["rows"], row["cents"]) for row in sessions),
        "late": Counter(
            (row["_substream"], row["user"], row["ts"] and _seconds(row["ts"]), row["cents"], row["_reason"])
            for row in late
        ),
    }


def _parts(events: list[Event]) -> list[list[Event]]:
    parts: list[list[Event]] = []
    for event in events:
        if not parts or event["time"] - parts[-1][-1]["time"] >= GAP:
            parts.append([])
        parts[-1].append(event)
    return parts


def _seconds(time: Any) -> int:
    return round(time.timestamp()) - START // SECOND
