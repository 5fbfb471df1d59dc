"""Recovery: from the newest record to an engine that may run the next epoch."""

from __future__ import annotations

import shutil
import uuid
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from sparkjet.clock import SteadyClock
from sparkjet.engine.caught_up import in_order
from sparkjet.engine.changed_results import nulls_refused
from sparkjet.engine.changed_windows import check_changed_windows
from sparkjet.engine.comparing import compared, lacking_of
from sparkjet.engine.engine import Engine
from sparkjet.engine.sharing import Sharing
from sparkjet.engine.spark_checkpoint import SparkCheckpoint, check_agreement, check_readable, ends_of
from sparkjet.engine.state import QueryState
from sparkjet.errors import FencedError, RecoveryError
from sparkjet.snapshots.record import EpochKind, Record
from sparkjet.storage.directory import Losable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparkjet.engine.changed_query import Upgrade
    from sparkjet.engine.context import EngineContext
    from sparkjet.plan.plan import Plan


def recover(context: EngineContext, spark_directory: Path) -> tuple[Engine, SparkCheckpoint]:
    """Take a query over and make it ready to run.

    The order is: compare store, checkpoint, sinks and query (nothing is changed if they disagree); take over, which
    fences any other driver; let the sinks create what is missing; publish decided transactions; abort undecided ones;
    remove whatever no record names; restore the state; rebuild Spark's checkpoint for this run.
    """
    context.steps.at("comparing record, sinks and Spark's checkpoint")
    slot, record, upgrade = _take_over(context, spark_directory)
    if upgrade is not None:
        context = replace(context, plan=context.plan.with_lacking(_lacking(context.plan, record, upgrade)))
        # Now: with the columns of aggregates that lack rows.
        upgrade = replace(upgrade, now=context.plan.fingerprint)
    try:
        return _recovered(context, slot, record, spark_directory, upgrade)
    except Exception as error:
        fenced = context.log.fenced(slot, record)
        if fenced is not None:
            # This driver was itself taken over while it started: its successor has removed what it misses.
            raise fenced from error
        raise


def _recovered(
    context: EngineContext, slot: int, record: Record, spark_directory: Path, upgrade: Upgrade | None
) -> tuple[Engine, SparkCheckpoint]:
    """Bring sinks, store, state and checkpoint to the position of the record."""
    # Not before the takeover: a refused start must leave nothing behind.
    steps = context.steps
    context.committer.create()
    steps.at(f"committing what is decided: {len(record.transactions)} transactions")
    context.committer.decided(list(record.transactions))
    context.committer.settle()
    steps.at("rolling back what is not decided")
    context.committer.abort_orphans(record)
    steps.at("removing what no record names")
    context.log.clean_before(record.takeover, record)
    replaced = set[str]()
    if upgrade is not None and upgrade.refill is not None:
        assert context.home is not None  # noqa: S101 - the option is that of a query that has one
        steps.at("copying the state of the fork")
        replaced = record.names()
        record = upgrade.refill.into(record, context.home)
    if upgrade is not None and upgrade.sources is not None:
        # Only here, until the first epoch: the log still has the query as it was, so that the change can be taken back.
        record = upgrade.sources.of(record)
        upgrade = replace(upgrade, before=record.fingerprint)
    state = QueryState.of(context.plan, context.partitions, upgrade)
    steps.at("restoring the state", sum(len(stage.deltas) for stage in record.stages.values()))
    name = f"{record.takeover:06d}-{record.epoch:09d}-moved"
    state.restore(record, context.session, context.store, name, loaded=steps.one)
    for stage in state.stages.values():
        # Until the first epoch, the log names them.
        stage.obsolete |= replaced - record.names()
    steps.at("rebuilding Spark's checkpoint")
    clock = SteadyClock(context.clock, record.clock)
    now = clock.now()
    for each in context.plan.inputs:
        for substream in each.awaited:
            state.tracker.add(substream, now)
    state.tracker.resume(now)
    checkpoint = SparkCheckpoint(spark_directory / f"{record.takeover:06d}")
    checkpoint.rebuild(record.query, record.spark, context.store, repeats=context.repeats)
    if record.spark is not None:
        # Spark plans the first batch of this run from there.
        ends = in_order(ends_of(record.spark), context.plan.source_names)
        context.alignment.look(context.plan.inputs, ends)
        context.alignment.tell(state.tracker)
    for run in _runs(spark_directory):
        if int(run.name) < record.takeover:
            # A fenced driver may still write there, to no effect; it cannot reach this run's directory.
            shutil.rmtree(run, ignore_errors=True)
    return Engine(context, slot, record, state, checkpoint, clock), checkpoint


def _take_over(context: EngineContext, spark_directory: Path) -> tuple[int, Record, Upgrade | None]:
    """Write a takeover record on top of the newest one that passes the checks; returns it with the changes since."""
    run, sharing = str(uuid.uuid4()), Sharing(context.plan, context.publish_after)
    while True:
        newest = context.log.newest()
        slot, before = newest if newest is not None else (-1, None)
        known = before if before is not None else _first(run, context)
        try:
            _check_checkpoint(spark_directory, before)
            context.committer.check_history(known, is_first=before is None)
        except (OSError, RecoveryError):
            # A running driver, or another successor, may have continued between the two looks.
            again = context.log.newest()
            if again is not None and again[0] != slot:
                continue
            raise
        upgrade = None
        if before is None:
            record = known
            if context.adopt is not None:
                # Now: nothing else can refuse this start.
                begun = context.adopt.take(context.plan, context.store, f"{known.takeover:06d}-{run}")
                record = msgspec.structs.replace(known, spark=begun.position, after=begun.after or known.after)
        else:
            upgrade = compared(context.plan, before)
            if context.refill is not None and upgrade.changes:
                # Without a change, it was refilled before.
                upgrade = context.refill().upgrade(context.plan, before, upgrade.changes)
            else:
                check_changed_windows(context.plan, before)
            lacking = _lacking(context.plan, before, upgrade)
            refused = nulls_refused(context.plan.with_lacking(lacking), upgrade, lacking)
            upgrade = replace(upgrade, changes=(*upgrade.changes, *refused))
            outputs, after = sharing.begun(before.query, before)
            context.on_change.decide(upgrade)
            next_takeover = before.takeover + 1
            # Its `overlap` stays: until an epoch is recorded, a start may still find the old run's checkpoint.
            overlap = before.overlap or context.overlap
            record = msgspec.structs.replace(
                before,
                kind=EpochKind.TAKEOVER,
                takeover=next_takeover,
                run=run,
                overlap=overlap,
                # With what they belong to: the first epoch of this run records all three.
                unsaid=before.unsaid if upgrade.is_pending else context.plan.unsaid,
                shown=before.shown if upgrade.is_pending else context.plan.shown,
                outputs=outputs,
                after=after,
            )
        try:
            context.log.append(slot + 1, record)
        except FencedError:
            # The driver that we are replacing, or another successor, was faster: look again at what it decided.
            continue
        return slot + 1, record, upgrade


def _lacking(plan: Plan, record: Record, upgrade: Upgrade) -> dict[str, tuple[int, ...]]:
    return lacking_of(plan, record if upgrade.refill is None else upgrade.refill.record, upgrade)


def _first(run: str, context: EngineContext) -> Record:
    query = _identity(context)
    outputs, after = Sharing(context.plan, context.publish_after).begun(query, None)
    return Record(
        kind=EpochKind.TAKEOVER,
        query=query,
        takeover=0,
        run=run,
        epoch=0,
        fingerprint=context.plan.fingerprint,
        clock=context.clock.now(),
        watermarks=context.plan.tracker().snapshot(),
        stages={},
        early_at={},
        spark=None,
        transactions=[],
        overlap=context.overlap,
        unsaid=context.plan.unsaid,
        shown=context.plan.shown,
        outputs=outputs,
        after=after,
    )


def _identity(context: EngineContext) -> str:
    """The id of a new query; if a home may be lost as a whole, sinks use it to recognize what was published before."""
    home = context.home
    if home is not None and isinstance(home, Losable):
        return str(uuid.uuid5(uuid.NAMESPACE_URL, f"grid:{home.identity}"))
    return str(uuid.uuid4())


def _check_checkpoint(spark_directory: Path, record: Record | None) -> None:
    if record is not None and record.spark is not None:
        check_readable(record.spark)
    current = _newest_checkpoint(spark_directory)
    if current is None:
        return
    if record is None:
        check_agreement(current, None, None, None)
    else:
        batch = record.spark.batch if record.spark is not None else None
        check_agreement(current, record.query, batch, record.takeover, ahead=int(record.overlap))


def _newest_checkpoint(spark_directory: Path) -> SparkCheckpoint | None:
    runs = _runs(spark_directory)
    return SparkCheckpoint(max(runs, key=lambda path: int(path.name))) if runs else None


def _runs(spark_directory: Path) -> Sequence[Path]:
    if not spark_directory.is_dir():
        return []
    return [path for path in spark_directory.iterdir() if path.name.isdecimal()]
