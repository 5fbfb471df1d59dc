"""T10: the memory of a query over 2,000 epochs.

``python -m benchmarks.memory``. Writes ``results/memory.json`` and a picture. Epochs are small, so that there are many:
windows of ten seconds, a second of event time each.
"""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path

import matplotlib as mpl
from pyspark.sql import functions as F

import sparkjet as sj
from benchmarks.local import local_session
from benchmarks.ratio import RESULTS, Ratio, save
from benchmarks.studies import main
from benchmarks.work import Goal

mpl.use("Agg")

from matplotlib import pyplot as plt

EPOCHS = 2_000
EVERY = 20
ROWS = 1_000
SAME = 1 / 1.1
"""Minimum ratio of the first half's numbers to the last half's, after a tenth of the epochs."""


def measure(home: Path) -> dict[str, list[float]]:
    """Numbers after every twentieth epoch: heap after a garbage collection, persisted RDDs, size of the plans."""
    session = local_session()
    source = session.readStream.format("rate-micro-batch").option("rowsPerBatch", ROWS).option("startTimestamp", 0)
    rows = source.option("advanceMillisPerBatch", 1000).option("numPartitions", 1).load()
    stream = sj.stream(rows.withColumn("key", F.col("value") % 10)).withWatermark("timestamp", "1 second")
    windows = stream.groupBy(sj.window("timestamp", "10 seconds", "1 second"), "key").agg(F.count("*"), F.max("value"))
    numbers: dict[str, list[float]] = {"heap in MB": [], "persisted RDDs": [], "size of the plans": []}
    java = session._jvm.java.lang  # type: ignore[union-attr]
    done = 0

    def look(step: sj.EpochPhase, epoch: int) -> None:
        nonlocal done
        if step is not sj.EpochPhase.CLEAN or epoch % EVERY:
            return
        java.System.gc()
        runtime = java.Runtime.getRuntime()
        numbers["heap in MB"].append((runtime.totalMemory() - runtime.freeMemory()) / 1e6)
        numbers["persisted RDDs"].append(session.sparkContext._jsc.getPersistentRDDs().size())
        stages = query._engine.state.stages.values()  # noqa: SLF001 - what is measured is not public
        held = [segment.partials for stage in stages for segment in stage.operator.segments]
        plans = [frame._jdf.queryExecution().analyzed().toString() for frame in held]
        numbers["size of the plans"].append(sum(map(len, plans)))
        done = epoch

    writer = windows.writeStream.format("files").option("path", home / "out").option("statePartitions", 1)
    # Overlapping epochs use the most memory.
    writer = writer.onEpochPhase(look)
    query = writer.option("checkpointLocation", home / "checkpoint").start()
    while done < EPOCHS and query.isActive:
        query.awaitTermination(1)
    query.stop()
    session.stop()
    return numbers


def draw(numbers: dict[str, list[float]]) -> None:
    """Draw all three over the epochs."""
    figure, all_axes = plt.subplots(1, len(numbers), figsize=(5 * len(numbers), 3.5), layout="constrained")
    for axes, (name, values) in zip(all_axes, numbers.items(), strict=True):
        axes.plot([EVERY * (place + 1) for place in range(len(values))], values)
        axes.set_xlabel("epoch")
        axes.set_title(name)
        axes.set_ylim(bottom=0)
    figure.savefig(RESULTS / "memory.png", dpi=120)
    plt.close(figure)


def study() -> list[Ratio]:
    """One ratio per number: its mean over the first half by that over the second."""
    with tempfile.TemporaryDirectory(prefix="sparkjet-memory-") as home:
        numbers = measure(Path(home))
    save(numbers, RESULTS / "memory.json")
    draw(numbers)
    found = []
    for name, values in numbers.items():
        settled = values[len(values) // 10 :]
        first, second = (statistics.mean(half) for half in (settled[: len(settled) // 2], settled[len(settled) // 2 :]))
        what = f"{name} over {EPOCHS:,} epochs: {first:.4g}, then {second:.4g}"
        found.append(Ratio("T10", what, Goal(f"{name}, first half", SAME), (first / second,), 1 / second, 1 / first))
    return found


if __name__ == "__main__":
    main(study)
