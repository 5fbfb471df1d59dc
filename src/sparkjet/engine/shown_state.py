"""The state of one operator under the names and types of its users, loaded as by a start."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, LongType, StructField, StructType

from sparkjet.catalyst.columns import HIDDEN, quoted
from sparkjet.catalyst.physical_plans import own_session
from sparkjet.engine.context import configure
from sparkjet.engine.progress import known
from sparkjet.engine.stage_state import Loading, StageState
from sparkjet.errors import AnalysisError
from sparkjet.plan.aggregation import key_name
from sparkjet.plan.interval_join import SIDES
from sparkjet.plan.recorded_stages import no_rows, recorded_aggregation, schema_of
from sparkjet.snapshots.record import (
    DeduplicationSettings,
    FunctionSettings,
    JoinSettings,
    RollingSettings,
    SessionSettings,
    SlidingSettings,
)
from sparkjet.state import NEVER, KeyedOperator, KeyedStore
from sparkjet.state.segments import to_store
from sparkjet.stateful.functions.user_function import TIMERS
from sparkjet.stateful.interval_join import IntervalJoin
from sparkjet.stateful.join_type import JoinType
from sparkjet.storage.read_back import in_session
from sparkjet.time import clamp

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column

    from sparkjet.snapshots import SnapshotStore
    from sparkjet.snapshots.record import Record, SavedStage, Shown
    from sparkjet.state import Segment

_KINDS = {
    SlidingSettings: "windows",
    SessionSettings: "sessions",
    RollingSettings: "rolling",
    DeduplicationSettings: "duplicates",
    JoinSettings: "join",
    FunctionSettings: "function",
}


def kind_of_operator(saved: SavedStage) -> str:
    """The kind of an operator, in a word."""
    return _KINDS[type(saved.settings)]


def shown_rows(
    session: SparkSession, store: SnapshotStore, record: Record, name: str, side: str | None = None
) -> DataFrame:
    """The rows of an operator, persisted in the executors: a running query removes the files from which they were read.

    Raises:
        AnalysisError: The operator has no such side.
        RecoveryError: Something that the record names is missing.
    """
    saved, shown = record.stages[name], record.shown[name]
    if side is not None and (side not in SIDES or not isinstance(saved.settings, JoinSettings)):
        message = (
            f'read_state: joinSide="{side}": it is left or right, of a join; {name} is: {kind_of_operator(saved)}.'
        )
        raise AnalysisError(message)
    own = own_session(session)
    partitions = max((delta.partitions or 1 for delta in saved.deltas), default=1)
    configure(own, partitions)
    # Spark would derive everything that follows from twenty renamed keys: this takes hours, as each doubles the number.
    own.conf.set("spark.sql.constraintPropagation.enabled", "false")
    stored = _StoredStage(own, store, record, name, saved, shown, partitions)
    try:
        return in_session(session, stored.rows(side).localCheckpoint())
    finally:
        stored.release()


class _Stored:
    """Keeps rows in the form in which they are stored."""

    def partitioned(self, rows: DataFrame) -> DataFrame:
        return rows.localCheckpoint(eager=False)


@dataclass
class _StoredStage:
    session: SparkSession
    store: SnapshotStore
    record: Record
    name: str
    saved: SavedStage
    shown: Shown
    partitions: int
    release: Callable[[], None] = lambda: None

    def rows(self, side: str | None) -> DataFrame:
        settings = self.saved.settings
        if isinstance(settings, JoinSettings):
            return self._joined(settings, side)
        if isinstance(settings, FunctionSettings):
            return self._function()
        return self._keys() if isinstance(settings, DeduplicationSettings) else self._aggregated()

    def _aggregated(self) -> DataFrame:
        stage = recorded_aggregation(self.session, self.name, self.record)
        operator = stage.operator(self.partitions)
        assert operator is not None  # noqa: S101 - of an aggregation
        state = StageState(operator, self.partitions)
        self.release = state.close
        state.restore(self.saved, self.session, self.store, self.name)
        open_now = state.operator.early()
        rows = stage.shape().where("false") if open_now is None else stage.output(open_now)
        rows = rows.drop(*HIDDEN)
        reached = known(self.record.watermarks.coalescer.emitted)
        if isinstance(self.saved.settings, RollingSettings) or "watermark" in rows.columns:
            return rows
        watermark = F.lit(None).cast("timestamp") if reached is None else F.timestamp_micros(F.lit(reached))
        return rows.withColumn("watermark", watermark)

    def _keys(self) -> DataFrame:
        keys = schema_of(self.shown.keys)
        live = self._live(KeyedStore(_names(keys), [], self.partitions, versioned=False), StructType())
        return live.select(*_keys_of(keys), F.when(F.col("due") < NEVER, F.timestamp_micros("due")).alias("expires"))

    def _function(self) -> DataFrame:
        keys, state = schema_of(self.shown.keys), schema_of(self.shown.state)
        store = KeyedStore(_names(keys), ["latest", *state.names], self.partitions, deletable=True)
        variables = list(self.record.fingerprint[self.name]["state"])
        now = self.record.clock // 1_000
        columns = []
        for number, field in enumerate(state):
            column = F.col(field.name)
            if TIMERS not in state.names:
                # State of applyInPandasWithState: the state itself, and when it times out.
                shown = column if isinstance(field.dataType, StructType) else F.timestamp_millis(column)
                columns.append(shown.alias(field.name))
            elif field.name == TIMERS:
                columns.append(F.transform(column, F.timestamp_millis).alias(TIMERS))
            else:
                columns.append(_variable(field, now).alias(variables[number]))
        return self._live(store, state).select(*_keys_of(keys), *columns)

    def _live(self, store: KeyedStore, payload: StructType) -> DataFrame:
        operator = KeyedOperator(store)
        loading = Loading(operator, self.session, self.store)
        operator.restore([loading.segment(delta, None) for delta in self.saved.deltas], self.saved.closed)

        def release() -> None:
            operator.restore([], None)
            operator.release()

        self.release = release
        live = operator.live()
        if live is not None:
            return live
        keys = [StructField(key_name(i), each.dataType) for i, each in enumerate(schema_of(self.shown.keys))]
        return no_rows(self.session, StructType([*keys, *payload, StructField("due", LongType())]))

    def _joined(self, settings: JoinSettings, side: str | None) -> DataFrame:
        fingerprint = self.record.fingerprint[self.name]
        # Only to find out which rows it still needs; rows are read separately, and matched with nothing.
        join, (lower, upper) = JoinType.of(fingerprint["join"]), fingerprint["bounds"]
        operator = IntervalJoin(join, lower, upper, [], None, (StructType(), StructType()), 1)
        loading = Loading(_Stored(), self.session, self.store)
        segments = [loading.segment(delta, None) for delta in self.saved.deltas]

        def release() -> None:
            for segment in segments:
                segment.release()

        self.release = release
        schemas = [schema_of(fields) for fields in self.shown.sides]
        found = {}
        for one, schema, horizon in zip(SIDES, schemas, operator.horizons(settings.watermarks), strict=True):
            found[one] = self._side(one, schema, [each for each in segments if _is_of(each, one)], clamp(horizon))
        if side is not None:
            schema = schemas[SIDES.index(side)]
            return found[side].select(*_named(schema, side))
        columns = []
        for one in SIDES:
            structs = [
                (F.struct(*_named(schema, one)) if each == one else F.lit(None).cast(schema)).alias(each)
                for each, schema in zip(SIDES, schemas, strict=True)
            ]
            time = F.timestamp_micros(f"{one}_time").alias("event_time")
            columns.append(found[one].select(F.lit(one).alias("side"), time, *structs))
        return columns[0].unionByName(columns[1])

    def _side(self, side: str, schema: StructType, segments: Sequence[Segment], horizon: int) -> DataFrame:
        time = f"{side}_time"
        if not segments:
            fields = [StructField(f"{side}{i}", each.dataType) for i, each in enumerate(schema)]
            return no_rows(self.session, StructType([StructField(time, LongType()), *fields]))
        rows = reduce(DataFrame.unionByName, [to_store(each.partials) for each in segments])
        return rows.where(F.col(time) >= F.lit(horizon))


def _is_of(segment: Segment, side: str) -> bool:
    return f"{side}_time" in segment.partials.columns


def _names(keys: StructType) -> list[str]:
    return [key_name(number) for number in range(len(keys))]


def _keys_of(keys: StructType) -> list[Column]:
    return [F.col(key_name(number)).alias(each.name) for number, each in enumerate(keys)]


def _named(schema: StructType, side: str) -> list[Column]:
    return [F.col(f"{side}{number}").alias(each.name) for number, each in enumerate(schema)]


def _variable(field: StructField, now: int) -> Column:
    """A variable of a processor as its user sees it at a time in milliseconds: without expired values."""

    def is_live(item: Column) -> Column:
        return item["expires"].isNull() | (item["expires"] > F.lit(now))

    column = F.col(quoted(field.name))
    if not isinstance(field.dataType, ArrayType):
        return F.when(is_live(column), column["value"])
    live = F.filter(column, is_live)
    assert isinstance(field.dataType.elementType, StructType)  # noqa: S101 - as `StoredList` and `StoredMap` have it
    if "key" in field.dataType.elementType.names:
        return F.map_from_entries(F.transform(live, lambda each: F.struct(each["key"], each["value"])))
    return F.transform(live, lambda each: each["value"])
