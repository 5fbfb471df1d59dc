"""The Delta sink: an epoch is one version of the table, put into its log after the decision."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from sparkjet.catalyst.columns import quoted
from sparkjet.errors import AnalysisError, CopiedHomeError, SinkError
from sparkjet.sinks.copies import check_run
from sparkjet.sinks.delta.columns import Mapped, check_new, check_upserts, mapped
from sparkjet.sinks.delta.displacing import Displacing
from sparkjet.sinks.delta.kernel import DataFile, DeltaTable, Version
from sparkjet.sinks.delta.log import find, metadata
from sparkjet.sinks.protocol import Guarantee, Handle, TransactionId
from sparkjet.sinks.staged_files import StagedFiles, application, told, values_of
from sparkjet.sinks.upserts import check_keys, check_whole, one_per_key

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sparkjet.storage.directory import Directory

_RACES = 100
"""Versions that others may put first before a commit is given up for a moment."""


@dataclass
class DeltaSink:
    """Appends to a Delta table, or upserts into it.

    *Prepare*: Spark's writer makes Parquet files, in a directory of the table that belongs to this attempt. No version
    names them, so nobody reads them. *Commit*: one version of the table adds them, as the transaction with the epoch's
    number of the application ``sparkjet/QUERY/OUTPUT``. What has this number already is looked up in the log, where
    it must have the files of this very epoch: a number alone would also be a copy's of the home.

    With keys, the same version removes the files that have rows of the epoch's keys, and adds what stays of them. It
    comes right after the version in which these files were looked for, or does not come: what it removes is what was
    looked at, whoever else writes.

    Args:
        directory: The table.
        session: The user's.
        partition_by: Columns of a new table by which it is partitioned.
        options: For Spark's writer, e.g. ``compression``.
        option: Name of the user's option, for messages.
        at: Gives the directory of a location, for rows that were decided while the option was another.
        keys: Columns by which rows replace older ones; without any, rows are only added. See :attr:`Keyed.keys`.
    """

    directory: Directory
    session: SparkSession
    partition_by: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    option: str = "path"
    at: Callable[[str], Directory] | None = None
    keys: tuple[str, ...] = ()
    guarantee: Guarantee = field(default=Guarantee.EXACTLY_ONCE, init=False)
    _schema: StructType = field(default_factory=StructType, init=False)
    _mapped: Mapped = field(default_factory=lambda: Mapped({}, ()), init=False)
    _columns: tuple[str, ...] = field(default=(), init=False)
    """By which the table is partitioned."""
    _added: tuple[str, str, int] = field(default=("", "", 0), init=False)
    """Directory, run and epoch of the last version that was added here: the log need not be asked whose it is."""

    def check(self, schema: StructType) -> None:
        """See :meth:`Sink.check`."""
        self._schema = schema
        check_new(schema, self.partition_by)
        check_keys(schema, self.keys)
        table = self._table(self.directory)
        version = table.version()
        table.log.check(self.option, create=False)
        if version is None:
            self._check_empty()
            table.try_to_create(_nullable(schema), _BY)
        else:
            self._map(version)
            table.try_to_append(version, _BY)

    def create(self) -> None:
        """See :meth:`Creating.create`: creates a table that has no rows yet."""
        table = self._table(self.directory)
        version = table.version()
        if version is None:
            table.create(_nullable(self._schema), self.partition_by, _BY)
            version = table.version()
            if version is None:
                message = f"{self.option}: {self.directory} was created, and is no Delta table. Does anybody remove it?"
                raise SinkError(message)
        self._map(version)

    def prepare(self, rows: DataFrame, transaction: TransactionId) -> Handle | None:
        """See :meth:`Sink.prepare`."""
        if self.keys:
            rows = one_per_key(rows, self.keys)
        named = rows.select(*(F.col(quoted(own)).alias(name) for own, name in self._mapped.names.items()))
        staged = StagedFiles(self.directory)
        handle = staged.write(named, transaction, self.options, self._columns)
        if handle is None:
            return None
        staged.check_required(handle, self._mapped.required, self._columns, "delta")
        return {
            **handle,
            "schema": self._as_written().jsonValue(),
            "partition_by": [*self._columns],
            "required": [*self._mapped.required],
            "keys": [self._mapped.names[key] for key in self.keys],
        }

    def commit(self, handle: Handle, between: Callable[[], None]) -> None:
        """See :meth:`Sink.commit`."""
        directory = self._base(handle)
        table = self._table(directory)
        displacing = self._displacing(table, handle) if handle.get("keys") else None
        for _ in range(_RACES):
            version = table.version()
            if version is None:
                message = (
                    f"There is no Delta table in {directory} any more, and epoch {handle['epoch']} is to be added."
                )
                raise SinkError(message)
            added = self._committed(table, version, handle)
            if added is None:
                added = self._append(table, version, handle, displacing)
            if added is not None:
                break
        else:
            message = (
                f"Others have put {_RACES} versions into {directory} in a row, each before epoch {handle['epoch']}."
            )
            raise SinkError(message)
        self._added = str(directory), handle["run"], handle["epoch"]
        between()
        if displacing is not None:
            displacing.end(added)
        StagedFiles(directory).published(handle)

    def abort(self, transaction: TransactionId) -> None:
        """See :meth:`Aborting.abort`."""
        StagedFiles(self.directory).abort(transaction)

    def published_after(self, newest: TransactionId, handle: Handle | None) -> str | None:
        """See :meth:`Sink.published_after`; only the configured table is asked."""
        del handle
        table = self._table(self.directory)
        version = table.version()
        last = None if version is None else table.last(version, application(newest.query, newest.sink))
        if last is None or last <= newest.epoch:
            return None
        return (
            f"the log of {self.directory} has epoch {last}. Restore the newest copy of the home, with which nothing is "
            f"lost or repeated. Or restore the table to what it was after epoch {newest.epoch} (RESTORE TABLE …), and "
            "start from scratch with another checkpointLocation (in a grid: queryId). Or start from scratch with "
            f"another {self.option}, too."
        )

    def abort_orphans(self, query: str, takeover: int, keep: Sequence[Handle]) -> None:
        """See :meth:`Sink.abort_orphans`; also covers the tables of decided transactions."""
        others = {handle["directory"]: self._base(handle) for handle in keep}
        for base in {str(self.directory): self.directory, **others}.values():
            StagedFiles(base).abort_orphans(query, takeover, keep)

    def _table(self, directory: Directory) -> DeltaTable:
        return DeltaTable(self.session, directory)

    def _displacing(self, table: DeltaTable, handle: Handle) -> Displacing:
        return Displacing(self.session, table, StagedFiles(self._base(handle)), handle, self.options)

    def _base(self, handle: Handle) -> Directory:
        """The table that a transaction was prepared for, even if the option has changed: its files are there."""
        if handle["directory"] == str(self.directory) or self.at is None:
            return self.directory
        return self.at(handle["directory"])

    def _map(self, version: Version) -> None:
        self._mapped = mapped(version, self._schema, self.partition_by, str(self.directory))
        if self.keys:
            check_upserts(version, str(self.directory))
            check_whole(version.schema, self._mapped.names, str(self.directory))
        self._columns = version.partition_by

    def _as_written(self) -> StructType:
        """The schema of the rows, by the table's names."""
        fields = self._schema.fields
        return StructType([StructField(self._mapped.names[each.name], each.dataType, each.nullable) for each in fields])

    def _check_empty(self) -> None:
        """Refuse a directory with files of somebody else's, which would be no rows of the table."""
        others = sorted(name for name in self.directory.names() if not name.startswith(("_", ".")))
        if others or self.directory.exists("_spark_metadata"):
            found = others[0] if others else "_spark_metadata"
            message = (
                f'{self.option}: "{self.directory}" is no Delta table, and has {found} in it, which would be no rows '
                "of the table. Give another directory, or convert it first (CONVERT TO DELTA)."
            )
            raise AnalysisError(message)

    def _append(
        self, table: DeltaTable, version: Version, handle: Handle, displacing: Displacing | None = None
    ) -> frozenset[str] | None:
        """Add an epoch to a version; the files that it was given, None if that is not the newest any more."""
        directory = self._base(handle)
        staged = StagedFiles(directory)
        staged.check_there(handle, _VACUUM)
        _check_unchanged(version, handle, directory)
        files, removed = [_data_file(name, size) for name, size in handle["files"]], None
        if displacing is not None:
            removed, stays = displacing.of(version)
            files += stays
            # It may have taken a while.
            staged.check_there(handle, _VACUUM)
        name = application(handle["query"], handle["sink"])
        done = table.append(version, files, name, handle["epoch"], _BY, metadata(told(handle)), removed)
        return frozenset(file.name for file in files) if done else None

    def _committed(self, table: DeltaTable, version: Version, handle: Handle) -> frozenset[str] | None:
        """The files that the table was given for the epoch, these among them; None if it does not have the epoch.

        Raises:
            CopiedHomeError: It has that of another copy of the home.
            SinkError: It has an epoch of this number, and its log does not say any more which files it added.
        """
        name, epoch = application(handle["query"], handle["sink"]), handle["epoch"]
        last = table.last(version, name)
        if last is None:
            return None
        directory = self._base(handle)
        if last < epoch:
            if last > handle.get("since", 0) and self._added != (str(directory), handle["run"], last):
                found = find(table.log, version.number, name)
                run = None if found is None else found.told.get("run")
                check_run(handle, last, run, f"the log of {directory}")
            return None
        found = find(table.log, version.number, name, epoch)
        added = frozenset() if found is None else frozenset(map(unquote, found.files))
        if found is not None and added >= {name for name, _ in handle["files"]}:
            return added
        if found is None:
            message = (
                f"{directory} has epoch {last} of this query, and its log does not say any more whose files epoch "
                f"{epoch} added: nothing is added now. Look whether {handle['files'][0][0]} is among the files of the "
                "table's history; if it is not, start from scratch with another checkpointLocation."
            )
            raise SinkError(message)
        check_run(handle, epoch, found.told.get("run"), f"the log of {directory}")
        message = (
            f"The log of {directory} has epoch {epoch} of this query with other files, in version {found.version}: "
            "another copy of this home has published it. Go on with the one whose rows are there, and remove the other."
        )
        raise CopiedHomeError(message)


_BY = "sparkjet"
_VACUUM = "Was VACUUM run with a retention of a few hours or none?"
_OF_A_TABLE = "delta.", "CURRENT_DEFAULT", "EXISTS_DEFAULT", "__CHAR_VARCHAR_TYPE_STRING"
"""What the metadata of columns begins with that are read from a table: lengths, defaults, how they are filled."""


def _check_unchanged(version: Version, handle: Handle, directory: Directory) -> None:
    """Refuse files that the table does not take any more: somebody has altered or replaced it since they were written.

    Raises:
        SinkError: Kernel would add them, and readers fail or find wrong values.
    """
    why = "Its columns or partitions are others."
    try:
        now = mapped(version, StructType.fromJson(handle["schema"]), (), str(directory))
        same = all(own == name for own, name in now.names.items()) and set(now.required) <= set(handle["required"])
        if handle.get("keys"):
            check_upserts(version, str(directory))
    except AnalysisError as error:
        same, why = False, str(error)
    if not same or [*version.partition_by] != handle["partition_by"]:
        message = (
            f"{directory} was changed after epoch {handle['epoch']} had been written for it, which is not added now: "
            f"{why} Make the table what it was."
        )
        raise SinkError(message)


def _data_file(name: str, size: int) -> DataFile:
    return DataFile(name, size, values_of(name))


def _nullable(schema: StructType) -> StructType:
    """The schema of a new table: as Spark's own, which lets any later row be null."""
    return StructType.fromJson(_all_nullable(json.loads(schema.json())))


def _all_nullable(found: Any) -> Any:
    if isinstance(found, list):
        return [_all_nullable(each) for each in found]
    if not isinstance(found, dict):
        return found
    loose = {name: True for name in ("nullable", "containsNull", "valueContainsNull") if name in found}
    # Metadata is the user's, whatever its keys are, but for what another table asks of its writers.
    return {
        name: {key: each for key, each in value.items() if not key.startswith(_OF_A_TABLE)}
        if name == "metadata"
        else _all_nullable(value)
        for name, value in found.items()
    } | loose
