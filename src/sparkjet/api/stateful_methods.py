"""User-defined state: the methods of Spark's ``GroupedData`` for it, on streams grouped only by keys."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from pyspark.sql import GroupedData
from pyspark.sql import functions as F
from pyspark.sql.types import StructType, TimestampType

from sparkjet.catalyst.columns import quoted
from sparkjet.catalyst.logical_plans import attribute_ids
from sparkjet.errors import AnalysisError, nearest, refuse_connect
from sparkjet.plan.aggregation import key_name
from sparkjet.plan.event_time import EventTime
from sparkjet.plan.stage import Feed
from sparkjet.plan.stateful_function import StatefulFunction
from sparkjet.plan.transformations import Transformations
from sparkjet.stateful.functions.user_function import (
    TimeDomain,
    UserFunction,
    group_state_function,
    processor_function,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor

    from sparkjet.api.stream import Stream
    from sparkjet.plan.grouping import Key

OUTPUT_MODES = ("append", "update")


class StatefulMethods:
    """Methods of a stream that is grouped by keys."""

    _feed: Feed
    _stream: type[Stream]
    """Creates the results; set by the grouped stream, which is a stream itself."""

    @property
    @abstractmethod
    def _keys(self) -> tuple[Key, ...]:
        """The keys by which the stream is grouped."""

    def applyInPandasWithState(
        self,
        func: Callable[..., Iterable[Any]],
        outputStructType: StructType | str,
        stateStructType: StructType | str,
        outputMode: str,
        timeoutConf: str,
    ) -> Stream:
        """Call a function with the rows and the state of each key, as ``GroupedData.applyInPandasWithState``.

        The function is called in each epoch for the keys that have rows, and then for those whose timeout has passed.
        With rows, it sees the watermark by which the epoch judged them; in a timeout, the watermark after them. So a
        timeout fires in the epoch in which the watermark passes it, whereas Spark's fires in the next one. A timeout in
        processing time fires by itself, even while no rows arrive. Its state is part of the record, typed as declared.

        Args:
            func: Takes ``(key, Iterator[pandas.DataFrame], GroupState)``, returns an iterator of DataFrames.
            outputStructType: Schema of the result.
            stateStructType: Schema of the state, which is a tuple.
            outputMode: ``append`` or ``update``; both mean the same here: the rows that the function returns are final.
            timeoutConf: One of ``pyspark.sql.streaming.state.GroupStateTimeout``. With ``EventTimeTimeout``, late rows
                are dropped and counted; otherwise the function gets them too.

        Raises:
            AnalysisError: A wrong schema, mode or timeout, or a timeout in event time without a watermark.

        >>> import pandas as pd
        >>> import sparkjet as sj
        >>> from pyspark.sql.streaming.state import GroupStateTimeout
        >>> def count(key, frames, state):
        ...     total = (state.get[0] if state.exists else 0) + sum(len(frame) for frame in frames)
        ...     state.update((total,))
        ...     yield pd.DataFrame({"user": [key[0]], "clicks": [total]})
        >>> clicks = sj.stream(spark.createDataFrame([("ada",), ("ada",), ("bob",)], "user string"))
        >>> clicks.groupBy("user").applyInPandasWithState(
        ...     count, "user string, clicks long", "clicks long", "update", GroupStateTimeout.NoTimeout
        ... ).toDF().orderBy("user").collect()
        [Row(user='ada', clicks=2), Row(user='bob', clicks=1)]
        """
        _check("applyInPandasWithState", outputMode)
        session = self._feed.transformations.shape.sparkSession
        function = group_state_function(
            func, outputStructType, stateStructType, timeoutConf, session, watermark=bool(self._feed.inputs)
        )
        return self._returned("applyInPandasWithState", function, "")

    def transformWithStateInPandas(
        self,
        statefulProcessor: StatefulProcessor,
        outputStructType: StructType | str,
        outputMode: str,
        timeMode: str,
        initialState: GroupedData | None = None,
        eventTimeColumnName: str = "",
    ) -> Stream:
        """Run a processor over the rows and the state of each key, as ``GroupedData.transformWithStateInPandas``.

        ``handleInputRows`` sees the watermark by which the epoch judged its rows, ``handleExpiredTimer`` the one after
        them: a timer fires in the epoch in which the watermark, or the clock, reaches it. State variables, timers and
        TTL are part of the record, typed as declared.

        Args:
            statefulProcessor: A ``pyspark.sql.streaming.StatefulProcessor``.
            outputStructType: Schema of the result.
            outputMode: ``append`` or ``update``; both mean the same here: the rows that the processor returns are
            final.
            timeMode: ``None``, ``ProcessingTime`` or ``EventTime``: the time of timers. With ``EventTime``, late rows
                are dropped and counted; otherwise the processor gets them too.
            initialState: A batch DataFrame, grouped by the same keys. ``handleInitialState`` gets its rows in the first
                epoch of the query, before any others.
            eventTimeColumnName: A timestamp column of the result that is its event time, so that windows can follow.

        Raises:
            AnalysisError: A wrong schema or mode, a processor whose ``init`` fails, or event time without a watermark.
        """
        method = "transformWithStateInPandas"
        return self._transformed(
            method, statefulProcessor, outputStructType, outputMode, timeMode, initialState, eventTimeColumnName
        )

    def transformWithState(
        self,
        statefulProcessor: StatefulProcessor,
        outputStructType: StructType | str,
        outputMode: str,
        timeMode: str,
        initialState: GroupedData | None = None,
        eventTimeColumnName: str = "",
    ) -> Stream:
        """The same with Rows instead of DataFrames, as ``GroupedData.transformWithState``.

        See :meth:`transformWithStateInPandas`.
        """
        return self._transformed(
            "transformWithState",
            statefulProcessor,
            outputStructType,
            outputMode,
            timeMode,
            initialState,
            eventTimeColumnName,
        )

    def _transformed(
        self,
        method: str,
        processor: StatefulProcessor,
        output: StructType | str,
        output_mode: str,
        time_mode: str,
        initial: GroupedData | None,
        event_time: str,
    ) -> Stream:
        _check(method, output_mode)
        session = self._feed.transformations.shape.sparkSession
        pandas = method == "transformWithStateInPandas"
        first = None if initial is None else _initial_rows(method, initial, self._keys)
        rows = None if first is None else first.schema["row"].dataType
        assert rows is None or isinstance(rows, StructType)  # noqa: S101 - a struct of the columns
        function = processor_function(processor, output, time_mode, session, pandas=pandas, initial=rows)
        return self._returned(method, function, event_time, first)

    def _returned(
        self, method: str, function: UserFunction, event_time: str, initial: DataFrame | None = None
    ) -> Stream:
        if not self._feed.inputs and (function.domain is TimeDomain.WATERMARK or event_time):
            message = (
                f'{method}: event time needs withWatermark("<event time>", "<lag>") before groupBy(…), and is lost '
                "unless a join bounds it in both directions."
            )
            raise AnalysisError(message)
        if event_time:
            _check_event_time(method, event_time, function.output)
        stage = StatefulFunction(self._feed, self._keys, function, event_time or None, initial)
        shape = stage.shape()
        times = []
        if event_time:
            ids, remedy = attribute_ids(shape, event_time), "Give the new column another name."
            times.append(EventTime(event_time, ids, method, remedy))
        # Without an event time, the rows belong to no input: no row is late or lacks its time.
        inputs = self._feed.inputs if event_time else ()
        return self._stream(Feed(Transformations(shape, shape), inputs, stage), *times)


def _check(method: str, output_mode: str) -> None:
    if str(output_mode).lower() not in OUTPUT_MODES:
        raise AnalysisError(f"{method}: outputMode={output_mode!r} must be one of {', '.join(OUTPUT_MODES)}.")
    for package in ("pyarrow", "pandas"):
        if find_spec(package) is None:
            raise AnalysisError(f"{method}: rows reach Python through {package}. Install it: pip install {package}.")


def _initial_rows(method: str, grouped: GroupedData, keys: tuple[Key, ...]) -> DataFrame:
    """Initial state as rows ``(keys…, row)``; refused unless it is grouped by the same keys."""
    given: object = grouped
    refuse_connect(method, given)
    if not isinstance(given, GroupedData):
        raise AnalysisError(f"{method}: initialState is {type(given).__name__}; give a DataFrame.groupBy(…).")
    rows = given._df  # noqa: SLF001 - Spark's own operator takes it from there
    # The keys are not accessible otherwise: they are the columns before those of an aggregate.
    found = given.agg(F.collect_list(F.struct(*map(quoted, rows.columns))).alias("rows"))
    types = [field.dataType for field in found.schema.fields[:-1]]
    if types != [key.type for key in keys]:
        shown = [", ".join(each.simpleString() for each in side) for side in (types, [key.type for key in keys])]
        message = (
            f"{method}: initialState is grouped by {shown[0]}, the stream by {shown[1]}. Group both by the same types."
        )
        raise AnalysisError(message)
    names = [key_name(number) for number in range(len(keys))]
    return found.toDF(*names, "rows").select(*names, F.explode("rows").alias("row"))


def _check_event_time(method: str, name: str, output: StructType) -> None:
    if name not in output.names:
        raise AnalysisError(f"{method}: eventTimeColumnName={name!r} is not a column; {nearest(name, output.names)}")
    found = output[name].dataType
    if not isinstance(found, TimestampType):
        raise AnalysisError(f"{method}: eventTimeColumnName={name!r} is of type {found.simpleString()}, not timestamp.")
