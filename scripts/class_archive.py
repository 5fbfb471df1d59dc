"""Makes the archive of Spark's classes that the JVMs of tests share: each starts with half the CPU.

Usage: ``python scripts/class_archive.py FILE``. The JVM itself checks the archive against its version and class path,
and does without one that does not fit (``java -Xshare:auto``, the default).
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

CHILD = "--trained"
"""Argument of the process whose JVM writes the archive when it ends."""


def train(home: Path) -> None:
    """Runs what most tests run: windows, a join, state and files."""
    from pyspark.sql import SparkSession  # noqa: PLC0415 - after the environment is set
    from pyspark.sql import functions as F  # noqa: PLC0415

    import sparkjet as sj  # noqa: PLC0415

    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
    }
    spark = builder.config(map={**settings, "spark.sql.warehouse.dir": str(home / "warehouse")}).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    (home / "in").mkdir()
    (home / "in" / "0.json").write_text('{"ts": "2026-01-01 00:00:01", "k": "a", "v": 1}\n', encoding="utf-8")
    stream = sj.stream(spark.readStream.schema("ts timestamp, k string, v long").json(str(home / "in")))
    timed = stream.withWatermark("ts", "1 second")
    sliding = timed.groupBy(F.window("ts", "10 seconds", "5 seconds"), "k")
    results = {
        "windows": sliding.agg(F.sum("v"), F.avg("v"), F.count("*")),
        "sessions": timed.groupBy(F.session_window("ts", "5 seconds"), "k").count(),
        "unique": timed.dropDuplicates(["k", "ts"]),
    }
    for name, result in results.items():
        writer = result.writeStream.format("files").option("path", str(home / name / "out"))
        if name != "unique":
            writer = writer.option("closeWindowsAtEnd", True)
        query = writer.option("checkpointLocation", str(home / name / "home")).trigger(availableNow=True).start()
        query.awaitTermination()
        sj.read_files(str(home / name / "out")).collect()
    spark.stop()


def main(archive: Path) -> int:
    """Starts a JVM that writes the archive; its name appears when it is complete."""
    with tempfile.TemporaryDirectory() as folder:
        # Beside its place: a rename does not cross file systems.
        made = archive.with_suffix(f".{os.getpid()}")
        options = f"-XX:ArchiveClassesAtExit={made} -XX:TieredStopAtLevel=1 -Xlog:cds=off -Xlog:cds+dynamic=off"
        environment = {"SPARK_SUBMIT_OPTS": options, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
        command = [sys.executable, __file__, CHILD, folder]
        done = subprocess.run(command, check=False, capture_output=True, text=True, env=os.environ | environment)
        if done.returncode != 0 or not made.is_file():
            print(f"no archive of Spark's classes, tests start more slowly: {done.stderr[-2000:]}", file=sys.stderr)
            made.unlink(missing_ok=True)
            archive.touch()
        else:
            made.replace(archive)
    return 0


if __name__ == "__main__":
    if sys.argv[1] == CHILD:
        train(Path(sys.argv[2]))
    else:
        sys.exit(main(Path(sys.argv[1])))
