"""Common ground of rows and an Iceberg table: which column goes where, or why none can."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from sparkjet.catalyst.columns import quoted
from sparkjet.connectors.iceberg.partitions import Part, parts_of
from sparkjet.connectors.iceberg.schema import (
    ID,
    check_case,
    ids_of,
    is_by_names,
    named_ids,
    spark_schema,
    widened,
    without_ids,
)
from sparkjet.errors import AnalysisError
from sparkjet.sinks.table_columns import matched

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from sparkjet.connectors.iceberg.version import Version

NAMES = "schema.name-mapping.default"
"""Property with the names by which readers find columns in files without ids."""
_INSTEAD = "Write to another table, or merge the rows yourself in foreachBatch(…)"
_NEWEST = 3
"""The newest version of Iceberg's format that was tested."""
_FILLED = {"write-default", "initial-default"}
"""Defaults that a column gets where files lack it; without the first, a null, which has to be in the files."""


@dataclass(frozen=True)
class Mapped:
    """Where the columns of rows go.

    Attributes:
        columns: The table's columns, by the rows' names, in the order of the rows.
        required: Columns of the table that must not be null, although the rows' may be.
        parts: The fields by which the table is partitioned.
        by_names: Whether the files have no ids.
        whole: Columns of the table whose files contain no null.
    """

    columns: Mapping[str, StructField]
    required: tuple[str, ...]
    parts: tuple[Part, ...]
    by_names: bool
    whole: tuple[str, ...] = ()

    def named(self, rows: DataFrame) -> DataFrame:
        """The rows as they are written: with the table's names, with ids, and with the columns of partitions."""
        written = rows.select(*(self._column(own, field) for own, field in self.columns.items()))
        parts = [part.column(rows.sparkSession) for part in self.parts]
        return written.select("*", *parts) if parts else written

    def partition(self, values: Mapping[str, str | None]) -> dict[str, Any]:
        """The values of partition columns in a path, by the ids of the spec's fields, without nulls."""
        found = {str(part.number): part.value(values[part.name]) for part in self.parts}
        return {number: value for number, value in found.items() if value is not None}

    def _column(self, own: str, field: StructField) -> Column:
        column = F.col(quoted(own))
        if self.by_names:
            return column.cast(without_ids(field.dataType)).alias(field.name)
        return column.cast(field.dataType).alias(field.name, metadata={ID: field.metadata[ID]})


def mapped(table: Version, schema: StructType, where: str) -> Mapped:
    """Where the columns of rows go in an existing table."""
    _check_table(table, where)
    check_case((field["name"] for field in table.schema["fields"]), where)
    columns = spark_schema(table.schema)
    known = {field["name"].lower(): field for field in table.schema["fields"]}
    readable = {name.lower() for name in columns.fieldNames()}
    for field in schema.fields:
        lacking = known.get(field.name.lower())
        if lacking is not None and field.name.lower() not in readable:
            message = (
                f"column {lacking['name']!r} of {where} is {json.dumps(lacking['type'])}, which Spark does not have. "
                "Drop it from the result."
            )
            raise AnalysisError(message)
    widest = widened(schema)
    assert isinstance(widest, StructType)  # noqa: S101 - of a struct comes one
    names = matched(columns, widest, where)
    fields = {own: columns[name] for own, name in names.items()}
    required = [name for own, name in names.items() if schema[own].nullable and not columns[name].nullable]
    for lowered, column in known.items():
        if lowered not in {name.lower() for name in names.values()} and (
            column["required"] or not _FILLED.isdisjoint(column)
        ):
            message = (
                f"{where} needs a value of column {column['name']!r} in every row, and the result has no such column. "
                f'Add it: withColumn("{column["name"]}", …).'
            )
            raise AnalysisError(message)
    parts = parts_of(table.spec, columns, where)
    for part in parts:
        if part.source[0].name not in names.values():
            message = (
                f"{where} is partitioned by column {part.source[0].name!r}, and the result has no such column. Add "
                f'it: withColumn("{part.source[0].name}", …).'
            )
            raise AnalysisError(message)
    by_names = any(is_by_names(field.dataType) for field in fields.values())
    if by_names:
        _check_names(table, fields, where)
    whole = [name for own, name in names.items() if not (schema[own].nullable and columns[name].nullable)]
    return Mapped(fields, tuple(required), tuple(parts), by_names, tuple(whole))


def unfit(table: Version, written: Mapping[str, Any], where: str, *, is_decided: bool = True) -> str | None:
    """Why the files of an epoch do not fit a table that was changed since; None if they do.

    A dropped column is no reason not to add decided files: nothing brings it back, and its values in them are gone as
    in all older files. But files without ids might be read by its name, and keys and partitions might be based on the
    column.
    """
    columns = {field["id"]: field for field in table.schema["fields"]}
    may_lack = is_decided and not written["by_names"] and not written.get("deletes")
    may_lack = may_lack and written["spec"] == table.spec["spec-id"]
    for name, (number, kind) in written["columns"].items():
        column = columns.get(number)
        if column is None and may_lack:
            continue
        if column is None:
            return f"it no longer has a column {name!r}."
        if not _reads(column["type"], kind, by_names=written["by_names"], may_lack=may_lack):
            return f"column {name!r} is {json.dumps(column['type'])} there, and {json.dumps(kind)} in the files."
        if column["required"] and name not in written["required"]:
            return f"column {name!r} is required there."
        if written["by_names"] and name not in _names_of(table, column):
            return f"column {name!r} is called {column['name']!r} there, and the files have names only."
    given = {number for number, _ in written["columns"].values()}
    for number, column in columns.items():
        if number not in given and column["required"] and "initial-default" not in column:
            return f"column {column['name']!r} is required there, and the files lack it."
    return None if written["spec"] in table.specs else f"{where} no longer knows the partitions of the files."


def types_of(table: Version, names: Mapping[str, StructField]) -> dict[str, list[Any]]:
    """A handle's description of the columns: by name, the id and Iceberg's type."""
    known = {field["id"]: field["type"] for field in table.schema["fields"]}
    return {field.name: [field.metadata[ID], known[field.metadata[ID]]] for field in names.values()}


def lacking(table: Version, written: Mapping[str, Any]) -> list[tuple[int, str]]:
    """The ids and names of fields, of any type and nesting, that a table has and an epoch's files lack.

    Args:
        table: The table.
        written: The columns of the files, by :func:`types_of`.
    """
    own = [{"id": number, "name": name, "type": kind} for name, (number, kind) in written.items()]
    given = {number for number, _ in named_ids(own)}
    return [(number, name) for number, name in named_ids(table.schema["fields"]) if number not in given]


def _reads(now: Any, before: Any, *, by_names: bool, may_lack: bool) -> bool:
    """Whether readers of a type can read what was written as another, which may lack fields."""
    if isinstance(now, str) or isinstance(before, str):
        return now == before or _is_promoted(before, now)
    if now["type"] != before["type"]:
        return False
    if now["type"] != "struct":
        parts = ("element",) if now["type"] == "list" else ("key", "value")
        return all(
            now[f"{part}-id"] == before[f"{part}-id"]
            # Nobody has looked for nulls.
            and now.get(f"{part}-required") == before.get(f"{part}-required")
            and _reads(now[part], before[part], by_names=by_names, may_lack=may_lack)
            for part in parts
        )
    there, written = ({field["id"]: field for field in each["fields"]} for each in (now, before))
    return all(
        (
            there[number]["required"] == field["required"]
            and (there[number]["name"] == field["name"] or not by_names)
            and _reads(there[number]["type"], field["type"], by_names=by_names, may_lack=may_lack)
        )
        if number in there
        else may_lack
        for number, field in written.items()
    ) and not any(field["required"] for number, field in there.items() if number not in written)


def _is_promoted(before: Any, now: Any) -> bool:
    """Whether readers accept a type for one to which Iceberg lets a column be promoted."""
    if (before, now) in {("int", "long"), ("float", "double")}:
        return True
    if not (isinstance(before, str) and isinstance(now, str) and before.startswith("decimal")):
        return False
    old, new = (text.removeprefix("decimal(").rstrip(")").split(",") for text in (before, now))
    return now.startswith("decimal") and old[1].strip() == new[1].strip() and int(old[0]) <= int(new[0])


def _check_table(table: Version, where: str) -> None:
    if table.format > _NEWEST:
        message = (
            f"{where} is written in version {table.format} of Iceberg's format, which was not tried here: {_NEWEST} is "
            f"the newest. {_INSTEAD}."
        )
        raise AnalysisError(message)
    if "encryption.key-id" in table.properties:
        raise AnalysisError(f"{where} is encrypted (encryption.key-id), which sparkjet does not support. {_INSTEAD}.")


def _check_names(table: Version, fields: Mapping[str, StructField], where: str) -> None:
    """Refuse a mapping of names that leaves out a column: readers would find nulls."""
    if NAMES not in table.properties:
        return
    known = set(_mapped_ids(json.loads(table.properties[NAMES])))
    numbers = {field.metadata[ID]: field.name for field in fields.values()}
    for field in table.schema["fields"]:
        if field["id"] in numbers and not known.issuperset(ids_of(field)):
            message = (
                f"{where} maps names to columns ({NAMES}) and leaves out {field['name']!r}, which readers would find "
                f"null in files by Spark's writer: it gives no ids to what is in arrays and maps. Unset it: ALTER "
                f"TABLE … UNSET TBLPROPERTIES ('{NAMES}')."
            )
            raise AnalysisError(message)


def _names_of(table: Version, column: Mapping[str, Any]) -> list[str]:
    """The names by which readers find a column in files without ids."""
    mapping = json.loads(table.properties.get(NAMES, "null"))
    if mapping is None:
        return [column["name"]]
    return [name for each in mapping if each.get("field-id") == column["id"] for name in each["names"]]


def _mapped_ids(found: Any) -> Iterator[int]:
    for each in found:
        if "field-id" in each:
            yield each["field-id"]
        yield from _mapped_ids(each.get("fields", ()))
