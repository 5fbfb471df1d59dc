"""Delta Kernel: Delta's own library, called in the session's JVM; Spark needs no connector for it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from py4j.java_gateway import get_field
from pyspark.sql.types import StructType

from sparkjet.connectors.delta.log_committer import DEFAULTS, KERNEL, LOG, LogCommitter
from sparkjet.connectors.delta.mapping import in_files, name_in_files
from sparkjet.connectors.delta.partitions import literal
from sparkjet.connectors.delta.statistics import as_json
from sparkjet.errors import AnalysisError, SinkError
from sparkjet.java import java_class, static_method
from sparkjet.query_log import logger
from sparkjet.sinks.jars import enter, is_a, said
from sparkjet.sinks.parquet_footer import ParquetFooter
from sparkjet.storage.hadoop_file_system import JAVA_ERRORS
from sparkjet.time.frames import MIN

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparkjet.storage.directory import Directory

_ADDED = 0
"""Position of the action that added a file in Kernel's row."""
_PACKAGES = ",".join(
    f"io.delta:{name}:4.4.0" for name in ("delta-kernel-api", "delta-kernel-defaults", "delta-storage")
)
_NEEDED = f"{KERNEL}.TableManager", f"{DEFAULTS}.engine.DefaultEngine", "io.delta.storage.LogStore"
_LACKING = (
    'format("delta") needs Delta Kernel, which Spark does not have. Set spark.jars.packages to '
    f"{_PACKAGES} before the session is created."
)
_NOT_FOUND = "io.delta.kernel.exceptions.TableNotFoundException"
_FOUND = "io.delta.kernel.exceptions.TableAlreadyExistsException"
_CONFLICTS = (
    "io.delta.kernel.exceptions.ConcurrentWriteException",
    "io.delta.kernel.exceptions.ConcurrentTransactionException",
    "io.delta.kernel.exceptions.MetadataChangedException",
    "io.delta.kernel.exceptions.ProtocolChangedException",
)


@dataclass(frozen=True)
class DataFile:
    """A Parquet file to be added.

    Attributes:
        name: Name relative to the table.
        size: Size in bytes.
        values: Values of the partition columns, as Spark writes them into paths; None for null.
    """

    name: str
    size: int
    values: Mapping[str, str | None]


@dataclass(frozen=True)
class ActiveFile:
    """A Parquet file in a version.

    Attributes:
        name: Name relative to the table; absolute if it belongs to another table.
        size: Size in bytes.
        values: Values of the partition columns, as in the log; None for null.
        statistics: Its statistics in the log, None if there are none.
        has_deleted: Whether some of its rows are marked as deleted.
        java: Kernel's row for it.
    """

    name: str
    size: int
    values: Mapping[str, str | None]
    statistics: str | None
    has_deleted: bool
    java: Any


@dataclass(frozen=True)
class Version:
    """A version of a table.

    Attributes:
        number: Its number.
        schema: Its schema, with the metadata of columns.
        partition_by: Its partition columns.
        properties: The table's properties.
        features: The table's features that writers must support.
        java: Kernel's snapshot.
        committer: Puts additions to it into the log.
    """

    number: int
    schema: StructType
    partition_by: tuple[str, ...]
    properties: Mapping[str, str]
    features: tuple[str, ...]
    java: Any
    committer: LogCommitter


class DeltaTable:
    """A table, on the driver.

    Versions are put into its log by our own directory, in which each has one winner among any number of processes.
    Delta's stores guarantee this only on HDFS: on a path they look and then rename, and on S3 they have a lock in the
    JVM.

    Args:
        session: The session, whose JVM has Kernel's jars.
        directory: Directory of the table.
    """

    def __init__(self, session: SparkSession, directory: Directory) -> None:
        self._session, self._directory = session, directory
        self.log = directory.below(LOG)

    def version(self) -> Version | None:
        """The newest version, None if there is no table."""
        self._enter()
        committer = LogCommitter(self._session, self._directory)
        try:
            found = static_method(self._session, f"{KERNEL}.TableManager.loadSnapshot")(self._place)
            java = found.withCommitter(committer).build(self._engine())
        except JAVA_ERRORS as error:
            if is_a(error, _NOT_FOUND):
                return None
            raise SinkError(self._explained(error)) from error
        protocol = java.getProtocol()
        written = static_method(self._session, f"{KERNEL}.internal.types.DataTypeJsonSerDe.serializeStructType")
        return Version(
            java.getVersion(),
            StructType.fromJson(json.loads(written(java.getSchema()))),
            tuple(java.getPartitionColumnNames()),
            dict(java.getTableProperties()),
            tuple(sorted(protocol.getWriterFeatures())),
            java,
            committer,
        )

    def create(self, schema: StructType, partition_by: Sequence[str], by: str) -> None:
        """Create the table unless another process does so first."""
        self._enter()
        self.log.create()
        committer = LogCommitter(self._session, self._directory)
        try:
            building = self._creation(schema, by).withCommitter(committer)
            if partition_by:
                layout = static_method(self._session, f"{KERNEL}.transaction.DataLayoutSpec.partitioned")
                building = building.withDataLayoutSpec(layout(self._columns(partition_by)))
            none = static_method(self._session, f"{KERNEL}.utils.CloseableIterable.emptyIterable")()
            engine = self._engine()
            building.build(engine).commit(engine, none)
        except JAVA_ERRORS as error:
            if committer.failure is not None:
                raise committer.failure from error
            if not committer.has_lost and not is_a(error, _FOUND):
                raise SinkError(self._explained(error)) from error

    def try_to_create(self, schema: StructType, by: str) -> None:
        """Have Kernel check the schema of a new table; nothing is written."""
        self._enter()
        try:
            self._creation(schema, by).build(self._engine())
        except JAVA_ERRORS as error:
            if is_a(error, _FOUND):
                # Another process has created it in the meantime; whoever creates next looks at what it is.
                return
            raise AnalysisError(self._explained(error)) from error

    def try_to_append(self, version: Version, by: str) -> None:
        """Have Kernel check whether it can write to the table; nothing is written."""
        self._enter()
        try:
            self._transaction(version, by)
        except JAVA_ERRORS as error:
            raise AnalysisError(self._explained(error)) from error

    def try_to_change(self, version: Version, schema: StructType) -> None:
        """Have Kernel check another schema for the table; nothing is written."""
        self._enter()
        try:
            metadata = self._with_schema(version, schema)
            needed = static_method(
                self._session, f"{KERNEL}.internal.tablefeatures.TableFeatures.autoUpgradeProtocolBasedOnMetadata"
            )(metadata, java_class(self._session, "java.util.ArrayList")(), version.java.getProtocol())
        except JAVA_ERRORS as error:
            raise AnalysisError(self._explained(error)) from error
        if needed.isPresent():
            features = ", ".join(sorted(str(each.featureName()) for each in get_field(needed.get(), "_2")))
            message = (
                f"mergeSchema: {self._directory} lacks {features}, which its new columns need. Cast them, or let the "
                f"table have it first: ALTER TABLE … SET TBLPROPERTIES ('delta.feature.…' = 'supported')."
            )
            raise AnalysisError(message)

    def change(self, version: Version, schema: StructType, by: str) -> None:
        """Give the table another schema, as a separate version; does nothing if the version is not the newest.

        Kernel refuses this if columns are not mapped to names in files, as columns might be dropped or renamed. Here
        they are only added, and :meth:`try_to_change` has checked them.
        """
        self.try_to_change(version, schema)
        engine = self._engine()
        try:
            row = self._with_schema(version, schema).toRow()
            rows = java_class(self._session, "java.util.ArrayList")()
            rows.add(
                static_method(self._session, f"{KERNEL}.internal.actions.SingleAction.createMetadataSingleAction")(row)
            )
            iterable = java_class(self._session, f"{KERNEL}.utils.CloseableIterable")
            transaction = self._transaction(version, by, operation="MANUAL_UPDATE")
            # Without what Kernel does after a commit: its summary of the table would have the previous schema.
            transaction.commit(engine, iterable.inMemoryIterable(self._iterator(rows)))
        except JAVA_ERRORS as error:
            if version.committer.failure is not None:
                raise version.committer.failure from error
            if not version.committer.has_lost and not is_a(error, *_CONFLICTS):
                raise SinkError(self._explained(error)) from error

    def last(self, version: Version, application: str) -> int | None:
        """The number of an application's newest transaction, None if there was none."""
        try:
            found = version.java.getLatestTransactionVersion(self._engine(), application)
        except JAVA_ERRORS as error:
            raise SinkError(self._explained(error)) from error
        return found.get() if found.isPresent() else None

    def files(self, version: Version) -> list[ActiveFile]:
        """The files of a version."""
        self._enter()
        written = static_method(self._session, f"{DEFAULTS}.internal.json.JsonUtils.rowToJson")
        found = []
        try:
            batches = version.java.getScanBuilder().build().getScanFiles(self._engine(), True)
            with closing(batches):
                while batches.hasNext():
                    rows = batches.next().getRows()
                    with closing(rows):
                        while rows.hasNext():
                            row = rows.next()
                            found.append(_active_file(row, json.loads(written(row))["add"]))
        except JAVA_ERRORS as error:
            raise SinkError(self._explained(error)) from error
        return found

    def append(
        self,
        version: Version,
        files: Sequence[DataFile],
        application: str,
        number: int,
        by: str,
        told: str,
        removed: Sequence[ActiveFile] | None = None,
        watermark: int | None = None,
    ) -> bool:
        """Add files to a version as one transaction; returns False if the version is no longer the newest.

        A watermark is the number of a second one, ``APPLICATION/watermark``: it outlives the version's log.
        """
        self._enter()
        engine, committer = self._engine(), version.committer
        committer.told, committer.is_blind = told, removed is None
        try:
            transaction = self._transaction(version, by, (application, number))
            state = transaction.getTransactionState(engine)
            rows = java_class(self._session, "java.util.ArrayList")()
            for action in self._additions(files, version, engine, state):
                rows.add(action)
            for each in removed or ():
                rows.add(self._removal(each))
            if watermark is not None and watermark != MIN:
                rows.add(self._transacted(f"{application}/watermark", watermark))
            iterable = java_class(self._session, f"{KERNEL}.utils.CloseableIterable")
            done = transaction.commit(engine, iterable.inMemoryIterable(self._iterator(rows)))
        except JAVA_ERRORS as error:
            if committer.failure is not None:
                raise committer.failure from error
            if committer.has_lost or is_a(error, *_CONFLICTS):
                return False
            raise SinkError(self._explained(error)) from error
        self._after(done, engine)
        return True

    @property
    def _place(self) -> str:
        """The path as Kernel takes it: Hadoop's paths are not encoded."""
        path = self._directory.path
        return self._directory.uri() if path is None else f"file:{path}"

    def _creation(self, schema: StructType, by: str) -> Any:
        read = static_method(self._session, f"{KERNEL}.internal.types.DataTypeJsonSerDe.deserializeStructType")
        create = static_method(self._session, f"{KERNEL}.TableManager.buildCreateTableTransaction")
        return create(self._place, read(schema.json()), by)

    def _with_schema(self, version: Version, schema: StructType) -> Any:
        read = static_method(self._session, f"{KERNEL}.internal.types.DataTypeJsonSerDe.deserializeStructType")
        metadata = version.java.getMetadata().withNewSchema(read(schema.json()))
        properties = version.properties
        has_defaults = "allowColumnDefaults" in version.features
        compatible = properties.get("delta.enableIcebergCompatV3") == "true"
        validate = static_method(self._session, f"{KERNEL}.internal.util.SchemaUtils.validateSchema")
        validate(metadata.getSchema(), False, has_defaults, compatible)
        return metadata

    def _transaction(
        self,
        version: Version,
        by: str,
        identity: tuple[str, int] | None = None,
        operation: str = "STREAMING_UPDATE",
    ) -> Any:
        kind = getattr(java_class(self._session, f"{KERNEL}.Operation"), operation)
        building = version.java.buildUpdateTableTransaction(by, kind).withMaxRetries(0)
        if identity is not None:
            building = building.withTransactionId(*identity)
        return building.build(self._engine())

    def _additions(self, files: Sequence[DataFile], version: Version, engine: Any, state: Any) -> Iterator[Any]:
        """The actions that add files."""
        # Values common to all files are requested from the JVM once: a version may have thousands.
        indexed = static_method(self._session, f"{KERNEL}.internal.TransactionImpl.getStatisticsColumns")(state)
        physical = static_method(self._session, f"{KERNEL}.internal.data.TransactionStateRow.getPhysicalSchema")(state)
        read = static_method(self._session, f"{KERNEL}.statistics.DataFileStatistics.deserializeFromJson")
        transactions = java_class(self._session, f"{KERNEL}.Transaction")
        place, stored = self._place, in_files(version.schema, version.schema)
        columns = [[*each.getNames()] for each in indexed]
        by = [(name_in_files(each), each.dataType) for each in version.schema if each.name in version.partition_by]
        for file in files:
            values = java_class(self._session, "java.util.HashMap")()
            for name, kind in by:
                values.put(name, literal(self._session, kind, file.values[name]))
            # Kernel itself makes none if columns are mapped, nor does its writer.
            context = java_class(self._session, f"{KERNEL}.internal.DataWriteContextImpl")(place, values, indexed)
            statistics = as_json(ParquetFooter(self._directory, file.name), stored, columns)
            status = java_class(self._session, f"{KERNEL}.utils.DataFileStatus")(
                f"{place}/{file.name}", file.size, int(time.time() * 1000), read(statistics, physical)
            )
            single = java_class(self._session, "java.util.ArrayList")()
            single.add(status)
            yield transactions.generateAppendActions(engine, state, self._iterator(single), context).next()

    def _removal(self, file: ActiveFile) -> Any:
        """The action that removes a file."""
        added = java_class(self._session, f"{KERNEL}.internal.actions.AddFile")(file.java.getStruct(_ADDED))
        now = java_class(self._session, "java.util.Optional").of(int(time.time() * 1000))
        actions = f"{KERNEL}.internal.actions.SingleAction.createRemoveFileSingleAction"
        return static_method(self._session, actions)(added.toRemoveFileRow(True, now))

    def _transacted(self, application: str, number: int) -> Any:
        """The action of a transaction; Kernel's own method takes only one application."""
        optional = java_class(self._session, "java.util.Optional")
        made = java_class(self._session, f"{KERNEL}.internal.actions.SetTransaction")(
            application, number, optional.of(int(time.time() * 1000))
        )
        actions = f"{KERNEL}.internal.actions.SingleAction.createTxnSingleAction"
        return static_method(self._session, actions)(made.toRow())

    def _after(self, done: Any, engine: Any) -> None:
        """Let Kernel write what makes the log quick to read, such as a checkpoint every tenth version."""
        for hook in done.getPostCommitHooks():
            try:
                hook.threadSafeInvoke(engine)
            except JAVA_ERRORS as error:
                # The commit counts without it, and whoever commits the tenth version from here tries again.
                logger.warning("%s was committed, but not its %s: %s", self._directory, hook.getType(), said(error))

    def _iterator(self, values: Any) -> Any:
        return static_method(self._session, f"{KERNEL}.internal.util.Utils.toCloseableIterator")(values.iterator())

    def _columns(self, names: Sequence[str]) -> Any:
        columns = java_class(self._session, "java.util.ArrayList")()
        for name in names:
            columns.add(java_class(self._session, f"{KERNEL}.expressions.Column")(name))
        return columns

    def _engine(self) -> Any:
        settings = self._session._jsparkSession.sessionState().newHadoopConf()
        return static_method(self._session, f"{DEFAULTS}.engine.DefaultEngine.create")(settings)

    def _enter(self) -> None:
        enter(self._session, _NEEDED, _LACKING)

    def _explained(self, error: Exception) -> str:
        return f"Delta's table {self._directory}: {said(error)}"


def _active_file(row: Any, added: Mapping[str, Any]) -> ActiveFile:
    return ActiveFile(
        unquote(added["path"]),
        added["size"],
        added.get("partitionValues", {}),
        added.get("stats"),
        added.get("deletionVector") is not None,
        row,
    )
