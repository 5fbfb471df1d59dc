"""``erase``: deletes the rows of a key from everything that a stopped query keeps, and reports what it has found."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from pyspark.sql import SparkSession

from sparkjet.catalyst.sought_rows import Sought
from sparkjet.engine.erasing import ErasedPlace, HomeErasure
from sparkjet.errors import AnalysisError, StorageError, refuse_connect
from sparkjet.sinks.erased_files import FilesErasure
from sparkjet.sinks.jars import said
from sparkjet.storage.hadoop_file_system import JAVA_ERRORS
from sparkjet.storage.schemes import directory_at, session_for

if TYPE_CHECKING:
    from sparkjet.storage.directory import Directory


@dataclass(frozen=True)
class Erased:
    """The findings of :func:`erase`, which has erased them unless it was a dry run.

    Attributes:
        places: The rows found in each place.
        left: Places that may have to do with the key, and are not erased here.
        dry_run: Whether nothing was changed.
    """

    places: tuple[ErasedPlace, ...]
    left: tuple[str, ...]
    dry_run: bool

    @property
    def rows(self) -> int:
        """The number of stored rows in all places."""
        return sum(each.rows or 0 for each in self.places)


def erase(
    home: str | Path,
    key: Mapping[str, Any],
    *,
    rows: Sequence[str | Path] = (),
    copies: Sequence[str | Path] = (),
    dry_run: bool = False,
    session: SparkSession | None = None,
) -> Erased:
    """Delete the rows of a key from a stopped query's state and pins, and from the given directories.

    The state loses all rows with these values: open windows, sessions, keys of aggregates, of ``dropDuplicates`` and of
    functions, rows that wait for a partner in a join. Each record is replaced as a whole, and then the files that had
    the rows are removed. A driver that is still running is fenced, as by a start. When called again, it completes an
    erasure that was killed, and otherwise finds nothing.

    Args:
        home: The home of the query, as its ``checkpointLocation``; or ``grid://host:port,…/name``.
        key: The values by the names of their columns, as shown by :func:`read_state`. Rows with all of them are erased.
        rows: Directories of ``lateRowsPath``, ``deadLettersPath`` or ``format("files")``, of Parquet or ORC files.
        copies: Copies of the home, such as that of ``snapshotBackup``: they get the newest record, and their pins lose
            the rows.
        dry_run: Whether to search only.
        session: The session; the active one by default.

    Raises:
        AnalysisError: A value does not fit its column, a place cannot be read, or decided rows are not yet published.
        RecoveryError: There is no record, something that it names is missing, or a driver runs the query.

    >>> import tempfile, sparkjet as sj
    >>> home, orders = tempfile.mkdtemp(), tempfile.mkdtemp()
    >>> spark.createDataFrame([("n", 5), ("s", 2)], "shop string, px long").write.mode("append").parquet(orders)
    >>> rows = spark.readStream.schema("shop string, px long").parquet(orders)
    >>> totals = sj.stream(rows).groupBy("shop").sum("px").writeStream.outputMode("update").format("noop")
    >>> totals.option("checkpointLocation", home).trigger(availableNow=True).start().awaitTermination()
    >>> erase(home, {"shop": "n"}).rows
    1
    >>> sj.read_state(home).collect()
    [Row(shop='s', sum(px)=2)]
    """
    given: object = key
    if not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given):
        raise AnalysisError(f"erase: key: {key!r} does not name a column, as key={{'user': 42}} does.")
    return erased(home, Sought(dict(key)), rows, copies, dry_run=dry_run, session=session)


def erased(
    home: str | Path,
    sought: Sought,
    rows: Sequence[str | Path],
    copies: Sequence[str | Path],
    *,
    dry_run: bool,
    session: SparkSession | None = None,
) -> Erased:
    """Like :func:`erase`; the values may be given as text."""
    for argument, given in (("rows", rows), ("copies", copies)):
        if isinstance(given, str | Path):
            # A string would be taken letter by letter, as many places.
            raise AnalysisError(f'erase: {argument}="{given}" is one place: give a list.')
    if not sought.values or None in sought.values.values():
        message = "erase: key: name a column and its value at least, as in key={'user': 42}; a null identifies nobody."
        raise AnalysisError(message)
    chosen = session_for("erase", session)
    refuse_connect("erase", chosen)

    def at(location: str | Path, argument: str) -> Directory:
        return directory_at(str(location), argument, lambda: chosen)

    # Everything that may be refused comes before any change.
    state = HomeErasure(chosen, at(home, "home"), sought)
    backups = {str(each): at(each, "copies") for each in copies}
    looks = {name: HomeErasure(chosen, each, sought) for name, each in backups.items()}
    for name, look in looks.items():
        state.check_copy(name, look)
    directories = {str(each): FilesErasure(chosen, at(each, "rows"), sought) for each in rows}
    for each in directories.values():
        each.check_published(state.record.query, [prepared.handle for prepared in state.record.transactions])
        each.look()
    left = tuple(_left(state, has_rows=bool(rows), has_copies=bool(copies)))

    there = [(name, each) for name, look in looks.items() for each in look.look()]
    with _changing(str(home)):
        found = state.look() if dry_run else state.erase()
    found += [msgspec.structs.replace(each, place=f"{name}: {each.place}") for name, each in there]
    for name, copy in () if dry_run else backups.items():
        with _changing(name):
            state.check_newest()
            state.bring_up(copy)
    for name, directory in directories.items():
        with _changing(name):
            its = directory.look() if dry_run else directory.erase(state.record.query, state.check_newest)
        lacking = f"{its.lacking} files: {sought.lacking}" if its.lacking else ""
        found.append(ErasedPlace(name, "", f"{its.files} files", its.rows, lacking))
    return Erased(tuple(found), left, dry_run)


@contextmanager
def _changing(place: str) -> Iterator[None]:
    try:
        yield
    except (OSError, *JAVA_ERRORS) as error:
        why = said(error).strip(" .")
        message = (
            f'erase: "{place}" cannot be read or written to: {why}. Every record and every file is either '
            "unchanged or erased, and some are unchanged: erase again once that is repaired."
        )
        raise StorageError(message) from error


def _left(state: HomeErasure, *, has_rows: bool, has_copies: bool) -> Iterator[str]:
    yield "published results: erase them where they are, in tables, topics and files"
    yield "sources: a start from scratch, a fork or a replay reads from them again what they still have"
    if not has_rows:
        yield "late rows and dead letters: no directory of any was named"
    if not has_copies:
        yield "copies of the home, and forks, which have their own homes: none was named"
    yield from state.left()
