"""The start of a query: one or several outputs of one input, with one record."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from sparkjet.api.launch import Launch
from sparkjet.clock import SystemClock
from sparkjet.errors import AnalysisError
from sparkjet.options import QUERY_OPTIONS, Options
from sparkjet.plan.plan import Output, Plan, Rows, plan_of
from sparkjet.plan.spark_sources import KEEPING, acknowledging_source, check_rereading
from sparkjet.sinks.files import FilesSink
from sparkjet.sinks.memory import MemorySink
from sparkjet.sinks.protocol import Guarantee
from sparkjet.storage.paths import local_path

if TYPE_CHECKING:
    from sparkjet.api.query import StreamingQuery
    from sparkjet.api.writer import StreamWriter
    from sparkjet.engine.phases import EpochPhase
    from sparkjet.plan.windowed_aggregation import WindowedAggregation

logger = logging.getLogger("sparkjet")

_T = TypeVar("_T")


def start(
    *writers: StreamWriter,
    lateRows: StreamWriter | Sequence[StreamWriter] = (),
    queryName: str | None = None,
    checkpointLocation: str | None = None,
) -> StreamingQuery:
    """Start one query with several results of one input: one pass over it, one record, one decision for all sinks.

    Settings of the whole query (trigger, guarantee, clock …) may be given at any of the writers; where two of them
    differ the start is refused.

    Args:
        writers: Results on their way to sinks, ``result.writeStream.format(…)…``, all from the same stream.
        lateRows: Outputs of dropped rows, ``result.lateRows.writeStream.format(…)…``.
        queryName: Name of the query.
        checkpointLocation: The query's home, as the option of the same name.

    Raises:
        AnalysisError: If anything is set wrongly; nothing has been started or changed.
        RecoveryError: If the stored state cannot be continued safely.
    """
    late = (lateRows,) if not isinstance(lateRows, Sequence) else tuple(lateRows)
    _check_kinds(writers, late)
    every = (*writers, *late)
    options = _common_options(every, {"checkpointLocation": checkpointLocation})
    trigger = _only("trigger", [writer.chosen_trigger for writer in every]) or {}
    close_at_end = options.flag("closeWindowsAtEnd")
    if close_at_end and not trigger.get("availableNow"):
        message = "closeWindowsAtEnd needs trigger(availableNow=True): other queries have no end."
        raise AnalysisError(message)
    guarantee = Guarantee(options.choice("processingGuarantee", tuple(g.value for g in Guarantee), "exactly-once"))
    plan = plan_of(_outputs(writers, late))
    overlap = options.flag("overlapEpochs")
    _check_overlap(plan, overlap=overlap)
    check_rereading(plan.source, guarantee)
    name = queryName if queryName is not None else _only("queryName", [writer.name for writer in writers[:1]])
    _warn(plan, name, guarantee)
    home = _home(plan, options, name, needs_one=any(writer.keeps_files for writer in every))
    return Launch(
        plan=plan,
        home=local_path(home if home is not None else tempfile.mkdtemp(prefix="sparkjet-"), "checkpointLocation"),
        has_own_home=home is not None,
        guarantee=guarantee,
        partitions=options.number("statePartitions", default=plan.source.sparkSession.sparkContext.defaultParallelism),
        overlap=overlap,
        trigger=trigger,
        close_at_end=close_at_end,
        name=name,
        clock=_only("clock", [writer.chosen_clock for writer in every]) or SystemClock(),
        listener=_only("onEpochPhase", [writer.listener for writer in every]) or _unheard,
    ).start()


def _check_kinds(writers: Sequence[StreamWriter], late: Sequence[StreamWriter]) -> None:
    if not writers:
        message = "start: give at least one writer, e.g. result.writeStream.format(…)."
        raise AnalysisError(message)
    for writer in writers:
        if writer.rows is not Rows.RESULTS:
            message = "start: a writer of late rows goes into lateRows=…"
            raise AnalysisError(message)
    for writer in late:
        if writer.rows is not Rows.LATE:
            message = "start: lateRows=… takes writers of late rows: result.lateRows.writeStream…"
            raise AnalysisError(message)


def _common_options(writers: Sequence[StreamWriter], arguments: Mapping[str, str | None]) -> Options:
    common: dict[str, str] = {}
    for option in QUERY_OPTIONS:
        given = [arguments.get(option), *(Options(writer.settings).get(option) for writer in writers)]
        found = _only(option, given)
        if found is not None:
            common[option] = found
    return Options(common)


def _only(name: str, given: Sequence[_T | None]) -> _T | None:
    """The one value that was given, None if there is none.

    Raises:
        AnalysisError: Two outputs of one query were given different ones.
    """
    values = [value for value in given if value is not None]
    if any(value != values[0] for value in values):
        message = f"start: the outputs of one query have different settings of {name}: {values}. Give it once."
        raise AnalysisError(message)
    return values[0] if values else None


def _check_overlap(plan: Plan, *, overlap: bool) -> None:
    source = acknowledging_source(plan.source) if overlap else None
    if source is not None:
        message = (
            f"overlapEpochs: Spark commits a batch to its source before the record has it, and {source} may delete it "
            f"then: a crash would lose it. Leave the option out. (Known to keep their rows: {', '.join(KEEPING)}.)"
        )
        raise AnalysisError(message)


def _outputs(writers: Sequence[StreamWriter], late: Sequence[StreamWriter]) -> list[Output]:
    outputs = [writer.output(name) for writer, name in zip(writers, _names("results", len(writers)), strict=True)]
    paths = [(writer, Options(writer.settings).get("lateRowsPath")) for writer in writers]
    dropped: list[Callable[[str], Output]] = [writer.output for writer in late]
    dropped += [partial(_late_files, writer.aggregation, path) for writer, path in paths if path is not None]
    outputs += [make(name) for make, name in zip(dropped, _names("late", len(dropped)), strict=True)]
    places = [str(output.sink.directory) for output in outputs if isinstance(output.sink, FilesSink)]
    places += [f"the table {output.sink.view}" for output in outputs if isinstance(output.sink, MemorySink)]
    for place in places:
        if places.count(place) > 1:
            message = f"start: two outputs write to {place}. Give each a place of its own."
            raise AnalysisError(message)
    if len({id(output.sink) for output in outputs}) < len(outputs):
        # Each would roll back what the other has prepared.
        message = "start: two outputs have the same sink object. Make one for each."
        raise AnalysisError(message)
    return outputs


def _late_files(aggregation: WindowedAggregation, path: str, name: str) -> Output:
    sink = FilesSink(local_path(path, "lateRowsPath"), option="lateRowsPath")
    return Output(name, aggregation, Rows.LATE, aggregation.late_shape(), lambda rows: rows, sink, "files")


def _names(kind: str, count: int) -> list[str]:
    return [kind] if count == 1 else [f"{kind}{number}" for number in range(1, count + 1)]


def _home(plan: Plan, options: Options, name: str | None, *, needs_one: bool) -> str | None:
    """The query's directory: as given, else below Spark's default, else None where losing it is no harm."""
    given = options.get("checkpointLocation")
    if given is not None:
        return given
    default = plan.source.sparkSession.conf.get("spark.sql.streaming.checkpointLocation", None)
    if default is not None and name is not None:
        return f"{default.rstrip('/')}/{name}"
    if needs_one:
        message = 'start: this sink needs option("checkpointLocation", "…"), the home of the query\'s state.'
        raise AnalysisError(message)
    return None


def _warn(plan: Plan, name: str | None, guarantee: Guarantee) -> None:
    for output in plan.outputs:
        if guarantee is Guarantee.EXACTLY_ONCE and output.sink.guarantee is not Guarantee.EXACTLY_ONCE:
            promise = output.sink.guarantee.value
            logger.warning("sink %r of query %s gives %s, not exactly-once", output.name, name or "", promise)
    for each in plan.inputs:
        watermark = each.watermark
        told = watermark.substreams or watermark.partitions
        if watermark.by and not told and watermark.discover is None:
            logger.warning(
                "query %s: substreams by %s are not waited for before their first row, which may be late. List them "
                'with substreams=[…] or wait for them with discover="2 minutes".',
                name or "",
                ", ".join(watermark.by),
            )


def _unheard(step: EpochPhase, epoch: int) -> None:
    """Nobody listens to the steps."""
