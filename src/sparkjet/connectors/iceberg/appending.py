"""Appending: from one epoch's files to a version's new metadata."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sparkjet.connectors.iceberg.columns import NAMES
from sparkjet.connectors.iceberg.heard import TOLD
from sparkjet.connectors.iceberg.library import ICEBERG
from sparkjet.connectors.iceberg.version import MAIN, merged_away, written_for
from sparkjet.java import static_method
from sparkjet.query_log import logger
from sparkjet.sinks.jars import said
from sparkjet.storage.hadoop_file_system import JAVA_ERRORS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparkjet.connectors.iceberg.version import Version


@dataclass(frozen=True)
class DataFile:
    """A Parquet file to be added.

    Attributes:
        name: Name relative to the directory of the table's files.
        size: Size in bytes.
        partition: Its values by the ids of the spec's fields, as Iceberg's JSON, without nulls.
        keys: The ids of columns: rows of earlier snapshots with the file's values in them are deleted. Without any, its
            rows are added to the table.
    """

    name: str
    size: int
    partition: Mapping[str, Any]
    keys: tuple[int, ...] = ()


@dataclass(frozen=True)
class Addition:
    """A snapshot's addition to a table: the files of one epoch, or of several.

    Attributes:
        data: The location of the files.
        files: The files, which must exist.
        spec: The id of the spec by which they are partitioned.
        by_names: Whether the files have no ids.
        branch: The branch that gets them.
    """

    data: str
    files: Sequence[DataFile]
    spec: int
    by_names: bool
    branch: str = MAIN


def appended(
    session: SparkSession, version: Version, added: Addition, application: str, told: Mapping[str, Any]
) -> Any:
    """The metadata of a version with files added; only a commit makes it the table's."""
    java, transaction = version.java, version.transaction
    partitions = version.base.spec(added.spec)
    config = static_method(session, f"{ICEBERG}.MetricsConfig.forTable")(java)
    if added.branch != MAIN:
        # Readers of the main one get no rows of it, and would wait for its watermark.
        told = {**told, "branch": added.branch}
    names_told = ("epoch", "transaction", "earlier", "watermark", "run", "branch")
    text = json.dumps({key: told[key] for key in names_told if key in told})
    properties = transaction.updateProperties().set(application, text)
    names = None
    if added.by_names:
        names = _names(session, version)
        properties.set(NAMES, static_method(session, f"{ICEBERG}.mapping.NameMappingParser.toJson")(names))
    properties.commit()
    deletes = any(file.keys for file in added.files)
    change = (transaction.newRowDelta() if deletes else transaction.newAppend()).set(TOLD, json.dumps(told))
    if added.branch != MAIN:
        change = change.toBranch(added.branch)
    of_rows = static_method(session, f"{ICEBERG}.DataFiles.builder")
    of_keys = static_method(session, f"{ICEBERG}.FileMetadata.deleteFileBuilder")
    footer = static_method(session, f"{ICEBERG}.parquet.ParquetUtil.fileMetrics")
    value = static_method(session, f"{ICEBERG}.SingleValueParser.fromJson")
    for file in added.files:
        path = f"{added.data}/{file.name}"
        place = java.io().newInputFile(path)
        metrics = footer(place, config) if names is None or file.keys else footer(place, config, names)
        made = of_keys(partitions).ofEqualityDeletes(_ints(session, file.keys)) if file.keys else of_rows(partitions)
        made = made.withPath(path).withFileSizeInBytes(file.size).withFormat("parquet")
        if partitions.isPartitioned():
            made = made.withPartition(value(partitions.partitionType(), json.dumps(file.partition)))
        whole = made.withMetrics(metrics).build()
        if file.keys:
            change.addDeletes(whole)
        else:
            (change.addRows if deletes else change.appendFile)(whole)
    change.commit()
    return transaction.currentMetadata()


def data_files(
    files: Sequence[tuple[str, int]], partitions: Sequence[Mapping[str, Any]], keys: tuple[int, ...] = ()
) -> list[DataFile]:
    """The files of an epoch, each with the values of its partition."""
    return [DataFile(name, size, values, keys) for (name, size), values in zip(files, partitions, strict=True)]


def tidy(version: Version, metadata: Any, *, lost: bool) -> None:
    """Remove what Iceberg wrote for metadata that no version names; anything that stays is not part of the table."""
    try:
        written = written_for(version, metadata)
        for path in [*merged_away(written), *(written if lost else ())]:
            version.java.io().deleteFile(path)
    except JAVA_ERRORS as error:
        logger.warning("Manifests that no version of an Iceberg table names are left: %s", said(error))


def _ints(session: SparkSession, numbers: Sequence[int]) -> Any:
    gateway: Any = session.sparkContext._gateway
    array = gateway.new_array(gateway.jvm.int, len(numbers))
    for place, number in enumerate(numbers):
        array[place] = number
    return array


def _names(session: SparkSession, version: Version) -> Any:
    """The mapping of names, the table's own if it has one."""
    text = version.properties.get(NAMES)
    if text is not None:
        return static_method(session, f"{ICEBERG}.mapping.NameMappingParser.fromJson")(text)
    return static_method(session, f"{ICEBERG}.mapping.MappingUtil.create")(version.base.schema())
