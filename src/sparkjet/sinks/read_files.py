"""Reading the output of the file sink, in whole epochs, whose schemas may differ."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    DataType,
    MapType,
    StringType,
    StructField,
    StructType,
    _parse_datatype_json_string,
)

from sparkjet.catalyst.columns import quoted
from sparkjet.errors import AnalysisError, refuse_connect
from sparkjet.java import static_method
from sparkjet.sinks.manifest import Manifest
from sparkjet.sinks.spark_list import LIST, SparkList
from sparkjet.storage.file_reader import read
from sparkjet.storage.schemes import directory_at

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from sparkjet.sinks.manifest import ManifestEntry
    from sparkjet.storage.directory import Directory


_UPCAST = "org.apache.spark.sql.types.UpCastRule.canUpCast"
_WIDER = "org.apache.spark.sql.catalyst.analysis.AnsiTypeCoercion.findWiderTypeForTwo"


def read_files(path: str | Path, schema: StructType | str | None = None) -> DataFrame:
    """Read a directory written by ``format("files")``, wherever it is: only epochs that are completely published.

    A plain ``spark.read`` sees each file as soon as it is renamed into place; this reads the manifest instead.
    Needs an active Spark session; the files are listed once, when this is called.

    Each epoch is read with the format, options, schema and partition columns that it was written with, and the columns
    of all are united by name, those of the newest epoch first: a column that an epoch does not have is null there. A
    type that has changed becomes the one that Spark's ``UNION`` would widen both to, or ``string`` if one of them is.

    In a directory that was taken over from Spark's file sink (``adopt``), those that its list names are read as well.

    Args:
        path: The directory.
        schema: The columns to read, with the types to cast them to; all of them by default.

    Raises:
        AnalysisError: If no query has written there, it cannot be read, or a type has changed to one that does not go
            with it, which only ``schema`` can settle. Or the session belongs to Spark Connect.
    """
    session = SparkSession.active()
    refuse_connect("read_files", session)
    return read_epochs(session, directory_at(str(path), "read_files", lambda: session), schema)


def read_epochs(
    session: SparkSession,
    directory: Directory,
    schema: StructType | str | None = None,
    *,
    of: tuple[str, str] | None = None,
    until: int | None = None,
) -> DataFrame:
    """The same of one query's output, and of its epochs up to one; None for all."""
    try:
        manifests = [each for each in Manifest.all_of(directory) if of in {None, (each.query, each.sink)}]
        entries = [entry for manifest in manifests for entry in manifest.entries()]
        if of is None and entries and directory.exists(LIST):
            # Of before the directory was taken over: by the same query, as far as its readers know.
            own = {file for entry in entries for file in entry.files}
            before = [file for file in SparkList(directory).files() if file not in own]
            entries.append(msgspec.structs.replace(entries[0], epoch=-1, committed=None, files=before))
    except OSError as error:
        raise AnalysisError(f'read_files: "{directory}" cannot be read: {error.strerror or error}') from error
    entries = [entry for entry in entries if until is None or entry.epoch <= until]
    if not entries:
        raise AnalysisError(f"read_files: {directory} has no manifest: no sparkjet query has published an epoch there.")
    groups: dict[tuple[bytes, tuple[str, ...]], tuple[ManifestEntry, list[str]]] = {}
    # Epochs of different queries do not compare.
    for entry in sorted(entries, key=lambda each: (each.committed or 0, each.epoch), reverse=True):
        settings = msgspec.json.encode((entry.format, entry.schema, sorted(entry.options.items())))
        for file in entry.files:
            groups.setdefault((settings, _partition_columns(file)), (entry, []))[1].append(file)
    try:
        frames = [_read(session, directory, *group) for group in groups.values()]
    except FileNotFoundError as error:
        message = (
            f"read_files: {error.filename} is in the manifest of {directory}, but is missing. Restore the file. With "
            "the option retention, old epochs leave the manifest before their files are deleted."
        )
        raise AnalysisError(message) from error
    wanted = session.createDataFrame([], schema).schema if schema else None
    if not frames:
        # All that was published has told the watermark.
        return session.createDataFrame([], wanted or StructType.fromJson(entries[-1].schema))
    return _united(frames, wanted, f"read_files: {directory}")


_READING = {"csv": {"multiLine": "true"}}
"""Options that only readers need: a line break within a value ends no row."""


def _read(session: SparkSession, directory: Directory, entry: ManifestEntry, files: list[str]) -> DataFrame:
    return read(
        session,
        directory,
        files,
        file_format=entry.format,
        options={**_READING.get(entry.format, {}), **entry.options},
        schema=StructType.fromJson(entry.schema),
        read_back=False,
    )


def _partition_columns(file: str) -> tuple[str, ...]:
    """The names of the columns that are directories, as a file's name has them."""
    return tuple(level.partition("=")[0] for level in file.split("/")[:-1])


def _united(frames: Sequence[DataFrame], schema: StructType | None, what: str) -> DataFrame:
    """All rows of several DataFrames: columns are found by name, null where one is lacking, and types are widened."""
    session = frames[0].sparkSession
    types = _Types(session, what, exact=session.conf.get("spark.sql.caseSensitive") == "true")
    if schema is None and len(frames) == 1:
        return frames[0]
    wanted = schema or reduce(types.merged, (frame.schema for frame in frames))
    return reduce(lambda one, other: one.union(other), [types.shaped(frame, wanted) for frame in frames])


@dataclass(frozen=True)
class _Types:
    """Common types, and conversion of values to them.

    Attributes:
        session: The session whose rules they follow.
        what: The beginning of messages.
        exact: Whether names are case-sensitive.
    """

    session: SparkSession
    what: str
    exact: bool

    def shaped(self, frame: DataFrame, wanted: StructType) -> DataFrame:
        """The rows with the columns of a schema."""
        have = self._by_name(frame.schema)
        return frame.select(*(self._field(lambda name: F.col(quoted(name)), have, each) for each in wanted.fields))

    def merged(self, one: StructType, other: StructType, within: str = "") -> StructType:
        """A struct with the fields of both."""
        mine, theirs = self._by_name(one), self._by_name(other)
        fields = [
            each if name not in theirs else self._common(each, theirs[name], f"{within}{quoted(each.name)}")
            for name, each in mine.items()
        ]
        fields += [each for name, each in theirs.items() if name not in mine]
        return StructType([StructField(each.name, each.dataType) for each in fields])

    def _common(self, one: StructField, other: StructField, path: str) -> StructField:
        return StructField(one.name, self._type(one.dataType, other.dataType, path))

    def _type(self, one: DataType, other: DataType, path: str) -> DataType:
        if one == other:
            return one
        if isinstance(one, StructType) and isinstance(other, StructType):
            return self.merged(one, other, f"{path}.")
        if isinstance(one, ArrayType) and isinstance(other, ArrayType):
            return ArrayType(self._type(one.elementType, other.elementType, path))
        if isinstance(one, MapType) and isinstance(other, MapType):
            key = self._type(one.keyType, other.keyType, path)
            return MapType(key, self._type(one.valueType, other.valueType, path))
        found = self._wider(one, other)
        if found is None:
            message = (
                f"{self.what}: the column {path} is {other.simpleString()} in some epochs and {one.simpleString()} in "
                "others, and no type holds both. Name the columns to read with the types to cast them to, as "
                'read_files(path, schema="k string, …"), or leave the column out there.'
            )
            raise AnalysisError(message)
        return found

    def _wider(self, one: DataType, other: DataType) -> DataType | None:
        java = [self.session._jsparkSession.parseDataType(each.json()) for each in (one, other)]
        for text, (given, target) in ((other, java), (one, java[::-1])):
            if isinstance(text, StringType) and static_method(self.session, _UPCAST)(given, target):
                # Spark's own rule would turn the strings into numbers.
                return text
        if isinstance(one, StringType) or isinstance(other, StringType):
            return None
        found: Any = static_method(self.session, _WIDER)(*java)
        return _parse_datatype_json_string(found.get().json()) if found.isDefined() else None

    def _field(self, get: Callable[[str], Column], have: dict[str, StructField], want: StructField) -> Column:
        field = have.get(self._key(want.name))
        value = F.lit(None) if field is None else get(field.name)
        given = None if field is None else field.dataType
        return self._converted(value, given, want.dataType).alias(want.name)

    def _converted(self, value: Column, have: DataType | None, want: DataType) -> Column:
        if have == want:
            return value
        if isinstance(have, StructType) and isinstance(want, StructType):
            fields = self._by_name(have)
            made = F.struct(*(self._field(value.getField, fields, each) for each in want.fields))
            return F.when(value.isNotNull(), made)
        if isinstance(have, ArrayType) and isinstance(want, ArrayType):
            return F.transform(value, lambda each: self._converted(each, have.elementType, want.elementType))
        if isinstance(have, MapType) and isinstance(want, MapType):
            return F.map_from_entries(
                F.transform(
                    F.map_entries(value),
                    lambda each: F.struct(
                        self._converted(each["key"], have.keyType, want.keyType),
                        self._converted(each["value"], have.valueType, want.valueType),
                    ),
                )
            )
        return value.cast(want)

    def _by_name(self, struct: StructType) -> dict[str, StructField]:
        found = {self._key(each.name): each for each in struct.fields}
        if len(found) < len(struct.fields):
            # One of them would be lost, or Spark would report them as ambiguous.
            alike = ", ".join(quoted(each.name) for each in struct.fields if found[self._key(each.name)] is not each)
            message = (
                f"{self.what}: epochs have names that differ from others only by case: {alike}. Read them in a session "
                "with spark.sql.caseSensitive=true."
            )
            raise AnalysisError(message)
        return found

    def _key(self, name: str) -> str:
        return name if self.exact else name.lower()
