"""ST: from a query's definition to its first epoch decided in a warm session, next to Spark's; and the import.

``python -m benchmarks.start``. The query of T5 over the same files, into ``noop``; the two take turns. Spark's epoch is
decided when its commit is in the checkpoint. The import is of sparkjet and what its first use imports, beyond
``pyspark.sql``, in a new process each time.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from uuid import uuid4

from pyspark.sql import DataFrame

import sparkjet as sj
from benchmarks.beside import in_turns
from benchmarks.local import local_session
from benchmarks.ratio import Ratio
from benchmarks.stores import PARTITIONS, SCHEMA, SHAPES, feed, results
from benchmarks.studies import main
from benchmarks.work import Goal

SHAPE = SHAPES["T5"]
WARM_UP, ROUNDS = 6, 5
GOAL = Goal("spark", 1 / 1.5)
BEYOND = 0.1
"""Seconds that the import may take beyond that of ``pyspark.sql``."""
LONGEST = 60.0
POLL = 0.002


def seconds(source: DataFrame, home: Path, *, ours: bool) -> float:
    """Seconds until the first epoch is decided."""
    began, decided = time.perf_counter(), threading.Event()
    writer = results(source, SHAPE, ours=ours).writeStream.format("noop").outputMode("append")
    if ours:
        writer = writer.onEpochPhase(lambda phase, _: decided.set() if phase is sj.EpochPhase.DECIDE else None)
    query = writer.option("checkpointLocation", str(home)).start()
    first = home / "commits" / "0"
    while not (decided.is_set() if ours else first.exists()):
        if query.exception() is not None or time.perf_counter() - began > LONGEST:
            raise RuntimeError(f"The query decided nothing: {query.exception()}")
        time.sleep(POLL)
    taken = time.perf_counter() - began
    query.stop()
    return taken


def importing(statement: str) -> float:
    """Seconds in which a new process imports something."""
    code = f"import time; began = time.perf_counter(); {statement}; print(time.perf_counter() - began)"
    return float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)


def study() -> list[Ratio]:
    """Two ratios: of the first epoch, and of the import."""
    session = local_session()
    session.conf.set("spark.sql.shuffle.partitions", str(PARTITIONS))
    with tempfile.TemporaryDirectory(prefix="sparkjet-start-") as directory:
        given = Path(directory) / "given"
        feed(session, SHAPE, given)
        source = session.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(given))
        taken = in_turns(
            {
                "ours": lambda _: seconds(source, Path(directory) / uuid4().hex, ours=True),
                "spark": lambda _: seconds(source, Path(directory) / uuid4().hex, ours=False),
            },
            ROUNDS,
            WARM_UP,
        )
    session.stop()
    used = "import pyspark.sql; import sparkjet; sparkjet.stream"
    imports = in_turns(
        {"ours": lambda _: importing(used), "spark": lambda _: importing("import pyspark.sql")}, ROUNDS, 1
    )
    beyond = [max(one - other, 0.001) for one, other in zip(imports["ours"], imports["spark"], strict=True)]
    for name, found in (*taken.items(), *((f"import, {name}", found) for name, found in imports.items())):
        print(f"{name}: {', '.join(f'{each:.3f}' for each in found)} s", file=sys.stderr)
    what = "from a query's definition to its first epoch decided"
    started = Ratio.of_seconds("ST", what, GOAL, taken["ours"], taken["spark"])
    what, goal = "import sparkjet and its first use, beyond pyspark.sql", Goal(f"{BEYOND} s", 1.0)
    return [started, Ratio.of_seconds("ST", what, goal, beyond, [BEYOND] * ROUNDS)]


if __name__ == "__main__":
    main(study)
