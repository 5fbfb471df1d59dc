"""The Delta sink: an epoch is one version of the table, put into its log after the decision."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from sparkjet.catalyst.columns import quoted
from sparkjet.connectors.delta.columns import Mapped, added, as_new, check_new, check_unmapped, check_upserts, mapped
from sparkjet.connectors.delta.displacing import Displacing
from sparkjet.connectors.delta.kernel import DataFile, DeltaTable, Version
from sparkjet.connectors.delta.log import Logged, file_of, metadata, newest
from sparkjet.connectors.delta.mapping import as_written, in_files, name_in_files
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

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sparkjet.connectors.delta.named import NamedTable
    from sparkjet.storage.directory import Directory

_RACES = 100
"""Versions that others may put first before a commit is paused for a moment."""


@dataclass
class DeltaSink:
    """Appends to a Delta table, or upserts into it.

    *Prepare*: Spark's writer makes Parquet files, in a directory of the table that belongs to this attempt. No version
    names them, so nobody reads them. *Commit*: one version of the table adds them, as the transaction with the epoch's
    number of the application ``sparkjet/QUERY/OUTPUT``; with ``commit_every``, several epochs are one version, with the
    number of the last. A version that already has this number is looked up in the log, where it must have the files of
    exactly these epochs: the number alone could also come from a copy of the home.

    With keys, the same version removes the files that have rows with the epoch's keys, and adds what stays of them. It
    comes right after the version in which these files were looked up, or not at all: what it removes is what was looked
    at, whoever else writes.

    Args:
        directory: The table.
        session: The user's session.
        partition_by: Columns of a new table by which it is partitioned.
        options: Options of Spark's writer, e.g. ``compression``.
        option: Name of the user's option, for messages.
        at: Returns the directory at a location, for rows decided while the option had another value.
        keys: Columns by which rows replace older ones; without any, rows are only added. See :attr:`Keyed.keys`.
        commit_every: Number of epochs per version.
        named: The table in the session's catalog, if the user has given its name.
        merge_schema: Whether columns of the rows that the table lacks are added to it.
        pace: When epochs without rows tell readers of the watermark, each as a version without files.
    """

    directory: Directory
    session: SparkSession
    partition_by: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    option: str = "path"
    at: Callable[[str], Directory] | None = None
    keys: tuple[str, ...] = ()
    commit_every: CommitEvery = EACH_EPOCH
    named: NamedTable | None = None
    merge_schema: bool = False
    pace: Pace = field(default_factory=Pace)
    guarantee: Guarantee = field(default=Guarantee.EXACTLY_ONCE, init=False)
    _schema: StructType = field(default_factory=StructType, init=False)
    _mapped: Mapped = field(default_factory=lambda: Mapped({}, ()), init=False)
    _table_schema: StructType = field(default_factory=StructType, init=False)
    _columns: tuple[str, ...] = field(default=(), init=False)
    """The columns by which the table is partitioned."""
    _added: tuple[str, str, int] = field(default=("", "", 0), init=False)
    """Directory, run and epoch of the last version added here: the log need not be asked whose it is."""
    _newest: int = field(default=-1, init=False)
    """Number of the version last looked at, or of one put right after it here."""

    def check(self, schema: StructType) -> None:
        """See :meth:`Sink.check`."""
        self._schema = schema
        check_parquet(schema)
        check_new(schema, self.partition_by)
        check_keys(schema, self.keys)
        table = self._table(self.directory)
        version = table.version()
        table.log.check(self.option, create=False)
        if version is None:
            self._check_empty()
            table.try_to_create(as_new(schema), _BY)
        else:
            merged = self._merged(version)
            if merged is not None:
                table.try_to_change(version, merged)
            self._map(version, merged)
            table.try_to_append(version, _BY)

    @property
    def required(self) -> Collection[str]:
        """See :attr:`Requiring.required`."""
        return [own for own, name in self._mapped.names.items() if not self._table_schema[name].nullable]

    def create(self) -> None:
        """See :meth:`Creating.create`: creates a table that has no rows yet."""
        table = self._table(self.directory)
        version = table.version()
        if version is None:
            table.create(as_new(self._schema), self.partition_by, _BY)
            version = table.version()
        for _ in range(_RACES):
            if version is None:
                message = f"{self.option}: {self.directory} was created, but is gone. Does something remove it?"
                raise SinkError(message)
            merged = self._merged(version)
            if merged is None:
                break
            # A separate version, which exists before the first row that needs it.
            table.change(version, merged, _BY)
            version = table.version()
        else:
            message = f"Others have put {_RACES} versions into {self.directory} in a row, each before its new columns."
            raise SinkError(message)
        self._map(version)
        if self.named is not None and not self.named.is_known:
            self.named.register(self.session, self.directory.uri())

    def prepare(self, rows: DataFrame, transaction: TransactionId) -> Handle | None:
        """See :meth:`Sink.prepare`."""
        layout = self._layout()
        self._look_again(layout)
        if self.keys:
            rows = one_per_key(self._as_in_paths(rows), self.keys)
        names, table = self._mapped.names, self._table_schema
        stored = {name: name_in_files(table[name]) for name in (*names.values(), *self._columns)}
        named = rows.select(*(as_written(each.name, each, table[names[each.name]]) for each in self._schema.fields))
        staged = StagedFiles(self.directory, gathers=self.commit_every.gathers)
        handle = staged.write(named, transaction, self.options, [stored[name] for name in self._columns])
        if handle is None:
            return None
        staged.check_required(handle, self._mapped.required, self._columns, "delta", stored)
        self.pace.note(transaction)
        return {**handle, **layout}

    def tells(self, clock: int, watermark: int | None) -> bool:
        """See :meth:`Telling.tells`: with ``progressInterval``, of another watermark, now and then."""
        return self.pace.is_due(clock, watermark)

    def tell(self, transaction: TransactionId) -> Handle:
        """See :meth:`Telling.tell`."""
        layout = self._layout()
        self._look_again(layout)
        self.pace.note(transaction)
        # Without rows nothing is replaced.
        return {
            **StagedFiles(self.directory, gathers=self.commit_every.gathers).nothing(transaction),
            **layout,
            "keys": [],
        }

    def commit(self, handle: Handle, between: Callable[[], None]) -> None:
        """See :meth:`Sink.commit`."""
        self.commit_all([handle], between)

    def commit_all(self, handles: Sequence[Handle], between: Callable[[], None]) -> None:
        """See :meth:`Gathering.commit_all`."""
        for group in alike(handles, "directory"):
            # Such a group consists of one epoch.
            displacing = self._displacing(group[0]) if group[0].get("keys") else None
            files = self._commit(group, displacing)
            between()
            if displacing is not None:
                displacing.end(files)
            for handle in group:
                StagedFiles(self._base(handle)).published(handle)

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

    def _displacing(self, handle: Handle) -> Displacing:
        base = self._base(handle)
        return Displacing(self.session, self._table(base), StagedFiles(base), handle, self.options)

    def _base(self, handle: Handle) -> Directory:
        """The table that a transaction was prepared for, even if the option has changed: its files are there."""
        if handle["directory"] == str(self.directory) or self.at is None:
            return self.directory
        return self.at(handle["directory"])

    def _merged(self, version: Version) -> StructType | None:
        """The schema that the table is to have, None if it stays the same."""
        new = added(version.schema, self._schema) if self.merge_schema else []
        if new:
            check_unmapped(version, str(self.directory))
        return StructType([*version.schema.fields, *new]) if new else None

    def _map(self, version: Version, merged: StructType | None = None) -> None:
        there = version if merged is None else replace(version, schema=merged)
        self._mapped = mapped(there, self._schema, self.partition_by, str(self.directory))
        if self.keys:
            _check_replacing(there, self._mapped, str(self.directory))
        self._table_schema, self._columns, self._newest = there.schema, version.partition_by, version.number

    def _layout(self) -> Handle:
        """The properties common to the files of all epochs."""
        schema = self._as_written()
        return {
            "schema": schema.jsonValue(),
            "stored": in_files(schema, self._table_schema).simpleString(),
            "partition_by": [*self._columns],
            "required": [*self._mapped.required],
            "keys": [self._mapped.names[key] for key in self.keys],
        }

    def _look_again(self, layout: Handle) -> None:
        """Refuse an epoch whose files the table would not take once it is decided."""
        table, where = self._table(self.directory), str(self.directory)
        if not self.keys and self._is_newest(table):
            return
        version = table.version()
        if version is None:
            message = (
                f"There is no longer a Delta table in {where}. Nothing of the epoch is decided: restore the table, or "
                "start the query again, which creates a new one."
            )
            raise SinkError(message)
        with looking_again(where):
            why = _unfit(version, layout, where)
            if why is not None:
                raise AnalysisError(why)
            if self.keys:
                mapped(version, self._schema, (), where)
                _check_replacing(version, self._mapped, where)
        self._newest = version.number

    def _is_newest(self, table: DeltaTable) -> bool:
        """Whether nobody else has put a version since: two requests to the store, while Kernel needs dozens."""
        return table.log.exists(file_of(self._newest)) and not table.log.exists(file_of(self._newest + 1))

    def _as_in_paths(self, rows: DataFrame) -> DataFrame:
        """The rows with nulls for empty strings where these are in paths: they are one key."""
        by = {own for own, name in self._mapped.names.items() if name in self._columns}
        texts = {own for own in by if isinstance(rows.schema[own].dataType, StringType)}
        columns = {own: F.col(quoted(own)) for own in rows.columns}
        return rows.select(
            *(F.nullif(each, F.lit("")).alias(own) if own in texts else each for own, each in columns.items())
        )

    def _as_written(self) -> StructType:
        """The schema of the rows, by the table's names."""
        fields = self._schema.fields
        return StructType([StructField(self._mapped.names[each.name], each.dataType, each.nullable) for each in fields])

    def _check_empty(self) -> None:
        """Refuse a directory with somebody else's files, which would not be rows of the table."""
        others = sorted(name for name in self.directory.names() if not name.startswith(("_", ".")))
        if others or self.directory.exists(LIST):
            found = others[0] if others else LIST
            message = (
                f'{self.option}: "{self.directory}" is not a Delta table, but has {found} in it, which would '
                "not be rows of the table. Give another directory, or convert it first (CONVERT TO DELTA)."
            )
            raise AnalysisError(message)

    def _commit(self, handles: Sequence[Handle], displacing: Displacing | None) -> frozenset[str]:
        """Have the table add files of epochs, some of which it may have; returns all files it was given with them."""
        directory, last = self._base(handles[0]), handles[-1]
        table = self._table(directory)
        for _ in range(_RACES):
            version = table.version()
            if version is None:
                message = (
                    f"There is no longer a Delta table in {directory}, but epoch {last['epoch']} is not yet added."
                )
                raise SinkError(message)
            missing, files = self._missing(table, version, handles)
            new = self._append(table, version, missing, displacing) if missing else frozenset()
            if new is not None:
                break
        else:
            message = f"Others have put {_RACES} versions into {directory} in a row, each before epoch {last['epoch']}."
            raise SinkError(message)
        self._added = str(directory), last["run"], last["epoch"]
        return files | new

    def _append(
        self, table: DeltaTable, version: Version, handles: Sequence[Handle], displacing: Displacing | None = None
    ) -> frozenset[str] | None:
        """Add epochs to a version; returns the files it was given, None if that version is no longer the newest."""
        staged, last = StagedFiles(self._base(handles[0])), handles[-1]
        for handle in handles:
            staged.check_there(handle, _VACUUM)
            _check_unchanged(version, handle, staged.directory)
        files, removed = [_data_file(name, size) for handle in handles for name, size in handle["files"]], None
        if displacing is not None:
            removed, stays = displacing.of(version)
            files += stays
            # It may have taken a while.
            for handle in handles:
                staged.check_there(handle, _VACUUM)
        name = application(last["query"], last["sink"])
        tells = told(*handles)
        done = table.append(
            version, files, name, last["epoch"], _BY, metadata(tells), removed, watermark=tells["watermark"]
        )
        # A version that was not checked before the epoch was prepared has to be checked before the next one is.
        if done and version.number == self._newest and str(staged.directory) == str(self.directory):
            self._newest += 1
        return frozenset(file.name for file in files) if done else None

    def _missing(
        self, table: DeltaTable, version: Version, handles: Sequence[Handle]
    ) -> tuple[Sequence[Handle], frozenset[str]]:
        """The epochs that the table does not have with exactly their files, and all files that came with the others."""
        first, run = handles[0], handles[0]["run"]
        name, where = application(first["query"], first["sink"]), str(self._base(first))
        last = table.last(version, name)
        if last is None or (
            last < first["epoch"] and (last <= first.get("since", 0) or self._added == (where, run, last))
        ):
            return handles, frozenset()
        logged, is_whole = newest(table.log, version.number, name, first["epoch"])
        missing: list[Handle] = []
        there: frozenset[str] = frozenset()
        for handle in handles:
            own = {file for file, _ in handle["files"]}
            found = next((each.files for each in logged if each.files >= own), None)
            if handle["epoch"] > last:
                missing.append(handle)
            elif found is not None:
                there |= found
            elif own:
                raise _not_found(handle, last, logged, where, is_whole=is_whole)
        if missing and last > missing[0].get("since", 0):
            check_run(missing[0], last, logged[0].told.get("run") if logged else None, f"the log of {where}")
        return missing, there


_BY = "sparkjet"
_VACUUM = "Was VACUUM run with a retention of a few hours or none?"


def _check_unchanged(version: Version, handle: Handle, directory: Directory) -> None:
    """Refuse files that the table no longer takes: somebody has changed or replaced it since then."""
    why = _unfit(version, handle, str(directory))
    if why is not None:
        message = (
            f"{directory} was changed after epoch {handle['epoch']} had been written for it, which is not added now: "
            f"{why} Make the table what it was (ALTER TABLE …, RESTORE TABLE …)."
        )
        raise SinkError(message)


def _unfit(version: Version, layout: Handle, where: str) -> str | None:
    """Why files do not fit a table that was changed since; None if they do."""
    try:
        # A copy: it takes the provider out of a collation that it is given, and then knows none.
        rows = StructType.fromJson(deepcopy(layout["schema"]))
        now = mapped(version, rows, (), where)
        same = all(own == name for own, name in now.names.items()) and set(now.required) <= set(layout["required"])
        # A column that was dropped and added again has the same name, but another one in the files.
        same = same and in_files(rows, version.schema).simpleString() == layout.get("stored", rows.simpleString())
        if layout.get("keys"):
            check_upserts(version, where)
    except AnalysisError as error:
        return str(error.args[0])
    if same and [*version.partition_by] == layout["partition_by"]:
        return None
    return "Its columns or partitions are others."


def _not_found(
    handle: Handle, last: int, logged: Sequence[Logged], where: str, *, is_whole: bool
) -> SinkError | CopiedHomeError:
    """The error if an epoch that the table has by number is not this one; raised here if the reason is a later run."""
    epoch = handle["epoch"]
    if not is_whole and not any(each.number <= epoch for each in logged):
        return SinkError(
            f"{where} has epoch {last} of this query, and its log no longer says whose files epoch {epoch} "
            f"added: nothing is added now. Check whether {handle['files'][0][0]} is among the files of the table's "
            "history; if it is not, start from scratch with another checkpointLocation."
        )
    other = min((each for each in logged if each.number >= epoch), key=lambda each: each.number)
    check_run(handle, other.number, other.told.get("run"), f"the log of {where}")
    return CopiedHomeError(
        f"The log of {where} has epoch {epoch} of this query with other files, in version {other.version}: another "
        "copy of this home has published it. Go on with the one whose rows are there, and remove the other."
    )


def _check_replacing(version: Version, own: Mapped, where: str) -> None:
    """Refuse a table whose rows must not be replaced, or not by these."""
    check_upserts(version, where)
    given = set(own.names.values())
    check_whole([name for name in version.schema.fieldNames() if name not in given], where)


def _data_file(name: str, size: int) -> DataFile:
    return DataFile(name, size, values_of(name))
