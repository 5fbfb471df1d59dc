"""Delta tables by their name: found in the session's catalog, and refused by name where there is nothing to find."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

import sparkjet as sj
from sparkjet.catalyst.logical_plans import listed
from sparkjet.connectors.delta.named import NamedTable, named_table
from sparkjet.errors import AnalysisError
from sparkjet.java import static_method
from sparkjet.sinks.table import identified
from tests.connectors.delta.reading import rows_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

NAME = "sparkjet_named"


@pytest.fixture
def registered(delta: SparkSession, tmp_path: Path) -> Iterator[Path]:
    """A table of Delta's that the catalog knows, as it was registered by a session with the connector."""
    place = tmp_path / "there it is"
    write_deltalake(place, pa.table({"k": ["a"], "n": [1]}))
    delta.sql(f"CREATE TABLE {NAME} (k STRING) USING parquet LOCATION '{place}'")
    catalog, identifier = identified(NAME, delta)
    known: Any = catalog.getTableMetadata(identifier)
    parts = [getattr(known, f"copy$default${number}")() for number in range(1, known.productArity() + 1)]
    names = [str(name) for name in listed(known.productElementNames().toSeq())]
    parts[names.index("provider")] = static_method(delta, "scala.Option.apply")("delta")
    catalog.alterTable(known.copy(*parts))
    yield place
    # Not by SQL, which would look for the connector.
    catalog.dropTable(identifier, True, True)


def test_a_query_appends_to_a_table_by_its_name(delta: SparkSession, registered: Path, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "0.json").write_text('{"k": "b", "n": 2}')
    rows = delta.readStream.schema("k string, n long").json(str(tmp_path / "in"))
    writer = sj.stream(rows).writeStream.option("checkpointLocation", tmp_path / "home")
    query = writer.toTable(f"default.{NAME}", commitEvery="1 hour")
    # What waits for others is committed, too.
    query.processAllAvailable()
    assert sorted(row["n"] for row in rows_of(registered)) == [1, 2]
    query.stop()
    assert query.awaitTermination(60)
    with pytest.raises(AnalysisError, match=r'is in .*/there%20it%20is\. Leave path="/elsewhere" out'):
        named_table(NAME, delta, "/elsewhere")


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("sparkjet_new", r"there is no table .*`sparkjet_new`, and only Delta's connector"),
        ("lake.db.t", "is not a Delta table of the session's catalog: it belongs to the catalog 'lake'"),
        ("sparkjet_view", "it is a temporary view"),
        ("sparkjet_files", "its format is parquet"),
        ("a-b", "'a-b' is not the name of a table"),
    ],
)
def test_what_is_not_a_delta_table_of_the_catalog_is_refused_by_name(delta: SparkSession, name: str, why: str) -> None:
    delta.sql("CREATE OR REPLACE TEMP VIEW sparkjet_view AS SELECT 1 AS n")
    delta.sql("CREATE TABLE IF NOT EXISTS sparkjet_files (n INT) USING parquet")
    with pytest.raises(AnalysisError, match=why):
        named_table(name, delta, None)
    delta.sql("DROP VIEW sparkjet_view")
    delta.sql("DROP TABLE sparkjet_files")


def test_a_table_that_is_new_is_registered_once_it_is_there(tmp_path: Path) -> None:
    said: list[str] = []

    class Session:
        def sql(self, text: str) -> None:
            said.append(text)

    NamedTable("`db`.`t`", "/x", is_known=False).register(Session(), f"file:{tmp_path}/it's")  # type: ignore[arg-type]
    assert said == [f"CREATE TABLE IF NOT EXISTS `db`.`t` USING delta LOCATION 'file:{tmp_path}/it\\'s'"]
