"""Alignment: partitions that are too far ahead in event time of the slowest one get no offsets in a batch.

The engine knows how far event time has come, and a source's planner, in a separate Python process on the driver's
machine, decides where a batch ends. The engine therefore leaves a file for each end of a batch that Spark may plan
from; what the planner decides is in the offset, so a batch that is run again has the same rows (docs/design/047).
"""

from __future__ import annotations

import atexit
import hashlib
import json
import shutil
import tempfile
import threading
from collections import Counter
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any
from uuid import uuid4

from sparkjet.errors import AnalysisError, SourceError
from sparkjet.options import interval
from sparkjet.sources.backlog import limited

MAX_DRIFT = interval(
    "maxWatermarkDrift",
    "How far the watermark of a partition may be ahead of the slowest one's before it gets no rows in a batch.",
)
"""The option of sources that align; without it, partitions are read as fast as each can be."""
KEY = "alignment"
"""The key of the alignment in an offset."""


@dataclass(frozen=True)
class Held:
    """Partitions that are held back in a batch.

    Attributes:
        ahead: By how many microseconds each is ahead.
        slowest: The partition of which they are ahead; empty if none is held back.
    """

    ahead: Mapping[str, int] = field(default_factory=dict)
    slowest: str = ""


def held_back(backlog: Collection[str], reached: Mapping[str, int], drift: int) -> Held:
    """The partitions to hold back.

    Only a partition with rows to read holds others back: one that has been read to its end would do so until something
    is written to it. Nor does one whose event time is unknown: it is new, idle or retired, or its rows have none.

    Args:
        backlog: The partitions with rows to read.
        reached: How far event time has come in each partition that is neither idle nor retired, in microseconds.
        drift: The option ``maxWatermarkDrift``.

    >>> held_back(["t/0", "t/1", "t/2"], {"t/0": 0, "t/1": 400, "t/2": 200}, drift=300)
    Held(ahead={'t/1': 400}, slowest='t/0')
    >>> held_back(["t/1", "t/2"], {"t/0": 0, "t/1": 400, "t/2": 200}, drift=300)
    Held(ahead={}, slowest='')
    """
    times = {each: reached[each] for each in sorted(backlog) if each in reached}
    if not times:
        return Held()
    # Of several, always the same one: the text of an offset must not change for no reason.
    slowest = min(times, key=lambda each: (times[each], each))
    ahead = {each: time - times[slowest] for each, time in times.items() if time - times[slowest] > drift}
    return Held(ahead, slowest if ahead else "")


def shared(
    backlog: Mapping[str, int], reached: Mapping[str, int], drift: int, rows: int | None
) -> tuple[dict[str, int], Held]:
    """How many rows each partition gets in a batch, and who is held back.

    Those behind come first. If the batch reads all that they have, the rest of it is for those ahead, by the same rule:
    a partition that is always behind, but of which each batch reads what has come, would starve the others.

    Args:
        backlog: How many rows there are to read, by partition; none has 0.
        reached: See :func:`held_back`.
        drift: See :func:`held_back`.
        rows: How many the batch has, about; None for all there are, of which none is held back.

    >>> reached = {"t/0": 0, "t/1": 400, "t/2": 900}
    >>> shared({"t/0": 9, "t/1": 6, "t/2": 6}, reached, drift=300, rows=9)
    ({'t/0': 9}, Held(ahead={'t/1': 400, 't/2': 900}, slowest='t/0'))
    >>> shared({"t/0": 2, "t/1": 6, "t/2": 6}, reached, drift=300, rows=5)
    ({'t/0': 2, 't/1': 3}, Held(ahead={'t/2': 500}, slowest='t/1'))
    """
    left, given = dict(backlog), dict[str, int]()
    while left:
        held = held_back(left, reached, drift)
        going = {each: count for each, count in left.items() if each not in held.ahead}
        if rows is not None and sum(going.values()) >= rows:
            return given | limited(dict.fromkeys(going, 0), going, rows), held
        given |= going
        left = {each: left[each] for each in held.ahead}
        rows = None if rows is None else rows - sum(going.values())
    return given, Held()


class Aligner:
    """The planner's side: decides which partitions are held back, and what of it is in the offset.

    Args:
        drift: The option ``maxWatermarkDrift``.
        place: The directory in which the engine leaves its files.
        source: The name of the source, for errors.
    """

    def __init__(self, drift: int, place: str, source: str) -> None:
        self._drift, self._place, self._source = drift, place, source

    def shared(
        self, start: Mapping[str, Any], backlog: Mapping[str, int], rows: int | None
    ) -> tuple[dict[str, int], Held]:
        """How many rows each partition gets in the batch that begins at an offset, and who is held back.

        Raises:
            SourceError: The engine has left no file for this offset.
        """
        return shared(backlog, self.reached(start) or {}, self._drift, rows)

    def reached(self, start: Mapping[str, Any]) -> dict[str, int] | None:
        """How far event time has come at an offset in each partition that is neither idle nor retired.

        None before the first batch, which has nothing to go by: its partitions share it as they do without the option.

        Raises:
            SourceError: The engine has left no file for this offset.
        """
        return None if alignment_in(start) is None else self._reached(start)

    @staticmethod
    def described(start: Mapping[str, Any], end: Mapping[str, Any], held: Held) -> dict[str, Any]:
        """The offset in which a batch ends, with what was decided."""
        before = alignment_in(start)
        if {**end, KEY: before} == {**start, KEY: before}:
            # What is held back is no reason for a batch: only what is read, or a watermark.
            return dict(start)
        # By this name, two queries that read the same topics do not take each other's files for their own.
        reader = uuid4().hex[:12] if before is None else before["reader"]
        return {**end, KEY: {"reader": reader, "held": dict(held.ahead), "slowest": held.slowest}}

    def _reached(self, start: Mapping[str, Any]) -> dict[str, int]:
        try:
            found: dict[str, int] = json.loads((Path(self._place) / file_of(start)).read_bytes())
        except FileNotFoundError as error:
            message = (
                f"{self._source}: {MAX_DRIFT.name} needs to know how far event time has come, and no file in "
                f"{self._place} says so for this offset. Only sparkjet's queries write one: start one of Spark's with "
                "sj.stream(…).withWatermark(…)….writeStream, or without the option. If it is one of sparkjet's, the "
                "file was removed: start it again, nothing is lost, and have cleaners of temporary files spare "
                f"{_PREFIX}*, or set TMPDIR for the driver."
            )
            raise SourceError(message) from error
        return found


def alignment_in(offset: object) -> dict[str, Any] | None:
    """A source's decision on alignment, from its offset decoded from JSON; None if it does not align."""
    # By the text in `source`, or in the `receiver` of queues: for a topic of that name, there would be another object.
    if isinstance(offset, Mapping) and (isinstance(offset.get("source"), str) or is_of_queues(offset)):
        found = offset.get(KEY)
        return found if isinstance(found, dict) else None
    return None


def is_of_queues(offset: Mapping[str, Any]) -> bool:
    """Whether an offset is one of :class:`~sparkjet.sources.acknowledging.offset.QueueOffset`.

    >>> is_of_queues({"queues": {"orders": 17}, "receiver": "/run/receiver"}), is_of_queues({"queues": {"0": 17}})
    (True, False)
    """
    return offset.keys() - {KEY} == {"queues", "receiver"} and isinstance(offset["receiver"], str)


def file_of(offset: Mapping[str, Any]) -> str:
    """The name of the file about an offset, for both sides.

    >>> file_of({"source": "s", "offsets": {"0": 17}}) == file_of({"offsets": {"0": 17}, "source": "s"})
    True
    """
    return hashlib.sha256(json.dumps(offset, sort_keys=True).encode()).hexdigest()[:32]


_PREFIX = "sparkjet-alignment-"


@cache
def place() -> str:
    """The directory of this driver's files, which only this user may enter; removed when the process ends."""
    made = tempfile.mkdtemp(prefix=_PREFIX)
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return made


_KEPT: Counter[str] = Counter()
_LOCK = threading.Lock()


def keep(name: str) -> None:
    """Keep a file, which need not be there yet, until :func:`drop` has been called as often as this."""
    with _LOCK:
        _KEPT[name] += 1


def drop(name: str) -> None:
    """Remove a file, unless another query of this driver keeps it: a fork begins with the offsets of its origin."""
    with _LOCK:
        _KEPT[name] -= 1
        if not _KEPT[name]:
            del _KEPT[name]
            (Path(place()) / name).unlink(missing_ok=True)


def write(name: str, reached: Mapping[str, int]) -> None:
    """Leave a file in the directory; the planner sees all of it or nothing.

    Raises:
        SourceError: That is not possible, as the disk is full.
    """
    path = Path(place()) / name
    part = path.with_suffix(f".{uuid4().hex[:8]}")
    try:
        # A cleaner of temporary files may have removed it, and all queries of the driver would end.
        path.parent.mkdir(mode=0o700, exist_ok=True)
        part.write_text(json.dumps(reached))
        part.replace(path)
    except OSError as error:
        with suppress(OSError):
            part.unlink()
        message = (
            f"{MAX_DRIFT.name}: the driver cannot say in {path.parent} how far event time has come: {error.strerror}. "
            "Nothing is lost: start the query again once it can, or with TMPDIR set to another directory."
        )
        raise SourceError(message) from error


def check_limited(drift: int | None, limit: int | None, limit_option: str) -> None:
    """Refuse the option ``maxWatermarkDrift`` without a limit of the batch.

    Raises:
        AnalysisError: A batch would read every partition to its end, however far ahead that is.
    """
    if drift is not None and limit is None:
        message = (
            f"option: {MAX_DRIFT.name} needs {limit_option}: without a limit, a batch reads every partition to its "
            f'end, however far ahead that is. Set e.g. option("{limit_option}", "100000").'
        )
        raise AnalysisError(message)
