"""New columns: what ``mergeSchema`` adds to a table that lacks columns of the rows, in a separate commit."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import StructType

from sparkjet.connectors.iceberg.columns import NAMES
from sparkjet.connectors.iceberg.library import ICEBERG
from sparkjet.connectors.iceberg.schema import ids_of, new_schema
from sparkjet.java import static_method

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparkjet.connectors.iceberg.version import Version

Column = Mapping[str, Any]
"""A column as Iceberg's JSON."""


def added_columns(version: Version, schema: StructType) -> list[Column]:
    """The columns of rows that a table lacks, with ids new to it; all may be null."""
    there = {field["name"].lower() for field in version.schema["fields"]}
    missing = [field for field in schema.fields if field.name.lower() not in there]
    newest = max((number for field in version.schema["fields"] for number in ids_of(field)), default=0)
    return list(new_schema(StructType(missing), newest + 1)["fields"])


def with_columns(version: Version, columns: Sequence[Column]) -> Version:
    """A version as it will be with columns added, only for inspection; nothing can be committed to it."""
    if not columns:
        return version
    # Iceberg adds new columns to a mapping of names as well.
    properties = {name: value for name, value in version.properties.items() if name != NAMES}
    schema = {**version.schema, "fields": [*version.schema["fields"], *columns]}
    return replace(version, schema=schema, properties=properties)


def merged(session: SparkSession, version: Version, columns: Sequence[Column]) -> Any:
    """The metadata of a version with columns added; only a commit makes it the table's."""
    given = json.dumps({"type": "struct", "fields": columns})
    made = static_method(session, f"{ICEBERG}.SchemaParser.fromJson")(given).columns()
    update = version.transaction.updateSchema()
    for number, column in enumerate(columns):
        # With an explicit parent, None: a name may contain a dot.
        update.addColumn(None, column["name"], made.get(number).type())
    update.commit()
    return version.transaction.currentMetadata()
