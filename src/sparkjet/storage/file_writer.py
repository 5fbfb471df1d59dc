"""Writing rows as files: on a path renamed into place, in a store listed by the driver."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from sparkjet.storage.directory import HoldsRows, Remote
from sparkjet.storage.field_names import numbered
from sparkjet.storage.paths import WRITING
from sparkjet.storage.read_back import for_read_back
from sparkjet.storage.write_job import WriteJob

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from sparkjet.storage.directory import Directory


@dataclass(frozen=True)
class Saved:
    """The output of tasks, and what the driver sees of it.

    Attributes:
        rows: Number of rows written.
        written: Number of files written.
        files: The files that the driver sees, relative to the directory, with their sizes.
    """

    rows: int
    written: int
    files: dict[str, int]


@dataclass(frozen=True)
class FileWriter:
    """Writes the rows of a DataFrame into a new directory, and knows which files in it count.

    On a path, one rename gives the files of a task their names. In a store a rename may be a copy, file by file: a task
    attempt that was given up, and continues later, could replace files of the one that counts, or be seen halfway.
    There, each attempt writes under its own names, and the driver lists the files of the attempts that count.

    Attributes:
        directory: The directory, which must not exist.
        format: Spark's name for it.
        options: Options of Spark's writer.
        partition_by: Columns that become directories.
        read_back: Whether sparkjet itself reads the files: then the settings of the rows' session do not apply.
        defaults: Whether Spark's defaults apply to the files, rather than the settings of the rows' session: for files
            read by others in another format.
        buckets: The table's buckets, as :class:`WriteJob` takes them.
    """

    directory: Directory
    format: str = "parquet"
    options: Mapping[str, str] = field(default_factory=dict)
    partition_by: Sequence[str] = ()
    read_back: bool = field(default=False, kw_only=True)
    defaults: bool = field(default=False, kw_only=True)
    buckets: Any = field(default=None, kw_only=True)

    def save(self, rows: DataFrame) -> Saved:
        """Write the rows; if it fails, nothing that has been written counts."""
        if self.read_back:
            rows = numbered(rows)
        if isinstance(self.directory, HoldsRows):
            files = self.directory.write_rows(rows)
            sizes = {name: size for name, (_, size) in files.items()}
            return Saved(sum(count for count, _ in files.values()), len(files), _sorted(sizes))
        uri = self.directory.uri()
        settings = for_read_back(rows.sparkSession) if self.read_back or self.defaults else None
        job = WriteJob(rows, uri, self.format, self.options, self.partition_by, settings=settings, buckets=self.buckets)
        if self.directory.path is not None:
            # Those that Hadoop's committer would create: it starts a process (`chmod`) for each.
            (self.directory.path / "_temporary" / "0" / "_temporary").mkdir(parents=True)
            statistics = job.renaming(WRITING)
            return Saved(statistics.rows, statistics.files, self._found())
        if isinstance(self.directory, Remote):
            self.directory.wait()
        statistics, written = job.listing()
        found = {unquote(each).removeprefix(f"{uri}/"): size for each, size in written.items()}
        return Saved(statistics.rows, statistics.files, _sorted(found))

    def _found(self) -> dict[str, int]:
        files = {PurePosixPath(name): size for name, size in self.directory.files().items()}
        # Late and speculative attempts write below _temporary.
        own = (path for path in sorted(files) if path.name.startswith("part-") and path.parts[0] != "_temporary")
        return {str(path): files[path] for path in own}


def _sorted(files: Mapping[str, int]) -> dict[str, int]:
    return dict(sorted(files.items()))
