"""Schemes: which locations lie on POSIX file systems and which are Hadoop's."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from sparkjet.errors import AnalysisError
from sparkjet.storage.hadoop_directory import HadoopDirectory
from sparkjet.storage.hadoop_file_system import open_file_system
from sparkjet.storage.paths import local_path
from sparkjet.storage.posix_directory import PosixDirectory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparkjet.storage.directory import Directory

Session = Callable[[], "SparkSession"]
"""Returns the session whose settings and credentials apply; called only if they are needed."""


def directory_at(location: str, option: str, session: Session) -> Directory:
    """The directory of a location as given by the user: a plain path, or a URI that Spark could write to."""
    make = SCHEMES.get(scheme_of(location), _in_hadoop)
    return make(location, option, session)


def session_for(command: str, given: SparkSession | None) -> SparkSession:
    """The session that a function was given; else the active one, or the default of other threads.

    Raises:
        AnalysisError: There is none.
    """
    from pyspark.errors import PySparkRuntimeError  # noqa: PLC0415 - only where a location needs it
    from pyspark.sql import SparkSession  # noqa: PLC0415 - as above

    try:
        return given or SparkSession.active()
    except PySparkRuntimeError as error:
        message = f"{command}: this is reached through Spark, and there is no session. Give session=spark."
        raise AnalysisError(message) from error


def scheme_of(location: str) -> str:
    """The scheme of a location, ``file`` for a plain path.

    >>> scheme_of("s3a://bucket/home"), scheme_of("/data/home"), scheme_of("C:/data")
    ('s3a', 'file', 'file')
    """
    # Not urlsplit(): it takes a bracket after // for an IPv6 address.
    scheme = _SCHEME.match(location)
    return "file" if scheme is None else scheme[1].lower()


def _on_posix(location: str, option: str, session: Session) -> Directory:
    del session
    return PosixDirectory(local_path(location, option))


def _in_hadoop(location: str, option: str, session: Session) -> Directory:
    system = open_file_system(session(), location, option)
    return HadoopDirectory(system, system.qualified(location))


def _in_grid(location: str, option: str, session: Session) -> Directory:
    try:
        from sparkjet.storage.grid_directory import GridDirectory  # noqa: PLC0415 - the extra is optional
        from sparkjet.storage.grid_location import grid_location  # noqa: PLC0415 - as above
    except ModuleNotFoundError as error:
        raise AnalysisError(f'{option}: grid: needs {error.name}: pip install "sparkjet[grid]".') from error
    grid, name = grid_location(location, option, session())
    return GridDirectory(grid, name)


_SCHEME = re.compile("([a-z][a-z0-9+.-]+):", re.IGNORECASE)
"""Two letters or more: ``C:/data`` is a path."""
SCHEMES: dict[str, Callable[[str, str, Session], Directory]] = {"file": _on_posix, "grid": _in_grid}
"""Creates a directory, by scheme; Hadoop has all others."""


def is_within(place: str, other: str) -> bool:
    """Whether a place is another one, or below it; both as returned by :meth:`Directory.resolved`.

    >>> is_within("/a/b", "/a"), is_within("/ab", "/a")
    (True, False)
    """
    return f"{place}/".startswith(f"{other.rstrip('/')}/")
