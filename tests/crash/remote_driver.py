"""A driver process whose query has a remote home, and that may kill itself at the end of a phase of an epoch.

Started as ``python -m tests.crash.remote_driver <job>``, a JSON object as :class:`tests.crash.test_remote_homes.Job`.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import functions as F

import sparkjet as sj
from sparkjet import EpochPhase
from tests.crash.driver import session
from tests.feed import Feed


def main(job: dict[str, Any]) -> None:
    spark = session("local[2]", job["settings"])

    def end(phase: EpochPhase, epoch: int) -> None:
        if [phase.value, epoch] == job["killed_at"]:
            os.kill(os.getpid(), signal.SIGKILL)

    stream = sj.stream(Feed(Path(job["feed"])).read(spark)).withWatermark("ts", "5 seconds")
    result = stream.groupBy(sj.window("ts", "10 seconds", "5 seconds"), "k").agg(F.count("*").alias("n"))
    writer = result.writeStream.format("files").option("path", job["out"]).option("checkpointLocation", job["home"])
    writer = writer.option("statePartitions", 2).option("closeWindowsAtEnd", True).trigger(availableNow=True)
    writer.onEpochPhase(end).start().awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
