"""The Iceberg sink: an epoch is one snapshot of the table, committed after the decision."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from sparkjet.catalyst.columns import quoted
from sparkjet.catalyst.doors import BUCKETS, check_open
from sparkjet.connectors.iceberg.appending import Addition, DataFile, appended, data_files, tidy
from sparkjet.connectors.iceberg.columns import Mapped, lacking, mapped, types_of
from sparkjet.connectors.iceberg.deleting import (
    check_deletes,
    check_deleting,
    check_identified,
    misfit,
)
from sparkjet.connectors.iceberg.library import METADATA, data_directory
from sparkjet.connectors.iceberg.merging import Column, added_columns, merged, with_columns
from sparkjet.connectors.iceberg.partitions import new_spec, parts_of, same_spec
from sparkjet.connectors.iceberg.schema import ID, new_schema, spark_schema
from sparkjet.connectors.iceberg.version import MAIN
from sparkjet.errors import AnalysisError, CopiedHomeError, SinkError
from sparkjet.sinks.commit_every import EACH_EPOCH, CommitEvery
from sparkjet.sinks.copies import check_run
from sparkjet.sinks.file_formats import check_parquet
from sparkjet.sinks.pace import Pace
from sparkjet.sinks.protocol import Guarantee, Handle, TransactionId
from sparkjet.sinks.spark_list import LIST
from sparkjet.sinks.staged_files import StagedFiles, alike, application, told, values_of
from sparkjet.sinks.table_columns import looking_again
from sparkjet.sinks.upserts import check_keys, check_whole, one_per_key
from sparkjet.storage.hadoop_file_system import JAVA_ERRORS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sparkjet.connectors.iceberg.library import IcebergTable
    from sparkjet.connectors.iceberg.partitions import Part
    from sparkjet.connectors.iceberg.version import Version
    from sparkjet.storage.directory import Directory

_RACES = 100
"""Snapshots that others may commit first before a commit is paused for a moment."""
_HIDDEN = "_"
"""``remove_orphan_files`` ignores names with this prefix: files are safe there until the table names them."""
_ORPHANS = "Were files removed that no snapshot names?"
_KEYS = "keys"
"""Directory of the files with keys, within that of an attempt."""
_CODEC, _DEFAULT_CODEC = "write.parquet.compression-codec", "zstd"


@dataclass
class IcebergSink:
    """Appends to an Iceberg table, or upserts into it.

    *Prepare*: Spark's writer makes Parquet files among the table's, in a directory of this attempt. No snapshot names
    them, so nobody reads them. *Commit*: one snapshot adds them, and the same commit sets a property of the table,
    ``sparkjet/QUERY/OUTPUT``, to the epoch and its transaction; with ``commit_every``, to the last of several epochs in
    one snapshot, and to the transactions of all. It replaces exactly the metadata in which this property was looked up,
    or fails: of a driver and its successor only one can succeed.

    With keys, the attempt's directory also has files with the keys of its rows, and the same snapshot adds these as
    equality deletes: they hide the rows of earlier snapshots with these keys, in whatever file they are.

    Args:
        table: The table.
        session: The user's session.
        partition_by: The partitioning of a new table: columns, and transforms as in SQL.
        options: Options of Spark's writer, e.g. ``compression``.
        option: Name of the user's option, for messages.
        at: Returns the table of a handle, for rows decided while the option had another value.
        keys: Columns by which rows replace older ones; without any, rows are only added. See :attr:`Keyed.keys`.
        commit_every: Number of epochs per snapshot.
        branch: The branch that gets the rows; it must exist, except the table's main one.
        merge_schema: Whether the start adds columns that the table lacks.
        pace: When epochs without rows tell readers of the watermark, each as a snapshot without files.
    """

    table: IcebergTable
    session: SparkSession
    partition_by: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    option: str = "path"
    at: Callable[[str], IcebergTable] | None = None
    keys: tuple[str, ...] = ()
    commit_every: CommitEvery = EACH_EPOCH
    branch: str = MAIN
    merge_schema: bool = False
    pace: Pace = field(default_factory=Pace)
    guarantee: Guarantee = field(default=Guarantee.EXACTLY_ONCE, init=False)
    _schema: StructType = field(default_factory=StructType, init=False)
    _version: Version | None = field(default=None, init=False)
    _mapped: Mapped = field(default_factory=lambda: Mapped({}, (), (), by_names=False), init=False)
    _staged: StagedFiles | None = field(default=None, init=False)
    _looked_at: Version | None = field(default=None, init=False)
    """The version to which the files of epochs were last found to fit."""

    @property
    def directory(self) -> Directory | None:
        """The table's directory, None if its catalog determines it."""
        return self.table.directory

    def check(self, schema: StructType) -> None:
        """See :meth:`Sink.check`."""
        self._schema = schema
        check_parquet(schema)
        check_keys(schema, self.keys)
        check_identified(schema, self.keys)
        wanted = new_schema(schema)
        spec = new_spec(self.partition_by, wanted)
        version = self.table.version()
        if self.directory is not None:
            self.directory.below(METADATA).check(self.option, create=False)
        if version is None:
            self._check_empty()
            self._check_branch(None)
            parts = parts_of(spec, spark_schema(wanted), self.table.place)
            self._check_buckets(parts)
            check_deleting(schema, self.keys, parts, self.table.place)
            self.table.try_to_create(wanted, spec)
        else:
            self._check_branch(version)
            self._map(with_columns(version, self._lacking(version)))
            data_directory(self.session, version, self.option).check(self.option, create=False)

    @property
    def required(self) -> Collection[str]:
        """See :attr:`Requiring.required`."""
        return [own for own, column in self._mapped.columns.items() if not column.nullable]

    def create(self) -> None:
        """See :meth:`Creating.create`: creates a table that has no rows yet, or adds the columns that it lacks."""
        version = self.table.version()
        if version is None:
            wanted = new_schema(self._schema)
            self.table.create(wanted, new_spec(self.partition_by, wanted))
        for _ in range(_RACES):
            version = self.table.version()
            if version is None:
                message = f"{self.option}: {self.table.place} was created, but is gone. Does something remove it?"
                raise SinkError(message)
            lacking = self._lacking(version)
            if not lacking:
                break
            self.table.commit(version, merged(self.session, version, lacking))
        else:
            message = f"Others have committed {_RACES} times to {self.table.place} in a row, each before a new column."
            raise SinkError(message)
        self._map(version)
        self._version, self._staged, self._looked_at = version, self._staged_of(version), version

    def prepare(self, rows: DataFrame, transaction: TransactionId) -> Handle | None:
        """See :meth:`Sink.prepare`."""
        version, staged, own = self._version, self._staged, self._mapped
        assert version is not None  # noqa: S101 - create() comes first
        assert staged is not None  # noqa: S101 - as above
        options = {"compression": version.properties.get(_CODEC, _DEFAULT_CODEC), **self.options}
        layout = self._layout(version)
        self._look_again(layout)
        if self.keys:
            rows = one_per_key(rows, self.keys)
        handle = staged.write(own.named(rows), transaction, options, [each.name for each in own.parts])
        if handle is None:
            return None
        staged.check_required(handle, own.required, (), "iceberg")
        self.pace.note(transaction)
        return {
            **handle,
            **layout,
            "partitions": [own.partition(values_of(name)) for name, _ in handle["files"]],
            **(self._with_keys(handle, staged, options) if self.keys else {}),
        }

    def tells(self, clock: int, watermark: int | None) -> bool:
        """See :meth:`Telling.tells`: with ``progressInterval``, of another watermark, now and then."""
        return self.pace.is_due(clock, watermark)

    def tell(self, transaction: TransactionId) -> Handle:
        """See :meth:`Telling.tell`."""
        version, staged = self._version, self._staged
        assert version is not None  # noqa: S101 - create() comes first
        assert staged is not None  # noqa: S101 - as above
        layout = self._layout(version)
        self._look_again(layout)
        self.pace.note(transaction)
        return {**staged.nothing(transaction), **layout, "partitions": []}

    def commit(self, handle: Handle, between: Callable[[], None]) -> None:
        """See :meth:`Sink.commit`."""
        self.commit_all([handle], between)

    def commit_all(self, handles: Sequence[Handle], between: Callable[[], None]) -> None:
        """See :meth:`Gathering.commit_all`."""
        for group in alike(handles, "table", "directory", "data", "spec", "by_names", "branch"):
            version = self._commit(group)
            between()
            for handle in group:
                self._files_of(handle, version).published(handle)

    def abort(self, transaction: TransactionId) -> None:
        """See :meth:`Aborting.abort`."""
        if self._staged is not None:
            self._staged.abort(transaction)

    def published_after(self, newest: TransactionId, handle: Handle | None) -> str | None:
        """See :meth:`Sink.published_after`; only the configured table is asked."""
        del handle
        version = self.table.version()
        last = None if version is None else version.last(application(newest.query, newest.sink))
        if last is None or last["epoch"] <= newest.epoch:
            return None
        return (
            f"the properties of {self.table.place} have epoch {last['epoch']}. Restore the newest copy of the home, "
            f"with which nothing is lost or repeated. Or roll the table back to what it was after epoch {newest.epoch} "
            "(CALL … rollback_to_snapshot), and start from scratch with another checkpointLocation (in a grid: "
            f"queryId). Or start from scratch with another table, too."
        )

    def abort_orphans(self, query: str, takeover: int, keep: Sequence[Handle]) -> None:
        """See :meth:`Sink.abort_orphans`; also covers the tables of decided transactions."""
        bases = {} if self._staged is None else {str(self._staged.directory): self._staged}
        for handle in keep:
            if handle["directory"] not in bases:
                version = self._of(handle).version()
                if version is not None:
                    bases[handle["directory"]] = self._files_of(handle, version)
        for staged in bases.values():
            staged.abort_orphans(query, takeover, keep)

    def _layout(self, version: Version) -> Handle:
        """The properties common to the files of all epochs."""
        own = self._mapped
        return {
            "table": self.table.place,
            "uuid": version.uuid,
            "data": version.data,
            "spec": version.spec["spec-id"],
            "columns": types_of(version, own.columns),
            "required": [*own.whole],
            "by_names": own.by_names,
            "branch": self.branch,
        }

    def _look_again(self, layout: Handle) -> None:
        """Refuse an epoch whose files the table would not take once it is decided."""
        if not self.keys and self._looked_at is not None and not self.table.is_changed(self._looked_at):
            return
        version, where = self.table.version(), self.table.place
        if version is None:
            message = (
                f"The Iceberg table {where} no longer exists. Nothing of the epoch is decided: restore the table, or "
                "start the query again, which creates a new one."
            )
            raise SinkError(message)
        with looking_again(where):
            why = misfit(self.table.place, version, layout, is_decided=False)
            if why is not None:
                raise AnalysisError(f"{why[0].upper()}{why[1:]} Nothing is decided that does not fit: start again.")
            if self.keys:
                self._check_whole(version, layout["columns"])
        self._looked_at = version

    def _check_whole(self, version: Version, written: Mapping[str, Any]) -> None:
        check_whole([name for _, name in lacking(version, written)], self.table.place)

    def _with_keys(self, handle: Handle, staged: StagedFiles, options: Mapping[str, str]) -> Handle:
        """Write the keys of an epoch's rows; returns their part of its handle."""
        own, by = self._mapped, [part.name for part in self._mapped.parts]
        # From what was written, not from the rows again: another time they might differ.
        columns = [own.columns[key] for key in self.keys]
        rows = staged.rows(self.session, [name for name, _ in handle["files"]], StructType(columns))
        named = [F.col(quoted(each.name)).alias(each.name, metadata=each.metadata) for each in columns]
        keys = rows.select(*named, *(part.column(rows.sparkSession) for part in own.parts))
        files = staged.write_within(keys, handle, _KEYS, options, by)
        return {
            "keys": [each.metadata[ID] for each in columns],
            "deletes": files,
            "delete_partitions": [own.partition(values_of(name)) for name, _ in files],
        }

    def _staged_of(self, version: Version) -> StagedFiles:
        place = data_directory(self.session, version, self.option)
        return StagedFiles(place, _HIDDEN, gathers=self.commit_every.gathers)

    def _of(self, handle: Handle) -> IcebergTable:
        """The table that a transaction was prepared for, even if the option has changed: its files are there."""
        if handle["table"] == self.table.place or self.at is None:
            return self.table
        return self.at(handle["table"])

    def _files_of(self, handle: Handle, version: Version) -> StagedFiles:
        """The files of a handle, which stay where they are if the table moves."""
        if self._staged is not None and handle["directory"] == str(self._staged.directory):
            return self._staged
        return self._staged_of(replace(version, data=handle["data"]))

    def _map(self, version: Version) -> None:
        where, columns = self.table.place, spark_schema(version.schema)
        if self.partition_by:
            wanted = new_schema(self._schema)
            spec = new_spec(self.partition_by, wanted)
            if not same_spec(version.spec, spec, columns, spark_schema(wanted)):
                there = ", ".join(f"{each['transform']} of {each['name']}" for each in version.spec["fields"])
                message = (
                    f"partitionBy: {where} is partitioned by {there or 'nothing'}, not by "
                    f"{', '.join(self.partition_by)}. Leave partitionBy(…) out, and the table's own partitions count."
                )
                raise AnalysisError(message)
        self._mapped = mapped(version, self._schema, where)
        self._check_buckets(self._mapped.parts)
        if self.keys:
            check_deletes(version, version.spec["spec-id"], self.branch, where)
            self._check_whole(version, types_of(version, self._mapped.columns))
            check_deleting(self._schema, self.keys, self._mapped.parts, where, self._mapped.columns)

    def _lacking(self, version: Version) -> list[Column]:
        return added_columns(version, self._schema) if self.merge_schema else []

    def _check_buckets(self, parts: Sequence[Part]) -> None:
        if any(part.transform.startswith("bucket") for part in parts):
            check_open(self.session, BUCKETS)

    def _check_branch(self, version: Version | None) -> None:
        """Refuse a branch that does not exist: only the user knows with whose rows it is to begin."""
        if self.branch == MAIN or (version is not None and version.has_branch(self.branch)):
            return
        others = "" if version is None else ", ".join(version.branches)
        message = (
            f'branch: {self.table.place} has no branch "{self.branch}"{others and f", but {others}"}. Create it: '
            f"ALTER TABLE … CREATE BRANCH `{self.branch}`."
        )
        raise AnalysisError(message)

    def _check_empty(self) -> None:
        """Refuse a directory with somebody else's files, which would not be rows of the table."""
        if self.directory is None:
            return
        names = self.directory.names()
        # Checking whether the store has one winner may leave an empty one there.
        own = {METADATA} if METADATA in names and not self.directory.below(METADATA).names() else set()
        others = sorted(name for name in {*names} - own if not name.startswith(("_", ".")))
        if others or LIST in names:
            found = others[0] if others else LIST
            message = (
                f'{self.option}: "{self.directory}" is not an Iceberg table, but has {found} in it, which would '
                "not be rows of the table. Give another directory, or make it a table first (CALL … migrate)."
            )
            raise AnalysisError(message)

    def _commit(self, handles: Sequence[Handle]) -> Version:
        """Have the table add the files of epochs, some of which it may have; returns the version last looked at."""
        table, last = self._of(handles[0]), handles[-1]
        for _ in range(_RACES):
            version = table.version()
            if version is None:
                raise SinkError(f"The table {table.place} no longer exists; epoch {last['epoch']} is not yet added.")
            missing = self._missing(table, version, handles)
            if not missing or self._append(table, version, missing):
                return version
        message = f"Others have committed {_RACES} times to {table.place} in a row, each before epoch {last['epoch']}."
        raise SinkError(message)

    def _missing(self, table: IcebergTable, version: Version, handles: Sequence[Handle]) -> list[Handle]:
        """The epochs that the table does not have, as exactly these transactions."""
        last = version.last(application(handles[0]["query"], handles[0]["sink"]))
        return [handle for handle in handles if not self._is_committed(table, version, handle, last)]

    def _is_committed(
        self, table: IcebergTable, version: Version, handle: Handle, last: Mapping[str, Any] | None
    ) -> bool:
        epoch, where = handle["epoch"], f"the properties of {table.place}"
        if last is not None and last["epoch"] < epoch:
            if last["epoch"] > handle.get("since", 0):
                check_run(handle, last["epoch"], last["run"], where)
            return False
        if last is not None and handle["folder"] in _transactions(last):
            return True
        if last is not None and last["epoch"] == epoch:
            raise self._other(handle, last, where)
        # The property was removed, or it tells of a later epoch.
        for each in version.ancestors(handle["branch"]):
            if (each.get("query"), each.get("output")) == (handle["query"], handle["sink"]):
                if handle["folder"] in _transactions(each):
                    return True
                if each["epoch"] == epoch:
                    raise self._other(handle, each, f"a snapshot of {table.place}")
        if last is None or not handle["files"]:
            # What has only told a watermark is there as soon as a later epoch is.
            return last is not None
        check_run(handle, last["epoch"], last["run"], where)
        message = (
            f"{table.place} has epoch {last['epoch']} of this query, and its snapshots no longer say whose files "
            f"epoch {epoch} added: nothing is added now. Check whether {handle['files'][0][0]} is among the table's "
            "files; if it is not, start from scratch with another checkpointLocation."
        )
        raise SinkError(message)

    def _other(self, handle: Handle, found: Mapping[str, Any], where: str) -> CopiedHomeError:
        """The error if the table has an epoch as another transaction; raised here if a later run has done it."""
        check_run(handle, handle["epoch"], found["run"], where)
        return CopiedHomeError(
            f"{where} has epoch {handle['epoch']} of this query as {found['transaction']}, and not as "
            f"{handle['folder']}: another copy of this home has published it. Go on with the one whose rows are there, "
            "and remove the other."
        )

    def _append(self, table: IcebergTable, version: Version, handles: Sequence[Handle]) -> bool:
        last = handles[-1]
        files: list[DataFile] = []
        for handle in handles:
            deletes = handle.get("deletes", ())
            whole = {**handle, "files": [*handle["files"], *deletes]}
            self._files_of(handle, version).check_there(whole, _ORPHANS)
            why = misfit(table.place, version, handle)
            if why is not None:
                message = (
                    f"{table.place} was changed after epoch {handle['epoch']} had been written for it, which is not "
                    f"added now: {why} Make the table what it was."
                )
                raise SinkError(message)
            files += data_files(handle["files"], handle["partitions"])
            if deletes:
                files += data_files(deletes, handle["delete_partitions"], tuple(handle["keys"]))
        added = Addition(last["data"], files, last["spec"], last["by_names"], last["branch"])
        tells = {**told(*handles), "transaction": last["folder"]}
        if len(handles) > 1:
            tells["earlier"] = [handle["folder"] for handle in handles[:-1]]
        try:
            metadata = appended(self.session, version, added, application(last["query"], last["sink"]), tells)
        except JAVA_ERRORS as error:
            raise SinkError(table.explained(error)) from error
        if table.commit(version, metadata):
            tidy(version, metadata, lost=False)
            return True
        # REST's client repeats what a gateway gave up: the catalog then reports our own commit as an earlier one.
        newest = table.version()
        if newest is not None and self._missing(table, newest, handles):
            tidy(version, metadata, lost=True)
        return False


def _transactions(found: Mapping[str, Any]) -> list[str]:
    """The transactions named in a property or a snapshot, of one or several epochs."""
    return [found["transaction"], *found.get("earlier", ())]
