"""The directory store: a query's record log, deltas and blobs in one local or mounted directory."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from sparkjet.errors import RecoveryError, StorageError
from sparkjet.storage.paths import (
    CHECKING,
    WRITING,
    check_put_if_absent,
    make_directories,
    put_if_absent,
    remove_temporaries,
    spark_uri,
    sync_directory,
    sync_file,
    write_durably,
)
from sparkjet.storage.written import write

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sparkjet.snapshots.store import Delta


class DirectoryStore:
    """Slots in ``log/``, deltas as Parquet directories in ``state/``, blobs in ``blobs/``.

    Every executor must see the directory under the same path. Thread-safe if the file system is.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._log = directory / "log"
        self._state = directory / "state"
        self._blobs = directory / "blobs"

    def open(self, option: str) -> None:
        """Create the directories, test put-if-absent, and remove temporary files left by crashes.

        Raises:
            AnalysisError: Naming ``option`` if the directory cannot hold decisions.
        """
        check_put_if_absent(self._log, option)
        make_directories(self._state)
        make_directories(self._blobs)
        remove_temporaries(self._log)

    def put(self, slot: int, content: bytes) -> bool:
        """See :meth:`SnapshotStore.put`."""
        return put_if_absent(self._slot(slot), content)

    def slots(self) -> list[int]:
        """See :meth:`SnapshotStore.slots`."""
        if not self._log.is_dir():
            return []
        return sorted(int(path.stem) for path in self._log.glob("*.json") if path.stem.isdecimal())

    def read(self, slot: int) -> bytes:
        """See :meth:`SnapshotStore.read`."""
        return self._slot(slot).read_bytes()

    def trim(self, below: int) -> None:
        """See :meth:`SnapshotStore.trim`."""
        for slot in self.slots():
            if slot < below:
                self._slot(slot).unlink(missing_ok=True)

    def write_delta(self, name: str, partials: DataFrame) -> list[str]:
        """See :meth:`SnapshotStore.write_delta`."""
        directory = self._state / name

        def save(observed: DataFrame) -> None:
            writer = observed.write.mode("errorifexists").options(**WRITING).option("maxRecordsPerFile", 0)
            writer.parquet(spark_uri(directory))

        files = [file.name for file in write(partials, directory, save, StorageError).files]
        for file in files:
            sync_file(directory / file)
        sync_directory(directory)
        sync_directory(self._state)
        return files

    def read_delta(self, session: SparkSession, delta: Delta) -> DataFrame:
        """See :meth:`SnapshotStore.read_delta`."""
        if delta.rows and not delta.files:
            message = (
                f"The snapshot says that {delta.name} has {delta.rows} rows, but names no file of it: they were "
                "written to a directory that the driver did not see. Start from scratch with another "
                "checkpointLocation."
            )
            raise RecoveryError(message)
        paths = [self._state / delta.name / file for file in delta.files]
        missing = [path for path in paths if not path.is_file()]
        if missing:
            message = (
                f"The snapshot names {len(paths)} files of {delta.name}, but {len(missing)} are missing, the first: "
                f"{missing[0]}. Restore the files, or start from scratch with another checkpointLocation."
            )
            raise RecoveryError(message)
        return session.read.options(**CHECKING).parquet(*(spark_uri(path) for path in paths))

    def put_blob(self, name: str, content: bytes) -> None:
        """See :meth:`SnapshotStore.put_blob`."""
        write_durably(self._blobs / name, content)
        sync_directory(self._blobs)

    def read_blob(self, name: str) -> bytes:
        """See :meth:`SnapshotStore.read_blob`."""
        path = self._blobs / name
        if not path.is_file():
            message = f"The snapshot names {path}, which is missing. Restore the file, or start from scratch."
            raise RecoveryError(message)
        return path.read_bytes()

    def names(self) -> list[str]:
        """See :meth:`SnapshotStore.names`."""
        return sorted(path.name for folder in (self._state, self._blobs) for path in folder.iterdir())

    def remove(self, name: str) -> None:
        """See :meth:`SnapshotStore.remove`."""
        shutil.rmtree(self._state / name, ignore_errors=True)
        (self._blobs / name).unlink(missing_ok=True)

    def _slot(self, slot: int) -> Path:
        return self._log / f"{slot:012d}.json"
