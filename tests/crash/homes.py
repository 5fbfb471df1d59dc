"""Homes of crashed queries: each in a directory of its query, or all of them in a grid."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sparkjet.storage.grid_directory import GridDirectory
from sparkjet.storage.grid_location import GridLocation
from sparkjet.storage.local_directory import local_directory
from sparkjet.storage.posix_directory import PosixDirectory
from sparkjet_grid.access import TOKEN_VARIABLE, Access

if TYPE_CHECKING:
    from sparkjet.storage.directory import Directory
    from tests.grid.processes import GridProcesses

_GRID = "SPARKJET_CRASH_GRID"
"""Variable of this process and of its drivers that names the grid; without it, homes are in directories."""


def store() -> str | None:
    """The ``snapshotStore`` of all queries; in it each home has the name that it would have as a directory."""
    return os.environ.get(_GRID)


def snapshots_of(home: Path) -> Directory:
    """The content of a home's ``snapshots``: records, state and blobs."""
    return _directory(home).below("snapshots")


def checkpoints_of(home: Path) -> Path:
    """The directory of Spark's checkpoints, one for each run."""
    return home / "spark" if store() is None else local_directory(str(_directory(home)))


@contextmanager
def homes_in(grid: GridProcesses, folder: Path) -> Iterator[None]:
    """Queries that are built meanwhile have their homes in a grid, and no directory but for Spark's own checkpoint.

    Args:
        grid: The grid.
        folder: For what would go into the machine's temporary directory.
    """
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv(_GRID, f"grid://{','.join(member.address for member in grid.members)}")
        patched.setenv(TOKEN_VARIABLE, grid.token.read_text().strip())
        patched.setenv("TMPDIR", str(folder))
        patched.setattr(tempfile, "tempdir", str(folder))
        yield


def _directory(home: Path) -> Directory:
    found = store()
    if found is None:
        return PosixDirectory(home)
    members = tuple(found.removeprefix("grid://").split(","))
    return GridDirectory(GridLocation(members, Access()), str(home).strip("/"))
