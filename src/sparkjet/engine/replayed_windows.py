"""Replayed windows: the open windows of a Spark query, rebuilt from the rows of its sources."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from sparkjet.connectors.kafka.positions import positions_in, to_offset
from sparkjet.engine.spark_checkpoint import SparkCheckpoint, ends_of
from sparkjet.options import ADOPT
from sparkjet.plan.spark_sources import options_given, read_sources
from sparkjet.plan.window_ends import window_ends
from sparkjet.plan.windowed_aggregation import WindowedAggregation
from sparkjet.snapshots.record import Border, SparkPosition
from sparkjet.storage.schemes import directory_at, scheme_of
from sparkjet.time.policies import delay_of
from sparkjet.windows import Window

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

    from sparkjet.plan.plan import Plan
    from sparkjet.storage.directory import Directory

_OPERATOR = "stateStoreSave"
"""Spark's name for the state of an aggregation."""
_KAFKA = ("kafka", "sparkjet-kafka")
_COMMIT = 'v1\n{"nextBatchWatermarkMs":0}'
_FIELD = re.compile(r'"metadata":(\{[^{}]*\})')
_MILLISECOND = 1_000


@dataclass(frozen=True)
class Replay:
    """The rows from which windows are rebuilt.

    Attributes:
        start: Where they begin: the text of an entry of Spark's offsets log.
        count: How many there are, in words.
        border: Windows that end up to it were Spark's.
    """

    start: str
    count: str
    border: Border

    def position(self, position: SparkPosition) -> SparkPosition:
        """The position before the rows, given the one after them: a start plans them as one batch.

        As one: split, rows of the later part could be late that Spark has counted.
        """
        last = max(position.batch, 1)
        files = {
            "metadata": position.files["metadata"],
            f"offsets/{last - 1}": self.start,
            f"commits/{last - 1}": _COMMIT,
            f"offsets/{last}": position.files[f"offsets/{position.batch}"],
        }
        return SparkPosition(last - 1, files, position.sources)


class NotReplayedError(Exception):
    """Why the windows of a Spark query cannot be rebuilt; a clause."""


def states_of(checkpoint: Directory) -> list[tuple[str, str]]:
    """The numbers of the operators of a Spark query that have state, and their names in Spark, empty if not known."""
    names = [name for name in checkpoint.below("state").names() if name.isdecimal()]
    return [(name, _operator(checkpoint, name)) for name in sorted(names, key=int)]


def is_of_windows(states: Sequence[tuple[str, str]]) -> bool:
    """Whether the one state may be that of windows."""
    return [name for _, name in states] == [_OPERATOR]


def _operator(checkpoint: Directory, number: str) -> str:
    try:
        lines = checkpoint.below(f"state/{number}/_metadata").read("metadata").decode().splitlines()
        return str(json.loads(lines[1])["operatorInfo"]["operatorName"])
    except (OSError, ValueError, LookupError, TypeError):
        # Of before Spark 3.5, or another version of what describes it: it is refused all the same.
        return ""


def replay_of(checkpoint: Directory, local: SparkCheckpoint, plan: Plan, done: int, planned: int) -> Replay:
    """The rows that windows need which are open after the last batch of a Spark query.

    Spark drops a row only if all of its windows have ended before its watermark, so an open window has all of its rows.
    Which batches had none of them, the watermarks of those behind tell: no row before was later than these by more than
    the delay.

    Args:
        checkpoint: Its checkpoint.
        local: The same, or a copy without state.
        plan: The query that goes on.
        done: The last batch that is committed.
        planned: The last batch that is planned.

    Raises:
        NotReplayedError: They cannot be told.
    """
    try:
        return _replay_of(checkpoint, local, plan, done, planned)
    except NotReplayedError:
        raise
    except (OSError, ValueError, LookupError) as error:
        message = f"its logs cannot be read: {error}"
        raise NotReplayedError(message) from error


def _replay_of(checkpoint: Directory, local: SparkCheckpoint, plan: Plan, done: int, planned: int) -> Replay:
    if planned > done:
        message = (
            f"batch {planned} is planned and not committed: its sink may have windows that have ended with it. Start "
            "Spark's query once more, with trigger(availableNow=True)"
        )
        raise NotReplayedError(message)
    window = _window(plan)
    # The schema has the delay with which the query has begun; a greater one is safe, as more is read.
    delay = max(_delay(checkpoint), (delay_of(plan.inputs[0].watermark.policy) or 0) // _MILLISECOND + 1)
    watermark = _watermark(local, done)
    ends, size = window.grid.ends, window.grid.size
    border = Border(f"spark {local.query_id()}", ends.floor_frame(watermark * _MILLISECOND))
    assert border.at is not None  # noqa: S101 - as given
    oldest = ends.higher_frame(border.at) - size
    kind, name = _kind(plan), next(iter(plan.source_names), "0")
    # What a batch has read, the watermark of the next one tells; of the last one, its commit.
    behind = _committed_watermark(local, done)
    for batch in range(done, -1, -1):
        if not (local.directory / "offsets" / str(batch)).is_file():
            message = (
                f"the oldest open window begins {oldest // 1_000_000} seconds after 1970, and Spark's log of offsets "
                f"does not go back there: its oldest batch is {batch + 1}. Run Spark's query for a while with a higher "
                "spark.sql.streaming.minBatchesToRetain"
            )
            raise NotReplayedError(message)
        if (behind + delay + 1) * _MILLISECOND <= oldest:
            first = json.loads(_end(local, batch))
            break
        behind = _watermark(local, batch)
    else:
        batch, first = -1, _beginning(local, kind, name)
    later = [json.loads(_end(local, each)) for each in range(batch + 1, done + 1)]
    if kind in _KAFKA:
        first = _with_later(first, later, is_of_spark=_kept_beginning(local, name) is not None)
    version, metadata, *_ = (local.directory / "offsets" / str(max(batch, 0))).read_text().splitlines()
    line = json.dumps(first, separators=(",", ":"))
    start = "\n".join([version, metadata, f"{name}:{line}" if version == "v2" else line])
    return Replay(start, _count(local, plan, kind, first, [first, *later][-1]), border)


def _window(plan: Plan) -> Window:
    """The one window of the query."""
    stages = [each.stage for each in plan.stages]
    if len(stages) != 1 or not isinstance(stages[0], WindowedAggregation) or len(plan.inputs) != 1:
        message = "the query has other operators with state than one aggregation by windows"
        raise NotReplayedError(message)
    why = next((f'the output "{name}" is {each.why}' for name, each in window_ends(plan).items() if each.why), None)
    if why is not None:
        raise NotReplayedError(why)
    window = stages[0].window
    assert isinstance(window, Window)  # noqa: S101 - sessions have said why not
    return window


def _delay(checkpoint: Directory) -> int:
    """How far Spark's watermark is behind the latest row, in milliseconds, as the schema of its state says."""
    try:
        schema = checkpoint.below("state/0/0/_metadata").read("schema").decode(errors="replace")
        fields = [json.loads(each) for each in _FIELD.findall(schema)]
    except (OSError, ValueError) as error:
        message = f"the schema of its state cannot be read ({error})"
        raise NotReplayedError(message) from error
    # Spark notes both at the column of the windows that it groups by.
    found = [each.get("spark.watermarkDelayMs") for each in fields if each.get("spark.timeWindow")]
    if len(found) != 1 or not isinstance(found[0], int):
        message = "its state is not of one window with a watermark"
        raise NotReplayedError(message)
    return found[0]


def _kind(plan: Plan) -> str:
    sources = read_sources(plan.source)
    kind = "files" if sources[0].files is not None else sources[0].format
    if len(sources) != 1 or kind not in (*_KAFKA, "files"):
        message = f"it reads {', '.join(each.format for each in sources)}, and one source of Kafka or files is replayed"
        raise NotReplayedError(message)
    for name in ("ignoreMissingFiles", "ignoreCorruptFiles"):
        given = [value for _, value in options_given(plan.source, name)]
        given += [plan.source.sparkSession.conf.get(f"spark.sql.files.{name}", "false")]
        if kind == "files" and any(str(value).lower() == "true" for value in given):
            message = f"{name} is true: rows that are gone would be missing from the windows, unnoticed"
            raise NotReplayedError(message)
    lossy = [value for _, value in options_given(plan.source, "failOnDataLoss") if str(value).lower() == "false"]
    if lossy:
        message = "failOnDataLoss is false: rows that are gone would be missing from the windows, unnoticed"
        raise NotReplayedError(message)
    return kind


def _end(local: SparkCheckpoint, batch: int) -> str:
    text = (local.directory / "offsets" / str(batch)).read_text()
    return next(iter(ends_of(SparkPosition(batch, {f"offsets/{batch}": text}, {})).values()))


def _watermark(local: SparkCheckpoint, batch: int) -> int:
    """Spark's watermark during a batch, in milliseconds: it has closed the windows that end up to it."""
    _, metadata, *_ = (local.directory / "offsets" / str(batch)).read_text().splitlines()
    return int(json.loads(metadata)["batchWatermarkMs"])


def _committed_watermark(local: SparkCheckpoint, batch: int) -> int:
    _, metadata, *_ = (local.directory / "commits" / str(batch)).read_text().splitlines()
    return int(json.loads(metadata)["nextBatchWatermarkMs"])


def _beginning(local: SparkCheckpoint, kind: str, name: str) -> dict[str, Any]:
    """The offset at which Spark's first batch has begun."""
    if kind == "files":
        return {"logOffset": -1}
    kept = _kept_beginning(local, name)
    if kept is None:
        message = (
            "all of its batches have rows of open windows, and its checkpoint does not say where the first began. Run "
            "Spark's query until its first windows have ended"
        )
        raise NotReplayedError(message)
    return kept


def _kept_beginning(local: SparkCheckpoint, name: str) -> dict[str, Any] | None:
    """The offset at which Spark's Kafka source has begun; other sources do not keep it."""
    # Version lines of Spark differ in the folder of a source with a name.
    places = (local.directory / "sources" / each / "0" for each in (name, "0"))
    try:
        # Spark writes a zero byte first.
        text = next(place for place in places if place.is_file()).read_text().lstrip("\0").splitlines()[1]
        found = json.loads(text)
    except (StopIteration, OSError, LookupError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _with_later(start: dict[str, Any], ends: Sequence[dict[str, Any]], *, is_of_spark: bool) -> dict[str, Any]:
    """The start with the partitions that have come since: ``sparkjet-kafka`` reads none of those that it lacks.

    It begins a partition in the batch before the first that reads it; Spark's source reads a new one from 0 at once.

    >>> _with_later({"t": {"0": 5}}, [{"t": {"0": 5, "1": 2}}, {"t": {"0": 7, "1": 9}}], is_of_spark=False)
    {'t': {'0': 5, '1': 2}}
    >>> _with_later({"t": {"0": 5}}, [{"t": {"0": 5, "1": 2}}], is_of_spark=True)
    {'t': {'0': 5, '1': 0}}
    """
    positions = positions_in(start)
    for end in ends:
        positions = {**{each: 0 if is_of_spark else first for each, first in positions_in(end).items()}, **positions}
    return to_offset(positions)


def _count(local: SparkCheckpoint, plan: Plan, kind: str, start: dict[str, Any], end: dict[str, Any]) -> str:
    if kind == "files":
        after, last = start["logOffset"], end["logOffset"]
        lines = [json.loads(line) for path in local.source_files() for line in path.read_text().splitlines()[1:]]
        files = [line["path"] for line in lines if after < line["batchId"] <= last]
        _check_there(files, plan.source.sparkSession)
        return f"the rows of {len(files)} files"
    starts = positions_in(start)
    return f"{sum(last - starts.get(each, last) for each, last in positions_in(end).items())} rows"


def _check_there(files: Sequence[str], session: SparkSession) -> None:
    """Spark would read none of those that are gone, and only warn: their rows would be missing from the windows."""
    by_parent: dict[str, set[str]] = {}
    for parent, _, name in (file.rpartition("/") for file in files):
        by_parent.setdefault(parent, set()).add(unquote(name))
    gone = []
    for parent, names in by_parent.items():
        # Spark notes URIs, and Hadoop's paths are not encoded.
        place = parent if scheme_of(parent) == "file" else unquote(parent)
        there = directory_at(place, ADOPT.name, lambda: session).names()
        gone += [f"{unquote(parent)}/{name}" for name in sorted(names.difference(there))]
    if gone:
        message = f"files with rows of open windows are gone: {len(gone)}, such as {gone[0]}. Restore them"
        raise NotReplayedError(message)
