"""The transactional file sink: written by Spark's writers, published by renaming."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from sparkjet.clock import Clock, SystemClock
from sparkjet.errors import LostTransactionError, SinkError
from sparkjet.sinks.file_formats import check_format
from sparkjet.sinks.manifest import MANIFEST_DIRECTORY, Manifest, ManifestEntry
from sparkjet.sinks.protocol import Guarantee, Handle, TransactionId
from sparkjet.storage.paths import (
    WRITING,
    check_put_if_absent,
    make_directories,
    spark_uri,
    sync_file,
    sync_levels,
)
from sparkjet.storage.written import write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

logger = logging.getLogger("sparkjet")

STEPS = 16
"""Entries expire from the manifest in this many steps per retention."""


@dataclass
class FilesSink:
    """Files of one format below one directory.

    An epoch's files are written below ``_sparkjet/`` (which Spark, like every reader that follows Hadoop's convention,
    ignores), then renamed into place one by one: a plain reader sees only complete files, and each row once. To read
    whole epochs, use :func:`sparkjet.read_files`.

    Args:
        directory: The output directory.
        file_format: One of :data:`sparkjet.sinks.file_formats.FORMATS`.
        partition_by: Columns that become directories, as in Spark's ``partitionBy``.
        options: Options for Spark's writer, e.g. ``compression`` or ``header``.
        option: Name of the user's option, for messages.
        retention: Microseconds after which an epoch may expire from the manifest; None keeps all. Its files stay.
        clock: The clock that dates epochs.
    """

    directory: Path
    file_format: str = "parquet"
    partition_by: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict)
    option: str = "path"
    retention: int | None = None
    clock: Clock = field(default_factory=SystemClock)
    guarantee: Guarantee = field(default=Guarantee.EXACTLY_ONCE, init=False)

    def check(self, schema: StructType) -> None:
        """See :meth:`Sink.check`."""
        check_format(self.file_format, schema, self.partition_by)
        check_put_if_absent(self.directory / MANIFEST_DIRECTORY, self.option, create=False)

    def create(self) -> None:
        """See :meth:`Creating.create`: creates the directory, which may be read before the first row is written."""
        make_directories(self.directory / MANIFEST_DIRECTORY)

    def prepare(self, rows: DataFrame, transaction: TransactionId) -> Handle | None:
        """See :meth:`Sink.prepare`."""
        staging = _staging(self.directory, transaction.query, transaction.sink) / str(transaction)
        make_directories(staging.parent)

        def save(observed: DataFrame) -> None:
            writer = observed.write.mode("errorifexists").format(self.file_format)
            writer = writer.options(**WRITING).options(**self.options)
            if self.partition_by:
                writer = writer.partitionBy(*self.partition_by)
            writer.save(spark_uri(staging))

        found = write(rows, staging, save, SinkError)
        if not found.rows:
            shutil.rmtree(staging)
            return None
        files = found.files
        sync_levels(staging.parent, [staging / file for file in files])
        for file in files:
            sync_file(staging / file)
        names = [_published(transaction, number, file) for number, file in enumerate(files)]
        return {
            "directory": str(self.directory),
            "query": transaction.query,
            "sink": transaction.sink,
            "staging": str(transaction),
            "epoch": transaction.epoch,
            "rows": found.rows,
            "files": [[file.as_posix(), name.as_posix()] for file, name in zip(files, names, strict=True)],
            "format": self.file_format,
            "schema": rows.schema.jsonValue(),
            "options": dict(self.options),
        }

    def commit(self, handle: Handle, between: Callable[[], None]) -> None:
        """See :meth:`Sink.commit`."""
        bases = self._bases([handle])
        for base in bases:
            if self._manifest(base, handle).contains(handle["epoch"]):
                # Checked first: a fenced driver may resume its commits after a user has removed old output files, and
                # must not report them as lost.
                _discard(base, handle)
                return
        base = self._base(bases, handle)
        targets = []
        for staged, published in handle["files"]:
            target = base / published
            targets.append(target)
            # Every level is synced below, even if it exists: a crash may have come between its mkdir and its sync.
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                (_staged_by(base, handle) / staged).rename(target)
            except FileNotFoundError as error:
                if not target.exists() and not self._manifest(base, handle).contains(handle["epoch"]):
                    raise _lost(bases, handle, staged) from error
            between()
        sync_levels(base, targets)
        manifest = self._manifest(base, handle)
        now = self.clock.now()
        manifest.add(
            ManifestEntry(
                epoch=handle["epoch"],
                files=[published for _, published in handle["files"]],
                format=handle["format"],
                schema=handle["schema"],
                options=handle["options"],
                committed=now,
            )
        )
        if self.retention is not None:
            manifest.expire(now - self.retention, self.retention // STEPS)
        _discard(base, handle)

    def abort(self, transaction: TransactionId) -> None:
        """See :meth:`Aborting.abort`."""
        staging = _staging(self.directory, transaction.query, transaction.sink) / str(transaction)
        shutil.rmtree(staging, ignore_errors=True)

    def published_after(self, newest: TransactionId, handle: Handle | None) -> str | None:
        """See :meth:`Remembering.published_after`.

        Only the configured directory is checked: in a different one, recomputed epochs do not meet older ones.
        """
        del handle
        last = Manifest(self.directory, newest.query, newest.sink).newest()
        if last is None or last <= newest.epoch:
            return None
        first = newest.epoch + 1
        return (
            f"the manifest of {self.directory} has epoch {last}. Restore the newest snapshots, with which nothing is "
            f"lost or repeated. Or go on from these with another {self.option}: epochs from {first} on are computed "
            f"again and written there, and epochs {first} to {last} in {self.directory} (files part-{first:09d}-… to "
            f"part-{last:09d}-…) must not be read together with it. Or start from scratch, with another "
            f"checkpointLocation and another {self.option}."
        )

    def abort_orphans(self, query: str, takeover: int, keep: Sequence[Handle]) -> None:
        """See :meth:`Sink.abort_orphans`; also covers the directories of decided transactions."""
        decided = {(handle["sink"], handle["staging"]) for handle in keep}
        for base in self._bases(keep):
            for staging in (base / MANIFEST_DIRECTORY / query).glob("*/staging/*"):
                number = staging.name.partition("-")[0]
                is_orphan = number.isdecimal() and int(number) < takeover
                if is_orphan and (staging.parent.parent.name, staging.name) not in decided:
                    shutil.rmtree(staging, ignore_errors=True)
            for folder in (base / MANIFEST_DIRECTORY / query).glob("*/manifest"):
                Manifest(base, query, folder.parent.name).remove_leftovers()

    def _bases(self, handles: Sequence[Handle]) -> list[Path]:
        """Directories that transactions may be in: the configured one, and those configured when they were prepared."""
        return list(dict.fromkeys([self.directory, *(Path(handle["directory"]) for handle in handles)]))

    def _base(self, bases: Sequence[Path], handle: Handle) -> Path:
        """The directory that a transaction was prepared in, even if it has moved: its files are published there.

        Never across directories: the other one may be on another file system, and a half-published epoch would be in
        both.
        """
        for base in bases:
            whole = all((base / published).exists() for _, published in handle["files"])
            if whole or _staged_by(base, handle).is_dir():
                break
        else:
            raise _lost(bases, handle, handle["files"][0][0])
        if base != self.directory:
            logger.warning(
                "epoch %d was decided while %s was %s: its rows are published there, not in %s",
                handle["epoch"],
                self.option,
                base,
                self.directory,
            )
        return base

    def _manifest(self, base: Path, handle: Handle) -> Manifest:
        return Manifest(base, handle["query"], handle["sink"])


def _staging(base: Path, query: str, sink: str) -> Path:
    return base / MANIFEST_DIRECTORY / query / sink / "staging"


def _staged_by(base: Path, handle: Handle) -> Path:
    return _staging(base, handle["query"], handle["sink"]) / str(handle["staging"])


def _discard(base: Path, handle: Handle) -> None:
    shutil.rmtree(_staged_by(base, handle), ignore_errors=True)


def _lost(bases: Sequence[Path], handle: Handle, staged: str) -> LostTransactionError:
    places = " nor in ".join(str(_staged_by(base, handle)) for base in bases)
    return LostTransactionError(
        f"Epoch {handle['epoch']} was decided, but {staged} is not in {places}, and it was never published in "
        f"{' or '.join(map(str, bases))}: its rows are lost. Restore the file, or rerun the query from its input."
    )


def _published(transaction: TransactionId, number: int, staged: Path) -> Path:
    """Final name of a staged file: unique, and the same in every process that commits it."""
    suffix = "".join(staged.suffixes)
    name = f"part-{transaction.epoch:09d}-{number:05d}-{transaction.query[:8]}-{transaction.sink}{suffix}"
    return staged.parent / name
