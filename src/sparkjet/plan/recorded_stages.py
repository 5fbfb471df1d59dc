"""Aggregations rebuilt from a record, without the query, to read their state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from sparkjet import functions
from sparkjet.aggregates.operation import Inputs
from sparkjet.catalyst.columns import HIDDEN, TIME, quoted
from sparkjet.catalyst.expressions import column_of, expression_of, function_name, parts_of, rebuilt
from sparkjet.catalyst.logical_plans import children, kind_of, listed
from sparkjet.errors import SparkjetError
from sparkjet.plan.aggregation import group_window
from sparkjet.plan.grouping import Grouping, Key
from sparkjet.plan.resolved_aggregates import resolved_aggregates
from sparkjet.plan.rolling_aggregation import RollingAggregation
from sparkjet.plan.stage import Feed
from sparkjet.plan.transformations import Transformations
from sparkjet.plan.windowed_aggregation import WindowedAggregation
from sparkjet.query_log import logger
from sparkjet.snapshots.record import Fields, SessionSettings, SlidingSettings
from sparkjet.time import WindowGrid
from sparkjet.windows import SessionWindow, Window

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

    from sparkjet.catalyst.aggregate_calls import ResultColumn
    from sparkjet.plan.aggregation import Aggregation, ResolvedAggregate
    from sparkjet.snapshots.record import Record, Shown, StageSettings


def schema_of(fields: Fields) -> StructType:
    """The schema of columns that a record names."""
    # A copy: Spark adds names of collations to the object that it is given.
    whole = [{"nullable": True, "metadata": {}, **each} for each in deepcopy(fields)]
    return StructType.fromJson({"fields": whole})


def no_rows(session: SparkSession, schema: StructType) -> DataFrame:
    """A DataFrame without rows."""
    # Not by createDataFrame, which makes its session the active one.
    return session.range(0).select(*(F.lit(None).cast(each.dataType).alias(each.name) for each in schema))


def recorded_aggregation(session: SparkSession, name: str, record: Record) -> Aggregation:
    """An aggregation whose operator accepts the state of a stage, and whose output has the user's names.

    It has no results if SQL cannot express them, or if they would differ from the record's: those of Python functions,
    pivoted ones, and those whose functions this session does not have.
    """
    shown, settings, fingerprint = record.shown[name], record.stages[name].settings, record.fingerprint[name]
    keys = schema_of(shown.keys)
    named = next((each for each in shown.order if each not in keys.names), None)
    window = _window(named, settings, fingerprint)
    # The window is not a column of the rows: results find the one by which rows are grouped.
    rows = [each for each in schema_of(shown.rows) if each.name != named]
    names = [each.name for each in rows]
    shape = no_rows(session, StructType([*rows, *(each for each in keys if each.name not in names)]))
    feed = Feed(Transformations(shape, shape))
    columns = [
        F.col(quoted(each.name))
        if shape.schema[each.name].dataType == each.dataType
        else F.lit(None).cast(each.dataType)
        for each in keys
    ]
    each_key = zip(keys, columns, strict=True)
    grouping = Grouping(
        window, tuple(Key(field.name, column, field.dataType, {}) for field, column in each_key), tuple(shown.order)
    )
    kind = RollingAggregation if fingerprint.get("results") == "rolling" else WindowedAggregation
    why = next((f"{result!r} has no words in SQL" for result, text in shown.results if not text), None)
    why = why or _missing([text for _, text in shown.results], session)
    if why is None:
        try:
            found = kind(feed, grouping, *_resolved(feed, grouping, columns, shown))
            is_same = _said(found.fingerprint, feed.shape, named) == _said(fingerprint, feed.shape, named)
            if is_same and _unsaid_of(found, name, record).items() <= record.unsaid.items():
                return found
            why = f"they would be {found.fingerprint['aggregates']}, and are {fingerprint['aggregates']}"
        except (PySparkException, SparkjetError, ValueError, TypeError) as error:
            # Also for an own aggregate whose text is not how it was called.
            why = str(error)
    logger.warning("%s: its results are not shown, only keys and windows: %s", name, why.strip().partition("\n")[0])
    return kind(feed, grouping, (), ())


def _window(name: str | None, settings: StageSettings, fingerprint: Mapping[str, Any]) -> Window | SessionWindow | None:
    if name is None:
        return None
    if isinstance(settings, SessionSettings):
        # Stored sessions have their ends: the gaps of rows are no longer needed.
        return SessionWindow(TIME, settings.gap or 1, settings.max_duration, name)
    if isinstance(settings, SlidingSettings):
        return Window(TIME, WindowGrid(settings.size, settings.step, settings.offset), name)
    return Window(TIME, WindowGrid(*fingerprint["window"]), name)


def _missing(texts: Sequence[str], session: SparkSession) -> str | None:
    """An error about a function that some texts call and this session does not have; None if it has them all."""
    for text in texts:
        try:
            called = [function_name(part) for part in parts_of(expression_of(F.expr(text), session))]
        except PySparkException as error:
            return str(error)
        for name in called:
            # Analysis would also find it, but Spark would log that as an error.
            known = name is None or not name.isidentifier() or name in functions.__all__
            if not known and not session.catalog.functionExists(str(name)):
                return f"there is no function {name} here"
    return None


def _resolved(
    feed: Feed, grouping: Grouping, keys: Sequence[Column], shown: Shown
) -> tuple[tuple[ResolvedAggregate, ...], tuple[ResultColumn, ...]]:
    rows, window = feed.shape, None if grouping.window is None else grouping.window.name
    inputs = Inputs(rows.drop(*HIDDEN[1:]), F.col(TIME))
    expressions = [
        _column(_unqualified(text, rows, window), rows.sparkSession).alias(name) for name, text in shown.results
    ]
    return resolved_aggregates(expressions, inputs, keys, group_window(grouping))


def _column(expression: Any, session: SparkSession) -> Column:
    """An expression as a Column, which may be one of sparkjet's aggregates."""
    name = function_name(expression)
    if name not in functions.__all__:
        return column_of(expression, session)
    arguments = [
        float(str(each.value())) if kind_of(each) == "Literal" else column_of(each, session)
        for each in children(expression)
    ]
    whole = [int(each) if isinstance(each, float) and each.is_integer() else each for each in arguments]
    own: Column = getattr(functions, name)(*whole)
    return own


def _said(fingerprint: Mapping[str, Any], rows: DataFrame, window: str | None) -> tuple[object, ...]:
    """A fingerprint's description of an aggregation, whatever the names of its rows."""
    texts = [str(_unqualified(text, rows, window).sql()) for text in fingerprint["aggregates"]]
    return fingerprint["keys"], texts, fingerprint["accumulators"]


def _unsaid_of(found: Aggregation, name: str, record: Record) -> dict[str, Any]:
    """The details that the texts of an aggregation leave out, by the names in a record, as far as the record has it."""
    texts = record.fingerprint[name]["aggregates"]
    said = {
        f"{name} aggregate {number}, {text}, {what}": value
        for number, (text, each) in enumerate(zip(texts, found.aggregates, strict=True), 1)
        for what, value in each.unsaid.items()
    }
    return {what: value for what, value in said.items() if what in record.unsaid}


def _unqualified(text: str, rows: DataFrame, window: str | None) -> Any:
    """SQL over some rows as an expression; table names are omitted, as the rows here have none."""
    session = rows.sparkSession
    known = {*rows.columns, window}

    def own(part: Any) -> Any:
        if kind_of(part) != "UnresolvedAttribute":
            return None
        names = [str(each) for each in listed(part.nameParts())]
        first = next((number for number, name in enumerate(names) if name in known), 0)
        return expression_of(F.col(".".join(map(quoted, names[first:]))), session) if first else None

    return rebuilt(expression_of(F.expr(text), session), session, own)
