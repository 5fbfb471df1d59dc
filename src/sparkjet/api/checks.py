"""Checks of a whole query before it starts: whether its outputs go together and its settings agree."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from sparkjet.api.launch import Launch
from sparkjet.api.query_settings import QuerySettings
from sparkjet.catalyst.plan_analysis import check_streaming
from sparkjet.clock import SystemClock
from sparkjet.engine.adopting import Adoption
from sparkjet.engine.backup import Backup
from sparkjet.errors import AnalysisError
from sparkjet.executors import state_partitions
from sparkjet.options import (
    ADOPT,
    AUTO,
    CHECKPOINT_LOCATION,
    DEAD_LETTERS_PATH,
    DEAD_LETTERS_RETENTION,
    LATE_ROWS_PATH,
    LATE_ROWS_RETENTION,
    PUBLISH_AFTER,
    QUERY_OPTIONS,
    Option,
    Options,
)
from sparkjet.plan.aligned import check_aligned
from sparkjet.plan.backfill import backfilled
from sparkjet.plan.diverting import letters_shape
from sparkjet.plan.outputs import AnyOutput, DeadLetterOutput, Rows, StageOutput
from sparkjet.plan.own_input import check_own_input
from sparkjet.plan.plan import Plan
from sparkjet.plan.planning import plan_of
from sparkjet.plan.replaying import Replaying
from sparkjet.plan.spark_sources import KEEPING, acknowledging_source, check_replayable
from sparkjet.query_log import about, logger
from sparkjet.sinks.files import FilesSink
from sparkjet.sinks.memory import MemorySink
from sparkjet.sinks.protocol import Guarantee
from sparkjet.storage.schemes import directory_at, is_within

if TYPE_CHECKING:
    from sparkjet.api.output_settings import OutputSettings
    from sparkjet.engine.phases import EpochPhase
    from sparkjet.engine.replaying import ReplayRequest
    from sparkjet.plan.diverting import Divert
    from sparkjet.plan.stage import Stage
    from sparkjet.plan.transformations import Transformations
    from sparkjet.storage.directory import Directory

_T = TypeVar("_T")


def checked(
    results: Sequence[OutputSettings],
    late: Sequence[OutputSettings] = (),
    dead: Sequence[OutputSettings] = (),
    *,
    name: str | None = None,
    home: str | None = None,
    replay: Callable[[Replaying], ReplayRequest] | None = None,
) -> Launch:
    """The query of some outputs, ready to be started.

    Args:
        results: Outputs of results.
        late: Outputs of late rows.
        dead: Outputs of dead letters.
        name: Name of the query; that of the first output by default.
        home: Like the option ``checkpointLocation``.
        replay: Returns the dead letters of the query to be replayed first.

    Raises:
        AnalysisError: If anything is set wrongly; nothing has been changed.
    """
    _check_kinds(results, late, dead)
    outputs = (*results, *late, *dead)
    trigger = _only("trigger", [output.trigger for output in outputs]) or {}
    settings = QuerySettings.of(_common_options(outputs, home), trigger)
    described = _outputs(results, late, dead)
    plan = plan_of(described)
    if not plan.source.isStreaming:
        message = (
            "start: this is a batch DataFrame, not a stream. Call toDF() instead of writeStream, or read it "
            "with spark.readStream."
        )
        raise AnalysisError(message)
    _check_without_stages(plan, settings)
    _check_end(plan, close_at_end=settings.close_at_end)
    overlap = _overlap(plan, settings.overlap, ends=bool(trigger.get("availableNow")))
    check_streaming(plan.source)
    settings.limit.check(plan, switches=settings.publish_after is not None)
    check_own_input(plan)
    check_aligned(plan)
    name = name if name is not None else results[0].name
    place = _home(plan, settings, name, needs_one=any(output.is_durable for output in outputs))
    with about(name or place):
        check_replayable(plan.source, settings.guarantee)
        _warn(plan, settings.guarantee)
        partitions = _partitions(plan, settings.partitions)
    directory = directory_at(
        place if place is not None else tempfile.mkdtemp(prefix="sparkjet-"),
        settings.place_option,
        lambda: plan.source.sparkSession,
    )
    return Launch(
        plan=plan,
        home=directory,
        has_own_home=place is not None,
        backup=_backup(plan, settings, directory),
        replay=None if replay is None else replay(Replaying.of(plan, described)),
        guarantee=settings.guarantee,
        partitions=partitions,
        limit=settings.limit,
        overlap=overlap,
        trigger=trigger,
        close_at_end=settings.close_at_end,
        pin_retention=settings.pin_retention,
        on_change=settings.on_change,
        publish_after=_publish_after(plan, settings),
        refill_from=settings.refill_from,
        adopt=_adoption(plan, settings, directory, has_home=place is not None),
        name=name,
        clock=_only("clock", [output.clock for output in outputs]) or SystemClock(),
        listener=_only("onEpochPhase", [output.listener for output in outputs]) or _no_listener,
    )


def _check_kinds(
    results: Sequence[OutputSettings], late: Sequence[OutputSettings], dead: Sequence[OutputSettings]
) -> None:
    if not results:
        raise AnalysisError("start: give at least one writer, e.g. result.writeStream.format(…).")
    if any(output.rows is Rows.LATE for output in results):
        raise AnalysisError("start: a writer of late rows goes into lateRows=…")
    if any(output.rows is not Rows.LATE for output in late):
        raise AnalysisError("start: lateRows=… takes writers of late rows: result.lateRows.writeStream…")
    if any(output.rows is Rows.DEAD for output in results):
        raise AnalysisError("start: a writer of dead letters goes into deadLetters=…")
    if any(output.rows is not Rows.DEAD for output in dead):
        raise AnalysisError("start: deadLetters=… takes writers of dead letters: stream.deadLetters.writeStream…")


def _common_options(outputs: Sequence[OutputSettings], home: str | None) -> Options:
    common: dict[str, str] = {}
    for option in QUERY_OPTIONS:
        given = [Options(output.options).get(option) for output in outputs]
        found = _only(option.name, [home, *given] if option is CHECKPOINT_LOCATION else given)
        if found is not None:
            common[option.name] = found
    return Options(common)


def _only(name: str, given: Sequence[_T | None]) -> _T | None:
    """The single value that the outputs of a query have, None if there is none; two different ones are refused."""
    values = [value for value in given if value is not None]
    if any(value != values[0] for value in values):
        message = f"start: the outputs of one query have different settings of {name}: {values}. Give it once."
        raise AnalysisError(message)
    return values[0] if values else None


def _check_without_stages(plan: Plan, settings: QuerySettings) -> None:
    reasons = {
        "closeWindowsAtEnd": "there are none to close",
        "overlapEpochs": "no partial aggregation can run beside the end of an epoch",
        "statePartitions": "there is no state",
    }
    for option, is_asked in settings.of_stages.items():
        if is_asked and not plan.stages:
            raise AnalysisError(f"{option}: without windows {reasons[option]}. Leave the option out.")


def _check_end(plan: Plan, *, close_at_end: bool) -> None:
    if close_at_end and not any(planned.stage.waits for planned in plan.stages):
        # It would only advance the watermark, so that rows of the next run would be late for no reason.
        message = (
            "closeWindowsAtEnd: no result of this query waits for the end of the input: it has no windows that close, "
            "no outer or anti join and no timers in event time. Leave the option out."
        )
        raise AnalysisError(message)


def _overlap(plan: Plan, asked: str, *, ends: bool) -> bool:
    """Whether epochs overlap: by default, if there is state and every source is known to keep its rows.

    False by default for a query that ends by itself: for Spark it ends before its last epoch, of which no listener
    would hear.
    """
    if asked == "false" or not plan.stages or (ends and asked == AUTO):
        return False
    source = acknowledging_source(plan.source)
    if source is not None and asked == "true":
        message = (
            f"overlapEpochs: Spark commits a batch to its source before the record has it, and {source} may delete it "
            f"then: a crash would lose it. Leave the option out. (Known to keep their rows: {', '.join(KEEPING)}.)"
        )
        raise AnalysisError(message)
    return source is None


def _outputs(
    results: Sequence[OutputSettings], late: Sequence[OutputSettings], dead: Sequence[OutputSettings]
) -> list[AnyOutput]:
    outputs = [each.output(name) for each, name in zip(results, output_names("results", len(results)), strict=True)]
    _check_age_limits([*results, *late, *dead])
    dropped: list[Callable[[str], AnyOutput]] = [each.output for each in late]
    dropped += [
        partial(_late_files, each.stage, each)
        for each in results
        if each.stage is not None and LATE_ROWS_PATH in Options(each.options)
    ]
    outputs += [make(name) for make, name in zip(dropped, output_names("late", len(dropped)), strict=True)]
    for each in dead:
        if DEAD_LETTERS_PATH in Options(each.options):
            raise AnalysisError("deadLettersPath: only writers of results take it. Set it on one of these.")
    written = (*results, *late)
    letters = _dead_files(written)
    chains = [each.diverted for each in dead if each.diverted is not None]
    _check_delivered(written, {chain.divert for chain in (*chains, *(chain for chain, _ in letters.values()))})
    failed: list[Callable[[str], AnyOutput]] = [each.output for each in dead]
    failed += [partial(_letter_files, *each) for each in letters.values()]
    outputs += [make(name) for make, name in zip(failed, output_names("dead", len(failed)), strict=True)]
    directories = [output.sink.directory for output in outputs if isinstance(output.sink, FilesSink)]
    # One may be a link to another, which would mix up their files; a store has no links, and may not answer yet.
    places = [str(each) if each.path is None else each.resolved() for each in directories]
    places += [f"the table {output.sink.view}" for output in outputs if isinstance(output.sink, MemorySink)]
    for place in places:
        if places.count(place) > 1:
            raise AnalysisError(f"start: two outputs write to {place}. Give each its own place.")
    if len({id(output.sink) for output in outputs}) < len(outputs):
        # Each would abort the transactions that the other has prepared.
        raise AnalysisError("start: two outputs have the same sink object. Make one for each.")
    return outputs


def _check_age_limits(outputs: Sequence[OutputSettings]) -> None:
    """Refuse age limits without files that they apply to."""
    for each in outputs:
        given = Options(each.options)
        for limit, path in ((LATE_ROWS_RETENTION, LATE_ROWS_PATH), (DEAD_LETTERS_RETENTION, DEAD_LETTERS_PATH)):
            if limit in given and path not in given:
                message = f"option: {limit.name} needs {path.name}, whose files it limits. Set both, or none."
                raise AnalysisError(message)


def _dead_files(results: Sequence[OutputSettings]) -> dict[str, tuple[Transformations, OutputSettings]]:
    """The chains whose failed rows go to directories of the option ``deadLettersPath``, with the settings of each."""
    found: dict[str, tuple[Transformations, OutputSettings]] = {}
    for each in results:
        given, chains = Options(each.options), each.diverting
        path = given[DEAD_LETTERS_PATH]
        if path is None:
            continue
        if not chains:
            message = "deadLettersPath: no rows are diverted. Call divert(errors=True) on the stream, or leave it out."
            raise AnalysisError(message)
        if len({chain.divert for chain in chains}) > 1:
            message = (
                "deadLettersPath: rows of several streams are diverted on the way to this output. Write those of each "
                "with deadLetters=[…]."
            )
            raise AnalysisError(message)
        chain, other = found.setdefault(path, (chains[0], each))
        if chain.divert is not chains[0].divert:
            raise AnalysisError(f"deadLettersPath: two streams divert rows to {path}. Give each its own place.")
        if given[DEAD_LETTERS_RETENTION] != Options(other.options)[DEAD_LETTERS_RETENTION]:
            message = f"deadLettersRetention: two writers set different values for {path}. Set the same one on both."
            raise AnalysisError(message)
    return found


def _check_delivered(results: Sequence[OutputSettings], delivered: Collection[Divert | None]) -> None:
    """Refuse rows that would be diverted to no output."""
    if any(chain.divert not in delivered for each in results for chain in each.diverting):
        message = (
            'start: divert(errors=True) needs a place for the rows that fail: option("deadLettersPath", "…"), or '
            "sj.start(…, deadLetters=stream.deadLetters.writeStream…)."
        )
        raise AnalysisError(message)


def _letter_files(chain: Transformations, settings: OutputSettings, name: str) -> DeadLetterOutput:
    shape = letters_shape(chain.diverted_shape)
    sink = _files(settings, DEAD_LETTERS_PATH, DEAD_LETTERS_RETENTION)
    return DeadLetterOutput(name, sink, "files", chain, shape, lambda rows: rows)


def _late_files(stage: Stage, settings: OutputSettings, name: str) -> StageOutput:
    rows = Rows.LATE, stage.late_shape(), lambda rows: rows
    return StageOutput(name, _files(settings, LATE_ROWS_PATH, LATE_ROWS_RETENTION), "files", stage, *rows)


def _files(settings: OutputSettings, place: Option[str | None], limit: Option[int | None]) -> FilesSink:
    """The files of an option of a writer, which has been given."""
    given, option = Options(settings.options), place.name
    location, clock = given[place], settings.clock or SystemClock()
    assert location is not None  # noqa: S101 - as said
    at = partial(directory_at, option=option, session=lambda: settings.chain.source.sparkSession)
    return FilesSink(at(location), option=option, at=at, age_limit=given[limit], clock=clock)


def output_names(kind: str, count: int) -> list[str]:
    """The names of the outputs of a kind in the progress."""
    return [kind] if count == 1 else [f"{kind}{number}" for number in range(1, count + 1)]


def _partitions(plan: Plan, asked: int | None) -> int:
    if not plan.stages:
        return 0
    # Not determined where it is an argument: that may wait for executors.
    return state_partitions(plan.source.sparkSession) if asked is None else asked


def _home(plan: Plan, settings: QuerySettings, name: str | None, *, needs_one: bool) -> str | None:
    """The query's home: as given, or below Spark's default, or None if losing it does no harm."""
    given = settings.home(name)
    if given is not None:
        return given
    default = plan.source.sparkSession.conf.get("spark.sql.streaming.checkpointLocation", None)
    if default is not None and name is not None:
        return f"{default.rstrip('/')}/{name}"
    if needs_one:
        raise AnalysisError('start: this sink needs option("checkpointLocation", "…"), the home of the query\'s state.')
    return None


def _backup(plan: Plan, settings: QuerySettings, home: Directory) -> Backup | None:
    """The backup that copies snapshots elsewhere."""
    if settings.backup is None:
        return None
    directory = directory_at(settings.backup, "snapshotBackup", lambda: plan.source.sparkSession)
    return Backup(home, directory, settings.backup_every)


def _publish_after(plan: Plan, settings: QuerySettings) -> Directory | None:
    """The home of the query whose windows come before."""
    given, session = settings.publish_after, plan.source.sparkSession
    return None if given is None else directory_at(given, PUBLISH_AFTER.name, lambda: session)


def _adoption(plan: Plan, settings: QuerySettings, home: Directory, *, has_home: bool) -> Adoption | None:
    """Spark's checkpoint after which the query begins."""
    given = settings.adopt
    if given is None:
        return None
    if not has_home:
        message = (
            f'{ADOPT.name}: without option("checkpointLocation", "…") the next start would not know what was read. Set '
            "it to a directory other than Spark's checkpoint."
        )
        raise AnalysisError(message)
    if backfilled(plan.source) is not None:
        message = (
            f"{ADOPT.name}: with sj.backfill the stream begins where the history ends, and not where Spark's query "
            "has stopped. Use one of them."
        )
        raise AnalysisError(message)
    checkpoint = directory_at(given, ADOPT.name, lambda: plan.source.sparkSession)
    adoption = Adoption(given, checkpoint, home, replays=settings.adopt_replay)
    if is_within(home.resolved(), adoption.checkpoint.resolved()):
        message = (
            f'{ADOPT.name}: the checkpointLocation "{home}" is Spark\'s checkpoint, or in it. Give the query a '
            "directory of its own: Spark's checkpoint stays as it is."
        )
        raise AnalysisError(message)
    return adoption


def _warn(plan: Plan, guarantee: Guarantee) -> None:
    for output in plan.outputs:
        if guarantee is Guarantee.EXACTLY_ONCE and output.sink.guarantee is not Guarantee.EXACTLY_ONCE:
            promise = output.sink.guarantee.value
            logger.warning("the sink %r gives %s, not exactly-once", output.name, promise)
    for each in plan.inputs:
        watermark = each.watermark
        known = watermark.substreams or watermark.partitions
        if watermark.by and not known and watermark.discover is None:
            logger.warning(
                "substreams by %s are not waited for before their first row, which may be late. List them "
                'with substreams=[…] or wait for them with discover="2 minutes".',
                ", ".join(watermark.by),
            )


def _no_listener(phase: EpochPhase, epoch: int) -> None:
    """Do nothing: the default if no listener is given."""
