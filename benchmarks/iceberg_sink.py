"""IW: rows into Iceberg tables, exactly once, next to the streaming writer of Iceberg's connector, on Spark 4.1.

``python -m benchmarks.iceberg_sink``. See :mod:`benchmarks.tables`. Both write into tables of one catalog (hadoop).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.studies import main
from benchmarks.tables import Format, study
from tests.servers.iceberg import library

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def settings(place: Path) -> Mapping[str, str]:
    """A catalog of directories."""
    return {
        "spark.jars": ",".join(map(str, library())),
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "hadoop",
        "spark.sql.catalog.lake.warehouse": f"{place}/lake",
    }


def start(writer: Any, _: Path, name: str) -> Any:
    """Into a table by its name."""
    return writer.toTable(f"lake.db.{name}")


def table(session: SparkSession, _: Path, name: str) -> DataFrame:
    """Read by the connector."""
    return session.table(f"lake.db.{name}")


ICEBERG = Format("IW", "iceberg", "4.1", settings, start, table)

if __name__ == "__main__":
    main(lambda: study(ICEBERG))
