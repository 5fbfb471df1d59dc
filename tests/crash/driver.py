"""The driver process: a Spark driver that runs many queries at once and blocks each at its own phase.

Started by :class:`tests.crash.drivers.Driver` as ``python -m tests.crash.driver <descriptor> <master>``. Commands come
as lines of JSON on standard input, reports go as lines of JSON to the file descriptor; it ends when its input does.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.crash.history import keep
from tests.crash.jobs import JOBS, Place
from tests.servers.programs import SMALL

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparkjet import EpochPhase, StreamingQuery

SETTINGS = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "2g",
    # On a cluster only.
    "spark.executor.memory": "600m",
    "spark.executor.extraJavaOptions": " ".join(SMALL),
    # A process lives for a minute and runs every plan for the first time: compiling costs more than it gains.
    "spark.driver.extraJavaOptions": " ".join(SMALL),
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # A stopped driver must not consider its own executor lost when it is resumed.
    "spark.network.timeout": "20min",
    "spark.worker.timeout": "1200",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


class Driver:
    """Runs queries on command and reports their events."""

    def __init__(self, reports: int, master: str) -> None:
        self._reports = reports
        self._master = master
        self._lock = threading.Lock()
        self._release = threading.Event()
        self._running: list[threading.Thread] = []
        self._blocks: dict[str, tuple[str | None, int | None]] = {}
        self._spark: SparkSession

    def serve(self) -> None:
        """Take commands until ``end``."""
        self._spark = session(self._master)
        jvm = self._spark._jvm
        assert jvm is not None
        self._report("ready", jvm=jvm.java.lang.ProcessHandle.current().pid())
        for line in sys.stdin:
            command = json.loads(line)
            if command["do"] == "start":
                for query in command["queries"]:
                    self._blocks[query["name"]] = query["block_at"], query["epoch"]
                    thread = threading.Thread(target=self._run, args=(query,), name=query["name"])
                    self._running.append(thread)
                    thread.start()
            elif command["do"] == "block":
                self._release.clear()
                self._blocks[command["query"]] = command["block_at"], command["epoch"]
            elif command["do"] == "hold":
                self._release.clear()
            elif command["do"] == "release":
                self._release.set()
            else:
                break
        else:
            # The parent process is gone: blocked queries must not keep this one alive.
            os._exit(3)
        for thread in self._running:
            thread.join()

    def _run(self, query: dict[str, Any]) -> None:
        name, job = query["name"], JOBS[query["job"]]
        place = Place(Path(query["root"]), Path(query["feed"]))
        started = time.monotonic()
        try:
            running = job.start(
                self._spark,
                place,
                lambda step, epoch: self._reached(query, place, step, epoch),
                until_end=query["until_end"],
            )
            self._report("started", query=name)
            if query["block_at"] == "IDLE":
                self._until_idle(running, query)
            running.awaitTermination()
        except BaseException as error:  # noqa: BLE001 - whatever it was, the test must hear of it
            text = f"{type(error).__name__}: {error}"[:1500]
            self._report("ended", query=name, error=type(error).__name__, text=text)
        else:
            self._report("ended", query=name, error=None, seconds=round(time.monotonic() - started, 1))

    def _reached(self, query: dict[str, Any], place: Place, step: EpochPhase, epoch: int) -> None:
        keep(place)
        if (step.name, epoch) == self._blocks[query["name"]] and not self._release.is_set():
            self._report("reached", query=query["name"])
            self._release.wait()

    def _until_idle(self, running: StreamingQuery, query: dict[str, Any]) -> None:
        """Report once foreachBatch has returned for the epoch and Spark waits for more input."""
        pause = threading.Event()
        while running.isActive:
            progress = running.lastProgress
            if progress and progress["epoch"]["number"] >= query["epoch"] and not running.status["isTriggerActive"]:
                self._report("reached", query=query["name"])
                return
            pause.wait(0.05)

    def _report(self, event: str, **details: object) -> None:
        with self._lock:
            os.write(self._reports, f"{json.dumps({'event': event, **details})}\n".encode())


def session(master: str, settings: Mapping[str, str] | None = None) -> SparkSession:
    """A session with a cheap start and cheap first queries."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(master).appName("sparkjet-crash")
    made = builder.config(map={**SETTINGS, **(settings or {})}).getOrCreate()
    made.sparkContext.setLogLevel("ERROR")
    return made


def main() -> None:
    os.environ["TZ"] = "UTC"
    time.tzset()
    logging.basicConfig(format="%(asctime)s %(threadName)s %(message)s")
    Driver(int(sys.argv[1]), sys.argv[2]).serve()


if __name__ == "__main__":
    main()
