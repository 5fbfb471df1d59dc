"""Deleting by keys: which tables let an epoch's rows replace older ones, wherever these are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import DecimalType, FractionalType, StructField, StructType

from sparkjet.connectors.iceberg.columns import lacking, unfit
from sparkjet.connectors.iceberg.schema import is_by_names
from sparkjet.connectors.iceberg.version import MAIN, head
from sparkjet.errors import AnalysisError

if TYPE_CHECKING:
    from sparkjet.connectors.iceberg.partitions import Part
    from sparkjet.connectors.iceberg.version import Version

_FIRST = 1
"""The format version without deletes."""


def check_deleting(
    schema: StructType,
    keys: Sequence[str],
    parts: Sequence[Part],
    where: str,
    columns: Mapping[str, StructField] | None = None,
) -> None:
    """Refuse keys whose rows may be where no delete reaches them."""
    for key in keys:
        kind = schema[key].dataType
        if isinstance(kind, FractionalType) and not isinstance(kind, DecimalType):
            message = (
                f"keyColumns: {key!r} is {kind.simpleString()}, by which Iceberg identifies no rows. Cast it to a "
                f'decimal or to a string: withColumn("{key}", F.col("{key}").cast("string")).'
            )
            raise AnalysisError(message)
    names = {key if columns is None else columns[key].name for key in keys}
    for part in parts if keys else ():
        source = part.source[0].name
        if source not in names:
            message = (
                f"keyColumns: {where} is partitioned by {source!r}, which is none of them: an older row of the same "
                f"key may be in another partition, where it would stay. Add {source!r} to keyColumns, or write to a "
                "table that is partitioned by columns of the key."
            )
            raise AnalysisError(message)


def check_identified(schema: StructType, keys: Sequence[str]) -> None:
    """Refuse rows whose files have no ids: not all readers apply deletes by columns to them."""
    found = next((field for field in schema.fields if keys and is_by_names(field.dataType)), None)
    if found is not None:
        message = (
            f"mode=upsert: column {found.name!r} is {found.dataType.simpleString()}, and the files of rows with arrays "
            "and maps have no ids, by which readers find the keys of rows that are replaced. Write it as text: "
            f'withColumn("{found.name}", F.to_json("{found.name}")).'
        )
        raise AnalysisError(message)


def check_deletes(version: Version, spec: int, branch: str, where: str) -> None:
    """Refuse a table in which deletes do not reach all rows."""
    if version.format < _FIRST + 1:
        message = (
            f"mode=upsert: {where} has format version {version.format}, in which no rows are replaced. Upgrade it: "
            "ALTER TABLE … SET TBLPROPERTIES ('format-version'='2')."
        )
        raise AnalysisError(message)
    why = undeletable(version, spec, branch)
    if why is not None:
        raise AnalysisError(f"mode=upsert: {where} cannot be written to: {why}")


def undeletable(version: Version, spec: int, branch: str) -> str | None:
    """Why deletes do not reach all rows of a branch: those by a spec affect only its own files; None if they do."""
    newest = head(version.base, branch)
    if version.base.spec(spec).isUnpartitioned() or newest is None or version.specs == (spec,):
        return None
    for manifest in newest.dataManifests(version.java.io()):
        if manifest.partitionSpecId() != spec and (manifest.hasAddedFiles() or manifest.hasExistingFiles()):
            return (
                "it has files that are partitioned in another way, whose rows would stay. Have them rewritten: "
                "CALL … rewrite_data_files(table => '…', options => map('rewrite-all', 'true'))."
            )
    return None


def unreplaceable(version: Version, written: Mapping[str, Any], branch: str) -> str | None:
    """Why rows of a branch would lose something if an epoch's rows replaced them; None if they would not.

    A column that the epoch lacks has no values yet if the branch's newest snapshot was written without it.
    """
    newest = head(version.base, branch)
    missing = lacking(version, written)
    if newest is None or not missing:
        return None
    schema = version.base.schemasById().get(newest.schemaId())
    for number, name in missing:
        if schema is None or schema.findField(number) is not None:
            return f"the rows of the epoch lack {name!r}, and older ones, which they replace, may have values there."
    return None


def misfit(where: str, version: Version, handle: Mapping[str, Any], *, is_decided: bool = True) -> str | None:
    """Why a version does not take the files of an epoch, rows or keys; None if it does."""
    # In another table the ids of columns and partitions may be those of others.
    if version.uuid != handle["uuid"]:
        return "it was dropped and recreated."
    branch = handle["branch"]
    if branch != MAIN and not version.has_branch(branch):
        return f"it no longer has a branch {branch!r}."
    why = unfit(version, handle, where, is_decided=is_decided)
    if why is None and handle.get("deletes"):
        why = undeletable(version, handle["spec"], branch) or unreplaceable(version, handle["columns"], branch)
    return why
