"""DW: rows into Delta tables, exactly once, next to the streaming writer of Delta's connector, on Spark 4.2.

``python -m benchmarks.delta_sink``. See :mod:`benchmarks.tables`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.studies import main
from benchmarks.tables import Format, study
from tests.servers.programs import jars

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def settings(_: Path) -> Mapping[str, str]:
    """As Delta's documentation has them."""
    connector = jars(Path(__file__).with_name("delta_connector.xml")).glob("*.jar")
    return {
        "spark.jars": ",".join(map(str, sorted(connector))),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        # Of the connector's own jobs over the log: 50 by default, on two cores.
        "spark.databricks.delta.snapshotPartitions": "2",
    }


def start(writer: Any, place: Path, name: str) -> Any:
    """Into a table by its path."""
    return writer.start(f"{place}/{name}")


def table(session: SparkSession, place: Path, name: str) -> DataFrame:
    """Read by the connector."""
    return session.read.format("delta").load(f"{place}/{name}")


DELTA = Format("DW", "delta", "4.2", settings, start, table)

if __name__ == "__main__":
    main(lambda: study(DELTA))
