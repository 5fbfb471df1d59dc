"""``init``: a project that runs: a job, a test for it, a Makefile."""

from __future__ import annotations

import shlex
from pathlib import Path

from sparkjet.cli.arguments import show
from sparkjet.errors import AnalysisError

_JOB = '''"""The highest load of each site by minute; started again, the job goes on where it stopped."""

from pathlib import Path

import sparkjet as sj
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

HERE = Path(__file__).parent
READINGS = "ts timestamp, site string, watts long"


def peaks(readings):
    """The query, of a stream in the job and of rows in its test."""
    return (
        readings.withWatermark("ts", "10 seconds", by="site", substreams=["north", "south"])
        .groupBy(sj.window("ts", "1 minute"), "site")
        .agg(F.max("watts").alias("peak"))
    )


def main():
    builder = SparkSession.builder.master("local[2]").appName("peaks")
    spark = builder.config("spark.sql.session.timeZone", "UTC").getOrCreate()
    readings = sj.stream(spark.readStream.schema(READINGS).json(str(HERE / "in")))
    writer = peaks(readings).writeStream.format("files").option("path", HERE / "out").queryName("peaks")
    # Remove availableNow, and it waits for further files; query.page() then shows how it is.
    query = writer.option("checkpointLocation", HERE / "checkpoint").trigger(availableNow=True).start()
    query.awaitTermination()
    sj.read_files(HERE / "out").orderBy("window", "site").show(truncate=False)


if __name__ == "__main__":
    main()
'''
_TEST = '''"""The test decides which rows arrive together; no source, no sink, no waiting."""

import pytest
from job import READINGS, peaks
from pyspark.sql import SparkSession
from sparkjet.testing import StreamDriver


@pytest.fixture(scope="session")
def spark():
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    session = builder.config("spark.sql.session.timeZone", "UTC").getOrCreate()
    yield session
    session.stop()


def test_a_window_waits_for_the_site_that_lags(spark):
    driver = StreamDriver(spark, peaks, READINGS)
    driver.process([("2026-01-01 12:00:10", "north", 300), ("2026-01-01 12:00:20", "south", 200)])
    driver.process([("2026-01-01 12:01:30", "north", 500)])
    assert driver.results() == []
    driver.process([("2026-01-01 12:00:50", "south", 250), ("2026-01-01 12:01:30", "south", 100)])
    assert sorted((row.site, row.peak) for row in driver.results()) == [("north", 300), ("south", 250)]
    driver.stop()
'''
_MAKEFILE = """PYTHON = python3

.PHONY: run test check watch clean

run:  # The job; start it again after adding files to in/
	$(PYTHON) job.py

test:
	$(PYTHON) -m pytest -q

check:  # What would stop the job on this machine
	$(PYTHON) -m sparkjet doctor checkpoint

watch:  # How far it is, from its records
	$(PYTHON) -m sparkjet top checkpoint

clean:  # All results, and what was read so far
	rm -rf out checkpoint
"""
_READINGS = "".join(
    f'{{"ts": "2026-01-01 12:0{minute}:{second:02}", "site": "{site}", "watts": {100 * minute + second}}}\n'
    for minute in range(3)
    for second in (5, 35)
    for site in ("north", "south")
)
FILES = {
    "job.py": _JOB,
    "test_job.py": _TEST,
    "Makefile": _MAKEFILE,
    "in/readings.json": _READINGS,
    "requirements.txt": "sparkjet[arrow,page]\npytest\n",
    ".gitignore": "out/\ncheckpoint/\n__pycache__/\n",
}


def make(directory: Path, *, as_json: bool) -> None:
    """Write the files of a project into a directory.

    Raises:
        AnalysisError: The directory already has files, or cannot be written.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if any(directory.iterdir()):
            raise AnalysisError(f'init: "{directory}" is not empty. Name a directory that is new.')
        for name, content in FILES.items():
            (directory / name).parent.mkdir(exist_ok=True)
            (directory / name).write_text(content, encoding="utf-8")
    except OSError as error:
        message = f'init: "{directory}" cannot be written: {error.strerror}. Name another directory.'
        raise AnalysisError(message) from error
    lines = [f"{directory} has {', '.join(FILES)}", f"Next: cd {shlex.quote(str(directory))} && make run && make test"]
    show(lines, {"directory": str(directory), "files": list(FILES)}, as_json=as_json)
