"""Reading rows back from files: the only place that reads files with Spark."""

from __future__ import annotations

import errno
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from sparkjet.java import as_map, java_class, nothing, static_method
from sparkjet.storage.collations import collated, uncollated
from sparkjet.storage.directory import HoldsRows
from sparkjet.storage.field_names import unnumbered
from sparkjet.storage.paths import CHECKING
from sparkjet.storage.read_back import active, for_read_back, in_session
from sparkjet.storage.write_job import DATASOURCES, FORMATS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparkjet.storage.directory import Directory

_INDEX = f"{DATASOURCES}.InMemoryFileIndex"
_BETWEEN = "\0"


def read(
    session: SparkSession,
    directory: Directory,
    files: Sequence[str],
    *,
    file_format: str = "parquet",
    options: Mapping[str, str] = CHECKING,
    schema: StructType | None = None,
    read_back: bool = True,
) -> DataFrame:
    """The rows of files that a :class:`~sparkjet.storage.file_writer.FileWriter` has written below a directory.

    Does not use ``DataFrameReader``, which takes names for patterns: below a directory called ``a[b]`` it would find
    nothing, below ``a*`` the files of all directories that begin with ``a``. Its own option to prevent this reads each
    file as many times as there are files.
    """
    if isinstance(directory, HoldsRows):
        return unnumbered(directory.read_rows(session, files))
    listing = for_read_back(session)
    reading = listing if read_back else session
    java = reading._jsparkSession
    named = as_map(session, {**options, "basePath": directory.uri()}.items())
    # Spark cannot convert the name of a directory to a string with a collation, and its ORC reader has no collations.
    given = nothing(session) if schema is None else _some(session, java.parseDataType(uncollated(schema).json()))
    defaults = [static_method(session, f"{_INDEX}.$lessinit$greater$default${number}")() for number in (5, 6, 7)]
    paths = _paths(session, directory, files)
    with active(listing):
        index = java_class(session, _INDEX)(listing._jsparkSession, paths, named, given, *defaults)
    found = index.allFiles()
    if found.size() < len(files):
        # Spark would leave it out.
        missing = next((file for file in files if not directory.exists(file)), files[0])
        raise FileNotFoundError(errno.ENOENT, "no such file", directory.uri(missing))
    reader = java_class(session, f"{DATASOURCES}.{FORMATS[file_format]}")()
    partitions = index.partitionSchema()
    if schema is None:
        columns = reader.inferSchema(java, named, found).get()
    else:
        levels = set(map(str, partitions.fieldNames()))
        stored = StructType([field for field in schema.fields if field.name not in levels])
        columns = java.parseDataType((uncollated(stored) if file_format == "orc" else stored).json())
    relation = java_class(session, f"{DATASOURCES}.HadoopFsRelation")(
        index, partitions, columns.asNullable(), nothing(session), reader, named, java
    )
    rows = in_session(session, DataFrame(java.baseRelationToDataFrame(relation), reading))
    if schema is not None:
        rows = collated(rows, schema)
    return unnumbered(rows) if read_back else rows


def _paths(session: SparkSession, directory: Directory, files: Sequence[str]) -> Any:
    """The paths of files, created in a few JVM calls however many there are."""
    joined = _BETWEEN.join(map(directory.uri, files))
    names = static_method(session, "org.apache.commons.lang3.StringUtils.split")(joined, _BETWEEN)
    paths = static_method(session, "org.apache.hadoop.util.StringUtils.stringToPath")(names)
    return static_method(session, "scala.collection.immutable.ArraySeq.unsafeWrapArray")(paths)


def _some(session: SparkSession, value: Any) -> Any:
    return static_method(session, "scala.Option.apply")(value)
