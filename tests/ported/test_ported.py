"""Queries that were written for Spark run with one changed line, and give what Spark computes in a batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import sparkjet as sj
from tests.parameters import mostly_long
from tests.ported import given_a_frame, installed_examples, installed_functions, installed_writers, own_windows
from tests.ported.both import Both
from tests.ported.port import Port

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    Cells = tuple[str, ...]

FAMILIES = {
    "examples": installed_examples,
    "functions": installed_functions,
    "writers": installed_writers,
    "windows": own_windows,
    "given": given_a_frame,
}
PORTS: dict[str, Port] = {
    f"{family}-{name}": port for family, module in FAMILIES.items() for name, port in module.PORTS.items()
}
RESULTS = {name: port for name, port in PORTS.items() if port.write is None}
SINKS = {name: port for name, port in PORTS.items() if port.delivered is not None}
CONSOLE = {name: port for name, port in PORTS.items() if port.write is not None and port.delivered is None}

# Each kind of window, a watermark in the query, and expressions; docs/guide/porting-queries.md runs more of both in CI.
RESULTS_IN_CI = {
    "examples-windowed-word-count",
    "functions-window_time",
    "windows-showers-column",
    "given-json",
}
# One of each sink. Files are in the page too.
SINKS_IN_CI = {
    "writers-partitionBy",
    "writers-foreach-object",
    "writers-toTable",
    "given-configured",
    "given-view",
}


@pytest.fixture(scope="module", autouse=True)
def _tables_are_dropped(spark: SparkSession) -> Iterator[None]:
    """Those that the queries name; other tests share the catalog."""
    yield
    for name in ("my_table", "my_table2"):
        spark.sql(f"DROP TABLE IF EXISTS {name}")


def both(spark: SparkSession, port: Port, directory: Path) -> Both:
    """The port's rows, at once and batch by batch."""
    directory.mkdir()
    return Both(spark, directory, port.schema).arrive(*port.rows())


def bag(rows: Iterable[Any]) -> Counter[str]:
    """Rows with the names of their columns, in whatever order."""
    return Counter(map(repr, rows))


def finished(query: Any) -> None:
    """Lets a query read all rows, and stops it."""
    if query.isActive:
        query.processAllAvailable()
    query.stop()
    assert query.exception() is None


@pytest.mark.parametrize("port", mostly_long(RESULTS, RESULTS_IN_CI))
def test_results_are_those_of_a_batch(spark: SparkSession, port: Port, tmp_path: Path) -> None:
    inputs = both(spark, port, tmp_path / "in")
    options = {"closeWindowsAtEnd": True, "statePartitions": 1} if port.watermark else {}
    expected = bag(inputs.batch(port.query))
    assert expected
    assert bag(inputs.sparkjet(port.ported, port.mode, **options)) == expected


@pytest.mark.parametrize("port", mostly_long(SINKS, SINKS_IN_CI))
def test_sinks_receive_what_a_batch_gives(spark: SparkSession, port: Port, tmp_path: Path) -> None:
    assert port.write is not None
    assert port.delivered is not None
    inputs, place = both(spark, port, tmp_path / "in"), tmp_path / "out"
    place.mkdir()
    finished(port.write(port.ported(sj.stream(inputs.source())), place))
    expected = inputs.batch(port.query)
    # Columns that are directories come last when files are read.
    found = port.delivered(spark, place).select(*expected[0].__fields__)
    assert bag(found.collect()) == bag(expected)


@pytest.mark.parametrize("port", mostly_long(CONSOLE, {"writers-option"}))
def test_the_console_shows_what_a_batch_gives(
    spark: SparkSession, port: Port, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    printed, batch = consoles(spark, port, tmp_path, capsys)
    assert printed == batch


def test_update_mode_shows_every_session_at_last(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As far as it has come when the query stops; what it was before is among the rows too."""
    port = replace(installed_examples.PORTS["sessionization"], write=installed_examples.print_sessions)
    printed, batch = consoles(spark, port, tmp_path, capsys)
    assert printed >= batch


def test_complete_mode_shows_the_whole_table_at_last(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    port = replace(installed_examples.PORTS["word-count"], write=installed_examples.print_words)
    printed, batch = consoles(spark, port, tmp_path, capsys)
    assert printed >= batch


def consoles(
    spark: SparkSession, port: Port, directory: Path, capsys: pytest.CaptureFixture[str]
) -> tuple[Counter[Cells], Counter[Cells]]:
    """Rows that the query has printed, and those that ``show()`` prints of the batch."""
    assert port.write is not None
    inputs = both(spark, port, directory / "in")
    finished(port.write(port.ported(sj.stream(inputs.source())), directory))
    printed = cells(capsys.readouterr().out)
    port.query(spark.read.schema(port.schema).json(str(directory / "in"))).show()
    batch = cells(capsys.readouterr().out)
    assert batch
    return printed, batch


def cells(shown: str) -> Counter[Cells]:
    """Rows of tables as ``show()`` prints them; headings count once."""
    rows = [tuple(map(str.strip, line.strip("|").split("|"))) for line in shown.splitlines() if line.startswith("|")]
    return Counter(row for number, row in enumerate(rows) if number == 0 or row != rows[0])
