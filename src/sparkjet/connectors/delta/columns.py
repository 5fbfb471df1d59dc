"""Common ground of rows and a Delta table: which column of the one goes where in the other, or why none can."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from sparkjet.connectors.delta.mapping import PHYSICAL
from sparkjet.connectors.delta.partitions import can_partition_by
from sparkjet.errors import AnalysisError
from sparkjet.sinks.file_formats import check_partition_by
from sparkjet.sinks.table_columns import matched

if TYPE_CHECKING:
    from sparkjet.connectors.delta.kernel import Version

_FILLED = {
    "delta.generationExpression": "is generated from other columns",
    "delta.identity.start": "is an identity column",
    "delta.invariants": "has an invariant",
    "__CHAR_VARCHAR_TYPE_STRING": "has a length (char, varchar)",
}
"""Metadata of columns that require something of a writer that sparkjet does not do."""
_REPLACED = {
    "delta.appendOnly": "is only added to",
    "delta.enableChangeDataFeed": "keeps a feed of changes, which sparkjet does not write",
    "delta.enableDeletionVectors": "marks rows as deleted, and sparkjet does not read files with such marks",
    "delta.enableRowTracking": "tracks its rows, which would lose their ids where their files are rewritten",
}
"""Properties of tables whose rows are not replaced here, with the reasons."""
_UNMAPPED = "none"
_MAPPING = "delta.columnMapping.mode"
_ICEBERG = "delta.enableIceberg"
_WHOLE = "materializePartitionColumns"
_WIDENED = ("typeWidening", "typeWidening-preview")
_DEFAULT = "CURRENT_DEFAULT"
_MANAGED = ("catalogManaged", "catalogOwned", "catalogOwned-preview", "coordinatedCommits-preview")
_FORGETS = "delta.setTransactionRetentionDuration"
_OF_A_TABLE = "delta.", "CURRENT_DEFAULT", "EXISTS_DEFAULT", "__CHAR_VARCHAR_TYPE_STRING"
"""Prefixes of the metadata of columns read from a table: lengths, defaults, how they are filled."""
_COLON = ":"
"""In a partition's name, Kernel takes what precedes it for the scheme of a URI."""
_INSTEAD = "Write to another table, or merge the rows yourself in foreachBatch(…)"


@dataclass(frozen=True)
class Mapped:
    """Where the columns of rows go.

    Attributes:
        names: The table's name for each column, by the name in the rows, in the order of the rows.
        required: Columns of the table that must not be null, although the rows' may be.
    """

    names: Mapping[str, str]
    required: tuple[str, ...]


def check_unmapped(table: Version, where: str) -> None:
    """Refuse a table whose new columns would need names for files and ids."""
    if _mode(table) != _UNMAPPED:
        message = (
            f"mergeSchema: {where} maps its columns by {_mode(table)} ({_MAPPING}), and new ones are not given names "
            "for its files here. Add them: ALTER TABLE … ADD COLUMN."
        )
        raise AnalysisError(message)


def check_new(schema: StructType, partition_by: Sequence[str]) -> None:
    """Refuse partition columns that a new table cannot have."""
    check_partition_by(schema, partition_by)
    for name in partition_by:
        kind = schema[name].dataType
        if not can_partition_by(kind):
            message = f"partitionBy: {name!r} is {kind.simpleString()}, which paths cannot hold. Use another column."
            raise AnalysisError(message)
        if _COLON in name:
            raise AnalysisError(f"partitionBy: Delta Kernel takes no colon in {name!r}. Give the column another name.")


def added(table: StructType, rows: StructType) -> list[StructField]:
    """The columns of rows that a table lacks, as they are added to it; fields of existing columns are not added."""
    there = {name.lower() for name in table.fieldNames()}
    return [each for each in as_new(rows).fields if each.name.lower() not in there]


def mapped(table: Version, schema: StructType, partition_by: Sequence[str], where: str) -> Mapped:
    """Where the columns of rows go in an existing table."""
    _check_table(table, where)
    if partition_by and [each.lower() for each in partition_by] != [each.lower() for each in table.partition_by]:
        message = (
            f"partitionBy: {where} is partitioned by {_listed(table.partition_by)}, not by {_listed(partition_by)}. "
            "Leave partitionBy(…) out, and the table's own columns count."
        )
        raise AnalysisError(message)
    names = matched(table.schema, schema, where)
    nullable = {names[field.name]: field.nullable for field in schema.fields}
    # In a path, an empty string is a null.
    required = [
        column.name
        for column in table.schema.fields
        if column.name in nullable
        and not column.nullable
        and (nullable[column.name] or column.name in table.partition_by)
    ]
    for column in table.schema.fields:
        if column.name in nullable:
            continue
        if not column.nullable or _DEFAULT in (column.metadata or {}) or column.name in table.partition_by:
            message = (
                f"{where} needs a value of column {column.name!r} in every row, and the result has no such column. "
                f'Add it: withColumn("{column.name}", …).'
            )
            raise AnalysisError(message)
    if set(names.values()) <= set(table.partition_by):
        message = f"{where} has columns in its files beside {_listed(table.partition_by)}. Add one to the result."
        raise AnalysisError(message)
    return Mapped(names, tuple(required))


def check_upserts(table: Version, where: str) -> None:
    """Refuse a table whose rows must not be replaced, or not without something that sparkjet does not do."""
    for name, reason in _REPLACED.items():
        if _is_on(table, name):
            raise AnalysisError(f"mode=upsert: {where} {reason} ({name}). {_INSTEAD}.")
    if _mode(table) != _UNMAPPED:
        message = (
            f"mode=upsert: {where} maps its columns by {_mode(table)} ({_MAPPING}), and sparkjet does not read its "
            f"files. {_INSTEAD}."
        )
        raise AnalysisError(message)
    widened = [feature for feature in _WIDENED if feature in table.features]
    if widened:
        message = (
            f"mode=upsert: {where} may have files with other types than its own ({widened[0]}), which are not read "
            f"here. {_INSTEAD}."
        )
        raise AnalysisError(message)


def _check_table(table: Version, where: str) -> None:
    of_iceberg = sorted(name for name in table.properties if name.startswith(_ICEBERG) and _is_on(table, name))
    if of_iceberg:
        message = (
            f"{where} is to be read as Iceberg's too ({of_iceberg[0]}), which sparkjet does not support. {_INSTEAD}."
        )
        raise AnalysisError(message)
    if table.partition_by and _WHOLE in table.features:
        message = (
            f"{where} wants its partition columns in the files too ({_WHOLE}), which sparkjet does not support. "
            f"{_INSTEAD}."
        )
        raise AnalysisError(message)
    checks = sorted(name for name in table.properties if name.startswith("delta.constraints."))
    if checks:
        raise AnalysisError(f"{where} has the constraint {checks[0]}, which is not checked here. {_INSTEAD}.")
    managed = [name for name in _MANAGED if name in table.features]
    if managed:
        raise AnalysisError(f"{where} is committed by its catalog ({managed[0]}), not by its log. {_INSTEAD}.")
    if _FORGETS in table.properties:
        message = (
            f"{where} forgets transactions after {table.properties[_FORGETS]} ({_FORGETS}): a query that starts later "
            f"than that could add its rows twice. Unset it: ALTER TABLE … UNSET TBLPROPERTIES ('{_FORGETS}')."
        )
        raise AnalysisError(message)
    for column in table.schema.fields:
        is_written = can_partition_by(column.dataType) and _COLON not in column.name
        if column.name in table.partition_by and not is_written:
            message = (
                f"{where} is partitioned by {column.name!r} ({column.dataType.simpleString()}), which is not written "
                f"here. {_INSTEAD}."
            )
            raise AnalysisError(message)
        asked = _metadata_of(column)
        reasons = [reason for key, reason in _FILLED.items() if key in asked]
        if PHYSICAL in asked and _mode(table) == _UNMAPPED:
            reasons.append(f"has a name for files ({PHYSICAL}) in a table that maps none ({_MAPPING})")
        if reasons:
            message = f"column {column.name!r} of {where} {reasons[0]}, which sparkjet does not support. {_INSTEAD}."
            raise AnalysisError(message)


def _mode(table: Version) -> str:
    return table.properties.get(_MAPPING, _UNMAPPED)


def _is_on(table: Version, name: str) -> bool:
    return table.properties.get(name, "false").lower() == "true"


def _metadata_of(column: StructField) -> set[str]:
    """The keys of the metadata of a column and of all fields in it."""
    found = set(column.metadata or {})
    pending: list[DataType] = [column.dataType]
    while pending:
        kind = pending.pop()
        if isinstance(kind, StructType):
            for field in kind.fields:
                found |= set(field.metadata or {})
                pending.append(field.dataType)
        elif isinstance(kind, ArrayType):
            pending.append(kind.elementType)
        elif isinstance(kind, MapType):
            pending += [kind.keyType, kind.valueType]
    return found


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) or "nothing"


def as_new(schema: StructType) -> StructType:
    """The schema of a new table: like Spark's own, it lets any later row be null."""
    return StructType.fromJson(_all_nullable(json.loads(schema.json())))


def _all_nullable(found: Any) -> Any:
    if isinstance(found, list):
        return [_all_nullable(each) for each in found]
    if not isinstance(found, dict):
        return found
    loose = {name: True for name in ("nullable", "containsNull", "valueContainsNull") if name in found}
    # Metadata is the user's, whatever its keys, except what another table requires of its writers.
    return {
        name: {key: each for key, each in value.items() if not key.startswith(_OF_A_TABLE)}
        if name == "metadata"
        else _all_nullable(value)
        for name, value in found.items()
    } | loose
