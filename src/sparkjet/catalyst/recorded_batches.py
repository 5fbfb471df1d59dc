"""Batches that a query has read before: the sources of a streaming plan, asked for given offsets by us."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from sparkjet.catalyst.doors import MICRO_BATCH, RECORDED, check_open, is_open
from sparkjet.catalyst.logical_plans import analyzed, children, kind_of, listed, streaming_nodes
from sparkjet.catalyst.micro_batch import planned_rows
from sparkjet.catalyst.moments import Moment
from sparkjet.catalyst.physical_plans import as_frame, no_rows, of_rdd, own_session, planned
from sparkjet.errors import RecoveryError, SourceError
from sparkjet.java import as_map, as_seq, java_class, nothing
from sparkjet.spark_line import LINE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_VOID = "-"
"""Stands in Spark's log for a source that no batch has read."""
_CHECK = "spark.sql.streaming.unsupportedOperationCheck"
_DISABLED = "spark.sql.streaming.disabledV2MicroBatchReaders"
_OFFSET = f"org.apache.spark.sql.execution.streaming{'.runtime' if LINE >= (4, 1) else ''}.SerializedOffset"
_SCAN = "org.apache.spark.sql.execution.datasources.v2.MicroBatchScanExec"


class RecordedSources:
    """The sources of a streaming DataFrame, opened as Spark's query opens them; on the driver.

    A batch is what ``foreachBatch`` would get: Spark's own query makes it of the same parts, but asks the sources where
    their ends are first. Nothing is committed to a source.

    Args:
        session: The session that batches are computed in.
        rows: The DataFrame.
        names: The names of its sources in Spark's checkpoint; none where they are numbered.
        checkpoint: A directory of the driver's whose ``sources`` are those of a record that has all the batches.
    """

    def __init__(self, session: SparkSession, rows: DataFrame, names: Sequence[str], checkpoint: Path) -> None:
        check_open(session, RECORDED)
        self._session = session
        # For plans only: that a plan of a stream is run without Spark's query is meant here.
        self._unchecked = own_session(session)
        self._unchecked.conf.set(_CHECK, "false")
        self._plan = analyzed(rows)
        nodes = streaming_nodes(self._plan)
        leaves = [node for node in nodes if children(node) == [] and node.nodeName() != "CTERelationRef"]
        self._sources: list[_OfRelation | _OfStream] = []
        # A source that is read twice is one to Spark, but is twice in its offsets.
        self._places: list[int] = []
        for leaf in leaves:
            same = [number for number, each in enumerate(self._sources) if each.leaf.equals(leaf)]
            if not same:
                number = len(self._sources)
                name = names[number] if number < len(names) else str(number)
                folder = checkpoint / "sources" / (name if (checkpoint / "sources" / name).is_dir() else str(number))
                self._sources.append(_opened(session, leaf, folder))
            self._places.append(same[0] if same else len(self._sources) - 1)

    def batch(self, starts: Sequence[str], ends: Sequence[str], name: str, planned_at: int) -> DataFrame:
        """The rows between two offsets of each source, in their order.

        Args:
            starts: Offsets as Spark's log has them; empty for the first batch.
            ends: As ``starts``.
            name: Of the epoch, by which random numbers are made.
            planned_at: When Spark has planned the batch, in microseconds.

        Raises:
            RecoveryError: The offsets are those of other sources.
            SourceError: A source no longer has the rows.
        """
        places = self._places if len(ends) == len(self._places) else [*range(len(self._sources))]
        if len(ends) != len(places) or len(starts) not in {0, len(ends)}:
            message = (
                f"replay: the query reads {len(self._places)} sources, and its records have offsets of {len(ends)}. "
                "Replay it with the sources that it had."
            )
            raise RecoveryError(message)
        parts: dict[int, Any] = {}
        for number, start, end in zip(places, starts or [_VOID] * len(ends), ends, strict=True):
            source = self._sources[number]
            is_empty = end in (start, _VOID)
            parts[number] = (
                no_rows(self._session, source.leaf.output())
                if is_empty
                else source.rows(None if start == _VOID else start, end)
            )
        replaced = [(self._sources[number].leaf, part) for number, part in parts.items()]
        frame = as_frame(self._unchecked, self._plan.transformUp(as_map(self._session, replaced)))
        execution = Moment(name, planned_at).of(frame, "sources")._jdf.queryExecution()
        found = planned_rows(self._session, execution) if is_open(self._session, MICRO_BATCH) else None
        if found is not None:
            return found
        return as_frame(self._session, of_rdd(self._session, execution.analyzed().output(), execution.toRdd()))

    def close(self) -> None:
        """Close the sources; a second call does nothing."""
        while self._sources:
            self._sources.pop().stream.stop()


def first_offsets(session: SparkSession, rows: DataFrame) -> list[str]:
    """Where a new query of some streaming rows begins in each source of API version 2, as Spark's log would have it."""
    found = []
    with tempfile.TemporaryDirectory(prefix="sparkjet-") as place:
        for number, leaf in enumerate(each for each in streaming_nodes(analyzed(rows)) if not children(each)):
            source = _opened(session, leaf, Path(place) / str(number))
            try:
                if isinstance(source, _OfStream):
                    found.append(str(source.stream.initialOffset().json()))
            finally:
                source.stream.stop()
    return found


class _OfStream:
    """A source of API version 2."""

    def __init__(self, session: SparkSession, leaf: Any, folder: Path) -> None:
        self.leaf = leaf
        self._session = session
        self._scan = leaf.table().newScanBuilder(leaf.extraOptions()).build()
        self.stream = self._scan.toMicroBatchStream(f"file:{folder}")

    def rows(self, start: str | None, end: str) -> Any:
        """The plan of the rows between two offsets."""
        none, output = nothing(self._session), self.leaf.output()
        first = self.stream.initialOffset() if start is None else self.stream.deserializeOffset(start)
        last = self.stream.deserializeOffset(end)
        scan = java_class(self._session, _SCAN)(output, self._scan, self.stream, first, last, none, none)
        return planned(self._session, scan, output)._jdf.logicalPlan()


class _OfRelation:
    """A source of API version 1, such as one of files."""

    def __init__(self, session: SparkSession, leaf: Any, source: Any, folder: Path) -> None:
        self.leaf = leaf
        self.stream = source
        self._session = session
        self._listed = _files_of(folder) if kind_of(source) == "FileStreamSource" else None

    def rows(self, start: str | None, end: str) -> Any:
        """The plan of the rows between two offsets."""
        some, offset = java_class(self._session, "scala.Some"), java_class(self._session, _OFFSET)
        first = nothing(self._session) if start is None else some(offset(start))
        plan, output = self.stream.getBatch(first, offset(end)).logicalPlan(), listed(self.leaf.output())
        if kind_of(plan) == "LogicalRelation":
            if self._listed is not None:
                self._check_files(plan.relation(), start, end)
            if plan.output().size() < len(output):
                # The query reads _metadata.
                plan = plan.withMetadataColumns()
            rest = getattr(plan, "copy$default$5")()
            plan = plan.copy(plan.relation(), plan.output(), plan.catalogTable(), False, rest)
        alias = java_class(self._session, "org.apache.spark.sql.catalyst.expressions.Alias")
        project = java_class(self._session, "org.apache.spark.sql.catalyst.plans.logical.Project")
        nowhere = as_seq(self._session, [])
        columns = [
            alias(found, to.name(), to.exprId(), nowhere, some(found.metadata()), nowhere)
            for to, found in zip(output, listed(plan.output()), strict=True)
        ]
        return project(as_seq(self._session, columns), plan)

    def _check_files(self, relation: Any, start: str | None, end: str) -> None:
        """Refuse what Spark would pass over: files that it has read, and that are gone."""
        assert self._listed is not None  # noqa: S101 - as its caller knows
        first = -1 if start is None else json.loads(start)["logOffset"]
        wanted = [path for number, path in self._listed if first < number <= json.loads(end)["logOffset"]]
        there = [_plain(path) for path in relation.location().inputFiles()]
        missing = sorted({*map(_plain, wanted)} - {*there})
        if missing:
            message = (
                f"replay: {len(missing)} files that {self.leaf.sourceName()} has read are gone, such as {missing[0]}. "
                "Restore them, or replay from a later pin."
            )
            raise SourceError(message)


def _opened(session: SparkSession, leaf: Any, folder: Path) -> _OfRelation | _OfStream:
    folder.mkdir(parents=True, exist_ok=True)
    at = f"file:{folder}"
    if leaf.nodeName() == "StreamingRelation":
        return _OfRelation(session, leaf, leaf.dataSource().createSource(at), folder)
    capability = java_class(session, "org.apache.spark.sql.connector.catalog.TableCapability").MICRO_BATCH_READ
    provider = leaf.source().get().getClass().getCanonicalName() if leaf.source().isDefined() else None
    is_disabled = provider in str(session.conf.get(_DISABLED, "")).split(",")
    if leaf.table().capabilities().contains(capability) and not is_disabled:
        return _OfStream(session, leaf, folder)
    return _OfRelation(session, leaf, leaf.v1Relation().get().dataSource().createSource(at), folder)


def _files_of(folder: Path) -> list[tuple[int, str]]:
    """The files that a source of files has read, each with the number of its batch."""
    # Beside them Hadoop has checksums, whose names begin with a dot.
    logs = [path for path in folder.iterdir() if not path.name.startswith(".")]
    entries = [json.loads(line) for path in logs for line in path.read_text().splitlines()[1:]]
    return [(entry["batchId"], entry["path"]) for entry in entries]


def _plain(path: str) -> str:
    """A path without what is written in several ways.

    >>> _plain("file:///a%20b"), _plain("file:/a b"), _plain("s3a://box/a")
    ('/a b', '/a b', 's3a://box/a')
    """
    return re.sub(r"^file:/+", "/", unquote(path))
