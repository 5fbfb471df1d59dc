"""The transactional file sink: written by Spark's writers, published by renaming."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import InitVar, dataclass, field
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import StructType

from sparkjet.clock import Clock, SystemClock
from sparkjet.errors import AnalysisError, CopiedHomeError, LostTransactionError, SinkError, StorageError
from sparkjet.query_log import begin, current, logger
from sparkjet.sinks.copies import check_run, origin
from sparkjet.sinks.file_formats import check_format
from sparkjet.sinks.manifest import MANIFEST_DIRECTORY, Manifest, ManifestEntry
from sparkjet.sinks.pace import Pace
from sparkjet.sinks.protocol import Guarantee, Handle, TransactionId
from sparkjet.sinks.spark_list import INTERVAL, LIST, SparkList
from sparkjet.storage.directory import Remote
from sparkjet.storage.file_writer import FileWriter
from sparkjet.storage.posix_directory import as_directory
from sparkjet.storage.written import write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sparkjet.storage.directory import Directory


_LISTS = {LIST: "Spark's own streaming", "_delta_log": "Delta"}
"""Lists of files that the readers of a directory follow, and who keeps them."""
STEPS = 16
"""Entries expire from the manifest in this many steps per retention."""
_BUCKET = re.compile(r"(?<=[0-9a-f])_\d{5}(?=\.)")
RENAMES = 8
"""At once, in a store: each is some requests there, and the next epoch waits for them."""


@dataclass
class FilesSink:
    """Files of one format below one directory.

    An epoch's files are written below ``_sparkjet/`` (which Spark, like every reader that follows Hadoop's convention,
    ignores), then renamed into place: a plain reader sees only complete files, and each row once. To read whole epochs,
    use :func:`sparkjet.read_files`.

    Args:
        place: The output directory.
        file_format: One of :data:`sparkjet.sinks.file_formats.FORMATS`.
        partition_by: Columns that become directories, as in Spark's ``partitionBy``.
        options: Options for Spark's writer, e.g. ``compression`` or ``header``.
        option: Name of the user's option, for messages.
        retention: Microseconds after which an epoch may expire from the manifest; None keeps all. Its files stay.
        age_limit: Microseconds after which an epoch's files are gone, too, if the query has epochs; None keeps all.
        clock: The clock that dates epochs.
        at: Gives the directory of a location, for rows that were decided while the option was another.
        buckets: Of a table, as :class:`~sparkjet.storage.file_writer.FileWriter` takes them.
        pace: When epochs without rows tell readers of the watermark.
    """

    place: InitVar[Path | Directory]
    file_format: str = "parquet"
    partition_by: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    option: str = "path"
    retention: int | None = None
    age_limit: int | None = field(default=None, kw_only=True)
    clock: Clock = field(default_factory=SystemClock)
    at: Callable[[str], Directory] = field(default=lambda location: as_directory(Path(location)))
    buckets: Any = None
    pace: Pace = field(default_factory=Pace)
    directory: Directory = field(init=False)
    guarantee: Guarantee = field(default=Guarantee.EXACTLY_ONCE, init=False)
    _added: tuple[str, str | None, int] = field(default=("", None, 0), init=False)
    """Directory, run and epoch of the last manifest entry: it need not be read to know whose it is."""

    _staged: str = field(default="", init=False)
    """What was prepared last: this process need not look for what it has just put there."""

    _looked: int | None = field(default=None, init=False)
    """When this process has last looked for what is too old."""

    _schema: StructType = field(default_factory=StructType, init=False)
    _adopts: bool = field(default=False, init=False)
    """Whether Spark's list of the directory is continued."""

    _list: SparkList = field(init=False)

    def __post_init__(self, place: Path | Directory) -> None:
        self.directory = as_directory(place)
        self._list = SparkList(self.directory)

    def spark_batch(self) -> int | None:
        """See :meth:`Adopting.spark_batch`."""
        try:
            return self._list.newest()
        except OSError:
            # Before `check`, which says what is wrong with the place, or that there is a list.
            return None

    def adopt(self, session: SparkSession) -> None:
        """See :meth:`Adopting.adopt`."""
        _interval(session)
        try:
            self._list.lines()
        except StorageError as error:
            raise AnalysisError(f"{self.option}: {str(error).partition('] ')[2]}") from error
        self._adopts = True

    def close_batch(self, number: int, session: SparkSession) -> bool:
        """See :meth:`Adopting.close_batch`."""
        return self._list.close(number, _interval(session))

    def check(self, schema: StructType) -> None:
        """See :meth:`Sink.check`."""
        check_format(self.file_format, schema, self.partition_by)
        self._schema = schema
        # Says first what is wrong with the place as a whole: a bucket that is not there has no lists to ask for.
        self.directory.below(MANIFEST_DIRECTORY).check(self.option, create=False)
        self._check_readers()

    def create(self) -> None:
        """See :meth:`Creating.create`: creates the directory, which may be read before the first row is written."""
        self.directory.below(MANIFEST_DIRECTORY).create()

    def prepare(self, rows: DataFrame, transaction: TransactionId) -> Handle | None:
        """See :meth:`Sink.prepare`."""
        staging = _staging(self.directory, transaction.query, transaction.sink)
        if not self._staged:
            # Once: it syncs directories, and an epoch waits for each of them.
            staging.create()
        staged = str(transaction)
        writer = FileWriter(
            staging.below(staged), self.file_format, self.options, self.partition_by, buckets=self.buckets
        )
        found = write(rows, writer, SinkError)
        if not found.rows:
            staging.remove(staged)
            return None
        files, listed = found.files, {}
        if self._adopts:
            listed["listed"] = {"sizes": list(files.values()), "interval": _interval(rows.sparkSession)}
        staging.sync(f"{staged}/{file}" for file in files)
        self._staged = staged
        names = [_published(transaction, number, file) for number, file in enumerate(files)]
        return {
            **self._handle(transaction, found.rows, rows.schema),
            "files": [[file, name] for file, name in zip(files, names, strict=True)],
            "options": {**self._zone(rows.sparkSession), **self.options},
            **listed,
        }

    def tells(self, clock: int, watermark: int | None) -> bool:
        """See :meth:`Telling.tells`: with ``progressInterval``, of another watermark, now and then."""
        return self.pace.is_due(clock, watermark)

    def tell(self, transaction: TransactionId) -> Handle:
        """See :meth:`Telling.tell`: an entry of the manifest that names no files."""
        return self._handle(transaction, 0, self._schema)

    def _handle(self, transaction: TransactionId, rows: int, schema: StructType) -> Handle:
        self.pace.note(transaction)
        return {
            "directory": str(self.directory),
            "query": transaction.query,
            "sink": transaction.sink,
            "staging": str(transaction),
            "epoch": transaction.epoch,
            "rows": rows,
            "files": [],
            "format": self.file_format,
            "schema": schema.jsonValue(),
            "options": {**self.options},
            "progress": transaction.to_tell(rows),
            **origin(transaction),
        }

    def commit(self, handle: Handle, between: Callable[[], None]) -> None:
        """See :meth:`Sink.commit`."""
        bases = self._bases([handle])
        for base in bases:
            if self._is_published(base, handle):
                # Checked first: a fenced driver may resume its commits after a user has removed old output files, and
                # must not report them as lost.
                self._list_again(base, handle, between)
                _discard(base, handle)
                return
        base = self._base(bases, handle)
        are_there = self._publish(base, bases, handle, between)
        base.sync((published for _, published in handle["files"]), contents=False)
        manifest = self._manifest(base, handle)
        now = self.clock.now()
        *whose, added = self._added
        is_new = manifest.add(
            ManifestEntry(
                epoch=handle["epoch"],
                files=[published for _, published in handle["files"]],
                format=handle["format"],
                schema=handle["schema"],
                options=handle["options"],
                committed=now,
                run=handle.get("run"),
                # Those of the kept homes tell nothing.
                progress=handle.get("progress"),
            ),
            after=added if whose == [str(base), handle.get("run")] else None,
        )
        if is_new:
            self._added = str(base), handle.get("run"), handle["epoch"]
        else:
            self._is_published(base, handle)
        # Behind the manifest, which tells copies of a home apart: readers fail if an entry's files are gone again.
        self._add_to_list(base, handle, between)
        if self.retention is not None:
            manifest.expire(now - self.retention, self.retention // STEPS, now=now)
        if are_there and isinstance(base, Remote):
            # By their names. What attempts that were given up have left may stay until the next start.
            base.discard(_staged_by(handle), [staged for staged, _ in handle["files"]])
        else:
            _discard(base, handle)

    def _publish(
        self, base: Directory, bases: Sequence[Directory], handle: Handle, between: Callable[[], None]
    ) -> bool:
        """Give the files their final names; returns whether all of them are still where they were staged, too."""

        def publish(file: Sequence[str]) -> bool:
            staged, published = file
            source = f"{_staged_by(handle)}/{staged}"
            try:
                if isinstance(base, Remote):
                    return base.publish(source, published)
                base.rename(source, published)
            except FileNotFoundError as error:
                if not base.exists(published) and not self._manifest(base, handle).contains(handle["epoch"]):
                    raise _lost(bases, handle, staged) from error
            return False

        are_there = True
        with ThreadPoolExecutor(RENAMES, initializer=begin, initargs=(current(),)) as threads:
            each = threads.map if base.path is None else map
            for is_there in each(publish, handle["files"]):
                are_there = are_there and is_there
                between()
        return are_there

    def age(self, query: str, sink: str) -> None:
        """See :meth:`Ageing.age`.

        An epoch leaves the manifest at seven eighths of the limit at the latest, and its files go with the next look:
        readers that have listed them meanwhile still find them.
        """
        if self.age_limit is None:
            return
        now, step = self.clock.now(), self.age_limit // STEPS
        # A clock that was ahead must not stop it.
        if self._looked is None or not 0 <= now - self._looked < step:
            self._looked = now
            Manifest(self.directory, query, sink).expire(now - self.age_limit * 3 // 4, step, removes=True, now=now)

    def abort(self, transaction: TransactionId) -> None:
        """See :meth:`Aborting.abort`."""
        _staging(self.directory, transaction.query, transaction.sink).remove(str(transaction))

    def published_after(self, newest: TransactionId, handle: Handle | None) -> str | None:
        """See :meth:`Sink.published_after`.

        Only the configured directory is checked: in a different one, recomputed epochs do not meet older ones.
        """
        del handle
        last = Manifest(self.directory, newest.query, newest.sink).newest()
        if last is None or last <= newest.epoch:
            return None
        first = newest.epoch + 1
        return (
            f"the manifest of {self.directory} has epoch {last}. Restore the newest copy of the home, with which "
            f"nothing is lost or repeated. Or go on from this one with another {self.option}: epochs from {first} on "
            f"are computed again and written there, and epochs {first} to {last} in {self.directory} (files "
            f"part-{first:09d}-… to part-{last:09d}-…) must not be read together with it. Or start from scratch, with "
            f"another checkpointLocation (in a grid: queryId) and another {self.option}."
        )

    def abort_orphans(self, query: str, takeover: int, keep: Sequence[Handle]) -> None:
        """See :meth:`Sink.abort_orphans`; also covers the directories of decided transactions."""
        decided = {(handle["sink"], handle["staging"]) for handle in keep}
        for base in self._bases(keep):
            own = base.below(f"{MANIFEST_DIRECTORY}/{query}")
            for sink in own.names():
                staging = _staging(base, query, sink)
                for staged in staging.names():
                    number = staged.partition("-")[0]
                    is_orphan = number.isdecimal() and int(number) < takeover
                    if is_orphan and (sink, staged) not in decided:
                        staging.remove(staged)
                Manifest(base, query, sink).remove_leftovers()

    def _zone(self, session: SparkSession) -> dict[str, str]:
        """The session's time zone where times are written as text, unless an option names another.

        Readers may have another one, and ``ts=2026-01-01 00:00:00`` in a path does not say which it was.
        """
        as_text = self.partition_by or self.file_format in {"csv", "json"}
        given = any(name.lower() == "timezone" for name in self.options)
        return {"timeZone": str(session.conf.get("spark.sql.session.timeZone"))} if as_text and not given else {}

    def _check_readers(self) -> None:
        """Refuse a directory whose readers follow somebody else's list of files: they would see none of ours."""
        for name, owner in _LISTS.items():
            if self._adopts and name == LIST and self.age_limit is None:
                continue
            if self.directory.exists(name):
                message = (
                    f'{self.option}: "{self.directory}" was written by {owner}: readers follow the list of files in '
                    f"{name}, and would see no row of this query. Give another directory or table, and read both; or "
                    "copy there first what is here, as a batch of Spark's; or adopt the checkpoint of the query that "
                    "has written it, where that is one of Spark's."
                )
                raise AnalysisError(message)

    def _bases(self, handles: Sequence[Handle]) -> list[Directory]:
        """Directories that transactions may be in: the configured one, and those configured when they were prepared."""
        configured = str(self.directory)
        others = dict.fromkeys(handle["directory"] for handle in handles if handle["directory"] != configured)
        return [self.directory, *map(self.at, others)]

    def _base(self, bases: Sequence[Directory], handle: Handle) -> Directory:
        """The directory that a transaction was prepared in, even if it has moved: its files are published there.

        Never across directories: the other one may be on another file system, and a half-published epoch would be in
        both.
        """
        if handle["staging"] == self._staged and handle["directory"] == str(self.directory):
            return self.directory
        for base in bases:
            if base.exists(_staged_by(handle)) or all(base.exists(published) for _, published in handle["files"]):
                break
        else:
            raise _lost(bases, handle, handle["files"][0][0])
        if base is not self.directory:
            logger.warning(
                "epoch %d was decided while %s was %s: its rows are published there, not in %s",
                handle["epoch"],
                self.option,
                base,
                self.directory,
            )
        return base

    def _is_published(self, base: Directory, handle: Handle) -> bool:
        """Whether the manifest has the epoch."""
        *whose, added = self._added
        after = max(handle.get("since", 0), added if whose == [str(base), handle.get("run")] else 0)
        there, entry = self._manifest(base, handle).published(handle["epoch"], after)
        if entry is not None:
            try:
                check_run(handle, entry.epoch, entry.run, f"the manifest of {base}")
            except CopiedHomeError:
                if str(base) != handle["directory"] and not base.exists(_staged_by(handle)):
                    # The path was changed to go on from a backup, and changed back: the epochs are older than that.
                    return False
                for staged, published in handle["files"]:
                    if base.exists(published):
                        base.rename(published, f"{_staged_by(handle)}/{staged}")
                raise
        return there

    def _list_again(self, base: Directory, handle: Handle, between: Callable[[], None]) -> None:
        """Add what a commit may have left out that was ended behind the manifest."""
        # Behind a later epoch nothing was left out, and by its age the list may have dropped it.
        if "listed" in handle and self._manifest(base, handle).newest() == handle["epoch"]:
            self._add_to_list(base, handle, between)

    def _add_to_list(self, base: Directory, handle: Handle, between: Callable[[], None]) -> None:
        listed = handle.get("listed")
        # Without the list, which a user has removed, readers see all files; one of ours alone would hide the others.
        if listed is None or not base.exists(LIST):
            return
        between()
        files = dict(zip((name for _, name in handle["files"]), listed["sizes"], strict=True))
        spark_list = self._list if base is self.directory else SparkList(base)
        spark_list.add(files, self.clock.now(), listed["interval"], self.retention)
        between()

    def _manifest(self, base: Directory, handle: Handle) -> Manifest:
        return Manifest(base, handle["query"], handle["sink"])


def _interval(session: SparkSession) -> int:
    interval = int(str(session.conf.get(INTERVAL)))
    if interval < 1:
        # A commit could not go on with it, and never would: the epoch keeps its interval.
        message = f"{INTERVAL} is {interval}, and a list of files is merged every so many entries. Set it to 1 or more."
        raise AnalysisError(message)
    return interval


def _staging(base: Directory, query: str, sink: str) -> Directory:
    return base.below(f"{MANIFEST_DIRECTORY}/{query}/{sink}/staging")


def _staged_by(handle: Handle) -> str:
    return f"{MANIFEST_DIRECTORY}/{handle['query']}/{handle['sink']}/staging/{handle['staging']}"


def _discard(base: Directory, handle: Handle) -> None:
    base.remove(_staged_by(handle))


def _lost(bases: Sequence[Directory], handle: Handle, staged: str) -> LostTransactionError:
    places = " nor in ".join(str(base.below(_staged_by(handle))) for base in bases)
    return LostTransactionError(
        f"Epoch {handle['epoch']} was decided, but {staged} is not in {places}, and it was never published in "
        f"{' or '.join(map(str, bases))}: its rows are lost. Restore the file, or rerun the query from its input."
    )


def _published(transaction: TransactionId, number: int, staged: str) -> str:
    """Final name of a staged file: unique, and the same in every process that commits it."""
    path = PurePosixPath(staged)
    # Spark's readers take the number of the bucket from the name.
    bucket = _BUCKET.search(path.name)
    suffix = (bucket[0] if bucket is not None else "") + "".join(path.suffixes)
    # With the run: copies of a home would replace each other's files.
    run = f"-{transaction.run}" if transaction.run else ""
    name = f"part-{transaction.epoch:09d}-{number:05d}-{transaction.query[:8]}-{transaction.sink}{run}{suffix}"
    return str(path.parent / name)
