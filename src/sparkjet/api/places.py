"""The places of a query: its home, Spark's checkpoint and its outputs, and checks of what they allow."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sparkjet.connectors.formats import SINKS
from sparkjet.errors import AnalysisError
from sparkjet.executors import platform_of
from sparkjet.platforms import Weight
from sparkjet.query_log import logger
from sparkjet.sinks.files import FilesSink
from sparkjet.storage.local_directory import local_directory
from sparkjet.storage.schemes import is_within
from sparkjet.storage.sharing import check_reached, check_shared

if TYPE_CHECKING:
    from sparkjet.plan.plan import Plan
    from sparkjet.storage.directory import Directory

_CLEANERS = {each.name: each.cleaner for each in SINKS.values() if each.cleaner is not None}
_NO_HOME = (
    "checkpointLocation is missing, and executors on other machines cannot use the driver's temporary directory. Give "
    'option("checkpointLocation", "…") a directory that all machines share'
)


@dataclass(frozen=True)
class Places:
    """The places to which a query writes.

    Attributes:
        plan: The query.
        home: Its home.
        has_own_home: False if the home is a new temporary directory, because none was given.
    """

    plan: Plan
    home: Directory
    has_own_home: bool

    @property
    def all(self) -> list[Path]:
        """Directories to which the driver writes, possibly on several disks."""
        home = self.home.path
        names = () if home is None else ("log", "state", "blobs", "outbox")
        snapshots = [self.home.below("snapshots").below(name).path for name in names]
        return list(dict.fromkeys([*filter(None, snapshots), self.spark_directory, *self._output_paths]))

    @property
    def _output_paths(self) -> dict[Path, str]:
        """Directories of files below a path, each with the option that sets it."""
        return {sink.directory.path: sink.option for sink in self._file_sinks if sink.directory.path is not None}

    @property
    def _file_sinks(self) -> list[Any]:
        files = [output.sink for output in self.plan.outputs if isinstance(output.sink, FilesSink)]
        return [*files, *(sink for sink, _ in self._table_sinks)]

    @property
    def _table_sinks(self) -> list[tuple[Any, str]]:
        """The sinks of tables that are directories, each with the operation that removes files unknown to the table."""
        # By name: the classes need the packages of extras.
        outputs: list[Any] = [output for output in self.plan.outputs if output.format in _CLEANERS]
        return [(each.sink, _CLEANERS[each.format]) for each in outputs if each.sink.directory is not None]

    @cached_property
    def spark_directory(self) -> Path:
        """The place of Spark's own checkpoint: on this machine if the home is in a store, as it is derived anyway."""
        home = self.home.path
        return local_directory(str(self.home)) if home is None else home / "spark"

    def check_home(self) -> None:
        """Refuse a home among the files of a table: the table's maintenance removes whatever no version names.

        Raises:
            AnalysisError: The home is there.
        """
        for table, cleaner in ((sink.directory, cleaner) for sink, cleaner in self._table_sinks):
            top, home = table.resolved().rstrip("/"), self.home.resolved()
            if is_within(home, top) and not home.startswith((f"{top}/_", f"{top}/.")):
                message = (
                    f'checkpointLocation: "{self.home}" is in the table {table}, where {cleaner} removes what no '
                    f"version names. Give it a separate place, or one below {table}/_checkpoints."
                )
                raise AnalysisError(message)

    def check_platform(self) -> None:
        """Report what does not work on the platform of this driver.

        Raises:
            AnalysisError: The home will be gone when the driver comes back.
        """
        home = self.home.path if self.has_own_home else None
        for note in platform_of(self.plan.source.sparkSession).notes(None if home is None else str(home)):
            if note.weight is Weight.REFUSED:
                raise AnalysisError(f"checkpointLocation: {note.told} {note.remedy}")
            if note.weight is Weight.WARNED:
                logger.warning("%s %s", note.told, note.remedy)

    def check_shared(self) -> None:
        """Check that the executors write where this driver reads, before anything is created or taken over.

        Raises:
            AnalysisError: They do not.
        """
        home = self.home.path
        options: dict[Path, str] = {}
        if home is not None:
            # Not into a home that only this machine has: executors would create a directory that is never removed.
            options = {home / "snapshots": "checkpointLocation"} if self.has_own_home else {home.parent: _NO_HOME}
        stores = {sink.directory: sink.option for sink in self._file_sinks if sink.directory.path is None}
        if home is None:
            stores[self.home] = "checkpointLocation"
        check_reached(self.plan.source.sparkSession, stores)
        try:
            check_shared(self.plan.source.sparkSession, options | self._output_paths)
        except AnalysisError:
            if home is not None and not self.has_own_home:
                home.rmdir()
            raise
