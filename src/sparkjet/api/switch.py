"""``switch``: from one query to another one without a gap, at the end of a window."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from sparkjet.engine.changed_windows import shown
from sparkjet.engine.sharing import check_ends
from sparkjet.errors import AnalysisError, FencedError, RecoveryError, StorageError
from sparkjet.options import PUBLISH_AFTER
from sparkjet.snapshots import DirectoryStore
from sparkjet.snapshots.record import Border
from sparkjet.snapshots.record_log import RecordLog, newest_record
from sparkjet.storage.schemes import directory_at, session_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparkjet.snapshots.record import Record
    from sparkjet.storage.directory import Directory
    from sparkjet.time import FrameGrid

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.timezone.utc)
_ATTEMPTS = 100


@dataclass(frozen=True)
class Switch:
    """A switch from one query to another, and its time.

    Attributes:
        at: End of the last windows of the old query, in UTC: windows that end later belong to the new one.
        old: Id of the old query.
        new: Id of the new query.
    """

    at: dt.datetime
    old: str
    new: str


def switch(
    old: str | Path, new: str | Path, at: dt.datetime | None = None, session: SparkSession | None = None
) -> Switch:
    """Let one query publish the windows up to a time, and another one those after it, each of them exactly once.

    The new query must have been started with ``option("publishAfter", OLD)``: it reads its sources and publishes
    nothing. Both may or may not be running, in this driver or another one; they learn of the switch within a second, or
    at their next start. The old one ends once it has published its last windows. It continues if it has outputs of late
    rows: those of its windows are delivered until it is stopped.

    When called again, it returns the same, and changes nothing.

    Args:
        old: The home of the query that ends, as its ``checkpointLocation``; or ``grid://host:port,…/name``.
        new: The home of the query that continues.
        at: The end of the last windows of the old query, with a time zone. Windows of all outputs of both queries must
            end there, and the old one must have published none that ends later. By default, the earliest such time.
        session: For file systems that only Hadoop reads; the active one by default.

    Raises:
        AnalysisError: ``at`` is not such a time; an output has no windows, or windows that cannot be cut; the new query
            does not wait for the old one; or the old one was switched differently. Nothing has been changed.
        RecoveryError: A home has no query.
        StorageError: The home of the old query cannot be written to.

    >>> import tempfile, sparkjet as sj
    >>> home, clicks = tempfile.mkdtemp(), tempfile.mkdtemp()
    >>> def query(name, **options):
    ...     rows = spark.readStream.schema("ts timestamp, page string").json(clicks)
    ...     windows = sj.stream(rows).withWatermark("ts", 0).groupBy(sj.window("ts", "1 minute")).count()
    ...     writer = windows.writeStream.format("files").options(path=f"{home}/out", **options)
    ...     return writer.option("checkpointLocation", f"{home}/{name}").trigger(availableNow=True)
    >>> with open(f"{clicks}/0.json", "w") as file:
    ...     _ = file.write('{"ts": "2026-01-05 10:00:30"}' + chr(10) + '{"ts": "2026-01-05 10:01:00"}')
    >>> query("old").start().awaitTermination()
    >>> query("new", publishAfter=f"{home}/old").start().awaitTermination()
    >>> sj.switch(f"{home}/old", f"{home}/new").at.isoformat()
    '2026-01-05T10:01:00+00:00'
    """
    end = None if at is None else microseconds(at)
    return decide(_directory(old, "old", session), _directory(new, "new", session), end)


def decide(before: Directory, after: Directory, at: int | None, *, dry_run: bool = False) -> Switch:
    """Put the record of a switch into the home of the old query; see :func:`switch`.

    Args:
        before: The home of the query that ends.
        after: The home of the query that continues.
        at: The end of the last windows of the old query in microseconds; None for the earliest possible one.
        dry_run: Whether to look only: what the switch would be is returned.
    """
    for _ in range(_ATTEMPTS):
        slot, record = newest_record(before, "switch")
        following = newest_record(after, "switch")[1]
        border = _border(record, following, at, before, after)
        if record.until is not None or dry_run:
            return _switch(record, border)
        record = msgspec.structs.replace(record, until=border)
        try:
            RecordLog(DirectoryStore(before.below("snapshots"))).append(slot + 1, record)
        except FencedError:
            # The old query was faster with its next epoch: look again how far it has come.
            continue
        except OSError as error:
            message = f'switch: "{before}" cannot be written to: {error.strerror or error}. A switch is a record there.'
            raise StorageError(message) from error
        return _switch(record, border)
    raise RecoveryError(f'switch: the query of "{before}" writes records faster than it can be switched. Try again.')


def _border(record: Record, following: Record, at: int | None, old: Directory, new: Directory) -> Border:
    """Where to cut, by the newest records of both queries; an earlier decision stays, an impossible cut is refused."""
    if following.after is None or following.after.query != record.query:
        message = (
            f'switch: the query of "{new}" has not been started to go on after that of "{old}". Start it, from '
            f'scratch, with option("{PUBLISH_AFTER.name}", "{old}").'
        )
        raise AnalysisError(message)
    if record.until is not None:
        return _decided(record.until, following, at, old)
    if following.after.at is not None:
        return _again(following.after.at, record, following, at, old, new)
    if record.after is not None and record.after.at is None:
        message = (
            f'switch: the query of "{old}" publishes nothing itself, as it waits for query {record.after.query}. '
            "Switch to it first."
        )
        raise AnalysisError(message)
    if not record.outputs:
        message = (
            f'switch: the query of "{old}" was last run by a version that does not record the ends of its windows. '
            "Start it once with this one."
        )
        raise AnalysisError(message)
    ends = check_ends(record.outputs, at, f' of "{old}"').common(check_ends(following.outputs, at, f' of "{new}"'))
    if ends is None:
        message = (
            "switch: no window of the old query ends with one of the new query, so there is no time at which all rows "
            "change sides. Give the windows of both the same startTime, or lengths that meet."
        )
        raise AnalysisError(message)
    # The new query closes nothing beyond the old one's last windows: its own ends matter for homes that were set back.
    passed = [*record.ended, *following.ended, None if record.after is None else record.after.at]
    return Border(following.query, _placed(at, max((each for each in passed if each is not None), default=None), ends))


def _placed(at: int | None, reached: int | None, ends: FrameGrid) -> int:
    """Where to cut if windows that end up to ``reached`` are published."""
    if reached is None:
        if at is None:
            message = "switch: the old query has closed no window yet, so there is no earliest time. Give at=…."
            raise AnalysisError(message)
        return at
    earliest = ends.higher_frame(reached - 1)
    if at is not None and at < earliest:
        message = (
            f"switch: at={shown(at)}, but windows that end up to {shown(reached)} are published already. The earliest "
            f"time is {shown(earliest)}."
        )
        raise AnalysisError(message)
    return earliest if at is None else at


def _decided(until: Border, following: Record, at: int | None, old: Directory) -> Border:
    """The earlier decision, if it agrees with the request."""
    if until.query != following.query:
        raise AnalysisError(f'switch: the query of "{old}" was switched to query {until.query} already.')
    _check_same(at, until.at)
    return until


def _again(border: int, record: Record, following: Record, at: int | None, old: Directory, new: Directory) -> Border:
    """The earlier decision, of which only the new query still knows, as the home of the old one was set back."""
    _check_same(at, border)
    reached = max((each for each in record.ended if each is not None), default=border)
    if reached > border:
        message = (
            f'switch: the query of "{new}" publishes those after {shown(border)}, and that of "{old}", whose home is '
            f"from before the switch, has published windows that end up to {shown(reached)}: those in between are "
            "there twice. Stop the old query, and remove what it has published of them."
        )
        raise AnalysisError(message)
    return Border(following.query, border)


def _check_same(at: int | None, decided: int | None) -> None:
    if at not in {None, decided}:
        message = f"switch: at={shown(at or 0)}, but it was decided already: {shown(decided or 0)}. Leave at out."
        raise AnalysisError(message)


def _switch(record: Record, border: Border) -> Switch:
    return Switch(_EPOCH + dt.timedelta(microseconds=border.at or 0), record.query, border.query)


def microseconds(at: object) -> int:
    """A time with a time zone, in microseconds.

    Raises:
        AnalysisError: It is something else.
    """
    if not isinstance(at, dt.datetime) or at.tzinfo is None:
        message = f"switch: at={at!r} is not a datetime with a time zone. Give datetime(…, tzinfo=timezone.utc)."
        raise AnalysisError(message)
    return (at - _EPOCH) // dt.timedelta(microseconds=1)


def _directory(given: object, name: str, session: SparkSession | None) -> Directory:
    if not isinstance(given, str | Path):
        raise AnalysisError(f"{name}: {given!r} is not the home of a query, which is text. See help(sj.switch).")
    return directory_at(str(given), name, lambda: session_for("switch", session))
