"""Iceberg's own library, called in the session's JVM: tables by path, and by name in a catalog."""

from __future__ import annotations

import gzip
import json
import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4
from weakref import WeakKeyDictionary

from sparkjet.catalyst.logical_plans import listed
from sparkjet.connectors.iceberg.columns import NAMES
from sparkjet.connectors.iceberg.version import Version, added_snapshots, number_of, written_for
from sparkjet.errors import AnalysisError, SinkError
from sparkjet.java import java_class, static_method
from sparkjet.query_log import logger
from sparkjet.sinks.jars import enter, is_a, said
from sparkjet.spark_line import RELEASE
from sparkjet.storage.hadoop_file_system import JAVA_ERRORS
from sparkjet.storage.posix_directory import PosixDirectory
from sparkjet.storage.schemes import directory_at

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparkjet.storage.directory import Directory

ICEBERG = "org.apache.iceberg"
_ERRORS = f"{ICEBERG}.exceptions"
_NEEDED = f"{ICEBERG}.hadoop.HadoopTables", f"{ICEBERG}.parquet.ParquetUtil"
_PACKAGE = (
    f"{ICEBERG}:iceberg-spark-runtime-4.0_2.13:1.11.0"
    if RELEASE.startswith("4.0.")
    else f"{ICEBERG}:iceberg-spark-runtime-4.1_2.13:1.12.0"
)
_LACKING = (
    'format("iceberg") needs Iceberg\'s library, which Spark does not have. Set spark.jars.packages to '
    f"{_PACKAGE} before the session is created."
)
_MISSING = f"{_ERRORS}.NoSuchTableException", f"{_ERRORS}.NoSuchNamespaceException"
_THERE = (f"{_ERRORS}.AlreadyExistsException",)
_CONFLICT = (f"{_ERRORS}.CommitFailedException",)
_NO_VERSION = (f"{_ERRORS}.ValidationException",)
METADATA = "metadata"
_HINT = "version-hint.text"


class IcebergTable(ABC):
    """A table, on the driver.

    Args:
        session: The session, whose JVM has Iceberg's jar.
    """

    def __init__(self, session: SparkSession) -> None:
        self._session = session

    @property
    @abstractmethod
    def place(self) -> str:
        """Its name in handles: a directory, or a table name."""

    @property
    def directory(self) -> Directory | None:
        """Its directory, None if its catalog determines it."""
        return None

    def version(self) -> Version | None:
        """Its current version, None if there is no table."""
        self.enter()
        try:
            java = self._load()
            if java is None:
                return None
            return self._version(java)
        except JAVA_ERRORS as error:
            if is_a(error, *_MISSING):
                return None
            raise SinkError(self.explained(error)) from error

    def is_changed(self, version: Version) -> bool:
        """Whether it may differ from a version in what files are written by; called before each epoch.

        It takes one request, and for a table by path as many as there are new versions.
        """
        self.enter()
        try:
            now = version.java.operations().refresh()
        except JAVA_ERRORS:
            # A full look tells why.
            return True
        return now is None or _written_by(now) != _written_by(version.base)

    def create(self, schema: Mapping[str, Any], spec: Mapping[str, Any]) -> None:
        """Create it unless another process does so first."""
        self.enter()
        try:
            self._create(*self._definition(schema, spec))
        except JAVA_ERRORS as error:
            if not is_a(error, *_THERE):
                raise SinkError(self.explained(error)) from error

    def try_to_create(self, schema: Mapping[str, Any], spec: Mapping[str, Any]) -> None:
        """Have Iceberg check the schema and partitions of a new table; nothing is written."""
        self.enter()
        try:
            self._definition(schema, spec)
        except JAVA_ERRORS as error:
            raise AnalysisError(self.explained(error)) from error

    def commit(self, version: Version, metadata: Any) -> bool:
        """Replace a version's metadata, at most once; returns False if the version is no longer the newest."""
        self.enter()
        try:
            return self._commit(version, metadata)
        except JAVA_ERRORS as error:
            if is_a(error, *_CONFLICT):
                return False
            raise SinkError(self.explained(error)) from error

    def enter(self) -> None:
        """Make Iceberg's classes visible to this JVM thread."""
        enter(self._session, _NEEDED, _LACKING)

    def explained(self, error: Exception) -> str:
        """An exception's message about this table."""
        return f"Iceberg's table {self.place}: {said(error)}"

    @abstractmethod
    def _load(self) -> Any:
        """Iceberg's table; returns None, or raises, if there is none."""

    @abstractmethod
    def _create(self, schema: Any, spec: Any) -> None:
        """Create it; raises if it exists."""

    @abstractmethod
    def _commit(self, version: Version, metadata: Any) -> bool:
        """Replace a version's metadata."""

    def _definition(self, schema: Mapping[str, Any], spec: Mapping[str, Any]) -> tuple[Any, Any]:
        columns = static_method(self._session, f"{ICEBERG}.SchemaParser.fromJson")(json.dumps(schema))
        return columns, static_method(self._session, f"{ICEBERG}.PartitionSpecParser.fromJson")(
            columns, json.dumps(spec)
        )

    def _settings(self) -> Any:
        return self._session._jsparkSession.sessionState().newHadoopConf()

    def _version(self, java: Any) -> Version:
        # A commit replaces what it begins with, and nothing newer.
        transaction = java.newTransaction()
        base = transaction.startMetadata()
        of_schema = static_method(self._session, f"{ICEBERG}.SchemaParser.toJson")
        of_spec = static_method(self._session, f"{ICEBERG}.PartitionSpecParser.toJson")
        properties = dict(base.properties())
        location = str(base.location()).rstrip("/")
        return Version(
            schema=json.loads(of_schema(base.schema())),
            spec=json.loads(of_spec(base.spec())),
            specs=tuple(each.specId() for each in base.specs()),
            properties=properties,
            data=properties.get("write.data.path", f"{location}/data").rstrip("/"),
            java=java,
            transaction=transaction,
            base=base,
            format=base.formatVersion(),
        )


class PathTable(IcebergTable):
    """A table by directory.

    Its metadata is put by our own directory, in which each has one winner among any number of processes. Iceberg's own
    commit guarantees this only on HDFS: on a path it looks and then renames, and on S3 it has a lock in the JVM.

    Args:
        session: The session.
        directory: Directory of the table.
    """

    def __init__(self, session: SparkSession, directory: Directory) -> None:
        super().__init__(session)
        self._directory = directory

    @property
    def place(self) -> str:
        """See :attr:`IcebergTable.place`."""
        return str(self._directory)

    @property
    def directory(self) -> Directory:
        """See :attr:`IcebergTable.directory`."""
        return self._directory

    @property
    def _location(self) -> str:
        """The location as Iceberg takes it: Hadoop's paths are not encoded."""
        path = self._directory.path
        return self._directory.uri() if path is None else f"file://{path}"

    def _load(self) -> Any:
        load = java_class(self._session, f"{ICEBERG}.hadoop.HadoopTables")(self._settings()).load
        try:
            return load(self._location)
        except JAVA_ERRORS as error:
            # The hint may name a removed version: that of a writer that slept between its version and its hint.
            if not is_a(error, *_NO_VERSION) or not _hint_again(self._directory.below(METADATA)):
                raise
        return load(self._location)

    def _create(self, schema: Any, spec: Any) -> None:
        made = java_class(self._session, "java.util.HashMap")()
        new = static_method(self._session, f"{ICEBERG}.TableMetadata.newTableMetadata")
        metadata = new(schema, spec, self._location, made)
        self._directory.below(METADATA).create()
        self._put(1, metadata)

    def _commit(self, version: Version, metadata: Any) -> bool:
        # Iceberg leaves them to the operating system: after a power failure the table would name missing files.
        written = (path.rpartition("/")[2] for path in written_for(version, metadata))
        self._directory.below(METADATA).sync(written)
        if not self._put(version.number + 1, metadata, version):
            return False
        # As Iceberg does after its own commits.
        removed = static_method(self._session, f"{ICEBERG}.CatalogUtil.deleteRemovedMetadataFiles")
        removed(version.java.io(), version.base, metadata)
        return True

    def _is_late(self, version: Version, metadata: Any, name: str) -> bool:
        """Whether a version was put long after another one of the same number, which has been removed since.

        To readers it would be the newest, and everything after the other one would be lost. The oldest are removed
        first, so its base is gone then.
        """
        place = self._directory.below(METADATA)
        if place.exists(str(version.base.metadataFileLocation()).rpartition("/")[2]):
            return False
        if _newest(place) == number_of(name):
            return False
        _hint_again(place)
        there = self._load().operations().current()
        if any(there.snapshot(own.snapshotId()) is not None for own in added_snapshots(metadata)):
            return False
        place.remove(name)
        return True

    def _put(self, number: int, metadata: Any, base: Version | None = None) -> bool:
        content = static_method(self._session, f"{ICEBERG}.TableMetadataParser.toJson")(metadata).encode()
        codec = metadata.property("write.metadata.compression-codec", "none")
        if codec.lower() == "gzip":
            content = gzip.compress(content)
        ending = static_method(self._session, f"{ICEBERG}.TableMetadataParser.getFileExtension")(codec)
        place, name = self._directory.below(METADATA), f"v{number}{ending}"
        if not place.put(name, content) or (base is not None and self._is_late(base, metadata, name)):
            return False
        _hint(place, number)
        if not place.exists(name):
            # We slept here until it was removed; readers would look for it forever.
            _hint_again(place)
        return True


def _hint_again(metadata: Directory) -> bool:
    """Point readers to the newest existing version; returns False if there is none."""
    newest = _newest(metadata)
    if newest:
        _hint(metadata, newest)
    return newest > 0


def _newest(metadata: Directory) -> int:
    """The number of the newest existing version, 0 if there is none."""
    return max((number_of(name) or 0 for name in metadata.names()), default=0)


def _hint(metadata: Directory, number: int) -> None:
    """Tell readers at which version to begin; they continue to the newest, and search for it if told nothing."""
    content = str(number).encode()
    try:
        if metadata.path is None:
            metadata.write(_HINT, content)
        else:
            # Two that write into one file at once may leave 90 from 9 and 10: no reader finds that version.
            own = f"{uuid4()}-{_HINT}"
            metadata.write(own, content)
            # The checksum of a hint by Hadoop's writer: with it, ours would look damaged, and readers would list all
            # files.
            (metadata.path / f".{_HINT}.crc").unlink(missing_ok=True)
            metadata.rename(own, _HINT)
    except OSError as error:
        # The version is the table's already.
        logger.warning("%s is left as it was: %s", metadata.uri(_HINT), error)


class CatalogTable(IcebergTable):
    """A table in a catalog that is configured in Spark; the catalog itself is created by Iceberg.

    Spark's own catalog classes are not used, as there are none for some lines.

    Args:
        session: The session.
        name: Catalog, namespace and table, separated by dots.
    """

    def __init__(self, session: SparkSession, name: str) -> None:
        super().__init__(session)
        self._name = name

    @property
    def place(self) -> str:
        """See :attr:`IcebergTable.place`."""
        return self._name

    @cached_property
    def _parts(self) -> list[str]:
        """The catalog and the names within it."""
        try:
            parsed = self._session._jsparkSession.sessionState().sqlParser().parseMultipartIdentifier(self._name)
        except JAVA_ERRORS as error:
            raise AnalysisError(f'toTable: "{self._name}" is not the name of a table: {said(error)}') from error
        parts = [str(part) for part in listed(parsed)]
        if len(parts) < _SHORTEST:
            message = (
                f'toTable: "{self._name}" is not a table of an Iceberg catalog. Give the catalog, the namespace and '
                'the table: toTable("lake.db.events"), with spark.sql.catalog.lake and its options set.'
            )
            raise AnalysisError(message)
        return parts

    @cached_property
    def _catalog(self) -> Any:
        name, prefix = self._parts[0], f"spark.sql.catalog.{self._parts[0]}."
        settings = {
            key.removeprefix(prefix): value
            for key, value in self._session.conf.getAll.items()
            if key.startswith(prefix)
        }
        if not settings:
            message = (
                f'toTable: there is no catalog "{name}" of Iceberg\'s: {prefix}type (hadoop, hive, rest, jdbc, …) and '
                "its options are not set. Set them before the session is created."
            )
            raise AnalysisError(message)
        with _making:
            made = _made.setdefault(self._session, {})
            key = name, frozenset(settings.items())
            if key not in made:
                made[key] = self._make(name, settings)
            return made[key]

    def _make(self, name: str, settings: Mapping[str, str]) -> Any:
        hadoop, options = self._settings(), java_class(self._session, "java.util.HashMap")()
        for key, value in settings.items():
            if not key.startswith(_HADOOP):
                options.put(key, value)
                continue
            own = key.removeprefix(_HADOOP)
            if own.startswith("fs.") and hadoop.get(own) != value:
                # Spark writes the files of rows with the session's.
                message = (
                    f"toTable: spark.sql.catalog.{name}.{key} is for the metadata of the catalog {name} only, and the "
                    f"files of rows need it too. Set spark.hadoop.{own} before the session is created."
                )
                raise AnalysisError(message)
            hadoop.set(own, value)
        make = static_method(self._session, f"{ICEBERG}.CatalogUtil.buildIcebergCatalog")
        try:
            return make(name, options, hadoop)
        except JAVA_ERRORS as error:
            message = f"toTable: Iceberg cannot open the catalog {name} (spark.sql.catalog.{name}.*): {said(error)}"
            raise AnalysisError(message) from error

    @cached_property
    def _identifier(self) -> Any:
        names = self._parts[1:]
        gateway: Any = self._session.sparkContext._gateway
        array = gateway.new_array(gateway.jvm.java.lang.String, len(names))
        for number, name in enumerate(names):
            array[number] = name
        return static_method(self._session, f"{ICEBERG}.catalog.TableIdentifier.of")(array)

    def _load(self) -> Any:
        return self._catalog.loadTable(self._identifier)

    def _create(self, schema: Any, spec: Any) -> None:
        self._catalog.buildTable(self._identifier, schema).withPartitionSpec(spec).create()

    def _commit(self, version: Version, metadata: Any) -> bool:
        version.java.operations().commit(version.base, metadata)
        return True


def _written_by(metadata: Any) -> list[Any]:
    """The parts of metadata by which files are written."""
    return [
        str(metadata.uuid()),
        metadata.formatVersion(),
        metadata.currentSchemaId(),
        metadata.defaultSpecId(),
        metadata.specs().size(),
        metadata.property(NAMES, ""),
    ]


_SHORTEST = 3
_HADOOP = "hadoop."
_made: WeakKeyDictionary[SparkSession, dict[tuple[str, frozenset[tuple[str, str]]], Any]] = WeakKeyDictionary()
"""Catalogs live as long as their session, as in Spark: each has connections and threads."""
_making = threading.Lock()


def table_at(place: str, session: SparkSession) -> IcebergTable:
    """A table by its name in handles, which for a directory is a full path."""
    if "/" not in place:
        return CatalogTable(session, place)
    return PathTable(session, directory_at(place, "path", lambda: session))


def data_directory(session: SparkSession, version: Version, option: str) -> Directory:
    """The directory of a table's files."""
    location = version.data
    if "://" not in location or location.startswith("file:"):
        # Without a scheme, it is on Hadoop's default file system, and what that calls a path is not encoded.
        path = java_class(session, "org.apache.hadoop.fs.Path")(location)
        settings = session._jsparkSession.sessionState().newHadoopConf()
        location = str(path.getFileSystem(settings).makeQualified(path).toString())
        if location.startswith("file:"):
            return PosixDirectory(Path("/" + location.removeprefix("file:").lstrip("/")))
    return directory_at(location, option, lambda: session)
