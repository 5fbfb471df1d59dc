"""The other query whose homes are kept, since format 4: operators that are not windows, each with state.

Orders and payments of two streams are joined. Over the orders go first rows, rolling sums, a function with a timeout
and a processor with timers and variables of every kind. Every version must be able to go on from homes of older ones,
so this query must never change.
"""

from __future__ import annotations

import json
import os
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
from pyspark.sql.streaming import StatefulProcessor
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout

import sparkjet as sj
from tests.snapshots.homes.shops import BATCHES, SECOND, START

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sparkjet.api.writer import StreamWriter

BATCH = 60
"""Seconds of event time in a batch."""
PERIOD = 90
"""Seconds in which a payment may follow its order, and after which a user's visit has ended."""

Event = dict[str, Any]


def order(number: int) -> Event:
    """An order; three are of each batch."""
    batch, place = divmod(number, 3)
    user = ("ada", "bob", "eve" if batch % 5 == 0 else "ada")[place]
    return {"id": number, "user": user, "time": BATCH * batch + 5 + 20 * place}


def orders(batch: int) -> list[Event]:
    """Those of a batch, and the last one of the batch before once more; times are in seconds from the start."""
    return [order(number) for number in range(3 * batch - (batch > 0), 3 * batch + 3)]


def payments(batch: int) -> list[Event]:
    """Of the orders of a batch the first is paid at once, the second in the next batch, the third not at all."""
    found = [{"paid": 3 * batch, "time": BATCH * batch + 6}]
    if batch:
        found.append({"paid": 3 * batch - 2, "time": BATCH * batch + 7})
    return found


FEEDS: dict[str, Callable[[int], list[Event]]] = {"orders": orders, "payments": payments}


def arrive(root: Path, batches: range) -> None:
    """Write the files of some batches; those of one batch are read together."""
    for name, feed in FEEDS.items():
        folder = root / "feed" / name
        folder.mkdir(parents=True, exist_ok=True)
        for batch in batches:
            # Under another name first: a running query must never see half a file.
            hidden, file = folder / f".{batch}.json", folder / f"{batch}.json"
            rows = [{**event, "ts": START + event["time"] * SECOND} for event in feed(batch)]
            hidden.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
            os.utime(hidden, (1_600_000_000 + batch,) * 2)
            hidden.rename(file)


def visited(key: tuple[Any, ...], frames: Iterator[pd.DataFrame], state: GroupState) -> Iterator[pd.DataFrame]:
    """Emits the orders of a user when there has been none for a while."""
    if state.hasTimedOut:
        yield pd.DataFrame({"user": [key[0]], "orders": [state.get[0]], "last": [state.get[1]]})
        state.remove()
        return
    count, last = state.getOption or (0, 0)
    for frame in frames:
        count, last = count + len(frame), max(last, int(frame["second"].max()))
    state.update((count, last))
    state.setTimeoutTimestamp(1_000 * (START // SECOND + last + PERIOD))


class Basket(StatefulProcessor):
    """Holds the orders of a user in a list, counts them in a map and a value, and emits all a minute later."""

    def init(self, handle: Any) -> None:
        """Declare a variable of every kind."""
        self._handle = handle
        self._total = handle.getValueState("total", "n long")
        self._items = handle.getListState("items", "id long")
        self._by_parity = handle.getMapState("parities", "odd boolean", "n long")

    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:
        """Hold them, with a timer for each."""
        for frame in rows:
            for number, second in zip(frame["id"].tolist(), frame["second"].tolist(), strict=True):
                self._items.appendValue((number,))
                self._total.update(((self._total.get() or (0,))[0] + 1,))
                odd = (number % 2 == 1,)
                self._by_parity.updateValue(odd, ((self._by_parity.getValue(odd) or (0,))[0] + 1,))
                self._handle.registerTimer(1_000 * (START // SECOND + second + BATCH))
        return iter(())

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[pd.DataFrame]:
        """Emit what is held; the value goes on counting."""
        items = sorted(item for (item,) in self._items.get())
        if items:
            odd = (self._by_parity.getValue((True,)) or (0,))[0]
            yield pd.DataFrame({"user": [key[0]], "ids": [str(items)], "odd": [odd], "total": [self._total.get()[0]]})
        self._items.clear()

    def close(self) -> None:
        """Nothing is open."""


def outputs(spark: SparkSession, root: Path, clock: sj.Clock) -> list[StreamWriter]:
    """The results on their way to files and a function, up to the trigger."""
    from pyspark.sql import functions as F

    def read(name: str, schema: str) -> DataFrame:
        source = spark.readStream.schema(f"{schema}, ts long").option("maxFilesPerTrigger", 1)
        return source.json(f"file:{root}/feed/{name}").withColumn("ts", F.timestamp_micros("ts"))

    def keep(rows: DataFrame, epoch: int) -> None:
        folder = root / "sums"
        folder.mkdir(exist_ok=True)
        (folder / f"{epoch:03d}.json").write_text(json.dumps([list(row) for row in rows.collect()]))

    bought = sj.stream(read("orders", "id long, user string")).withWatermark("ts", f"{PERIOD} seconds").alias("orders")
    renamed = read("payments", "paid long").withColumnRenamed("ts", "at")
    paid = sj.stream(renamed).withWatermark("at", "10 seconds").alias("payments")
    near = f"id = paid AND at >= ts AND at <= ts + INTERVAL {PERIOD} SECONDS"
    both = bought.join(paid, F.expr(near), "left_outer").select("id", "paid")
    firsts = bought.dropDuplicatesWithinWatermark(["id"])
    timed = bought.withColumn("second", F.unix_seconds("ts") - START // SECOND)
    visits = timed.groupBy("user").applyInPandasWithState(
        visited,
        "user string, orders long, last long",
        "orders long, last long",
        "append",
        GroupStateTimeout.EventTimeTimeout,
    )
    schema = "user string, ids string, odd long, total long"
    baskets = timed.groupBy("user").transformWithStateInPandas(Basket(), schema, "append", "EventTime")
    sums = bought.groupBy("user").agg(F.count("*").alias("n"), F.sum("id").alias("ids"))
    files = {"both": both, "firsts": firsts.select("id", "user"), "visits": visits, "baskets": baskets}
    first, *others = [
        rows.writeStream.format("files").option("fileFormat", "json").option("path", root / name)
        for name, rows in files.items()
    ]
    first = first.option("checkpointLocation", root / "home").clock(clock)
    return [first, *others, sums.writeStream.outputMode("update").foreachBatch(keep)]


def expected() -> dict[str, Counter[Any]]:
    """The rows of each output."""
    given = [orders(batch) for batch in range(BATCHES)]
    paid = {event["paid"] for batch in range(BATCHES) for event in payments(batch)}
    every = [event for batch in given for event in batch]
    visits, baskets, sums = Counter[Any](), Counter[Any](), Counter[Any]()
    held: dict[str, list[Event]] = defaultdict(list)
    for user in ("ada", "bob", "eve"):
        seen: list[Event] = []
        basket: list[int] = []
        timers: list[int] = []
        for number in range(BATCHES + 1):
            # The last epoch has no rows: the input ends.
            new = [event for event in given[number] if event["user"] == user] if number < BATCHES else []
            watermark = BATCH * number + 45 - PERIOD if number < BATCHES else 10**9
            seen += new
            held[user] += new
            if new:
                sums[user, len(seen), sum(event["id"] for event in seen)] += 1
            if held[user] and (last := max(event["time"] for event in held[user])) + PERIOD < watermark:
                visits[user, len(held.pop(user)), last] += 1
            basket += [event["id"] for event in new]
            timers += [event["time"] + BATCH for event in new]
            if basket and min(timers) <= watermark:
                odd = sum(event["id"] % 2 for event in seen)
                baskets[user, str(sorted(basket)), odd, len(seen)] += 1
                basket = []
            timers = [timer for timer in timers if timer > watermark]
    return {
        "both": Counter((event["id"], event["id"] if event["id"] in paid else None) for event in every),
        "firsts": Counter((event["id"], event["user"]) for batch in given for event in batch[-3:]),
        "visits": visits,
        "baskets": baskets,
        "sums": sums,
    }


def found(spark: SparkSession, root: Path) -> dict[str, Counter[Any]]:
    """The same, as readers find it."""
    columns = {
        "both": ["id", "paid"],
        "firsts": ["id", "user"],
        "visits": ["user", "orders", "last"],
        "baskets": ["user", "ids", "odd", "total"],
    }
    rows = {name: sj.read_files(str(root / name)).select(*each).collect() for name, each in columns.items()}
    sums = [row for file in (root / "sums").glob("*.json") for row in json.loads(file.read_text())]
    return {name: Counter(map(tuple, each)) for name, each in [*rows.items(), ("sums", sums)]}
