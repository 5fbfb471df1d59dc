"""Spark's own aggregate functions in ``agg``: each call becomes the sparkjet aggregate that computes the same."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NoReturn, TypeAlias

from pyspark.sql import functions as F

from sparkjet.aggregates import built_in, listings, modes
from sparkjet.aggregates.advice import nearest_to
from sparkjet.aggregates.operation import Aggregate, AggregateOperation
from sparkjet.errors import AnalysisError
from sparkjet.spark_line import LINE

if TYPE_CHECKING:
    from pyspark.sql import Column

    from sparkjet.aggregates.operation import Inputs
    from sparkjet.catalyst.aggregate_calls import AggregateCall

_Translation: TypeAlias = "Callable[[AggregateCall], Aggregate]"


def aggregate_of(call: AggregateCall) -> Aggregate:
    """The aggregate that computes the same as a call of an aggregate function in a Column; on the driver."""
    if isinstance(call.own, Aggregate):
        return call.own
    translation = (_DISTINCT if call.distinct else _FUNCTIONS).get(call.name)
    if translation is None:
        raise AnalysisError(f"agg: {call.text} cannot be combined from the frames of a window. {nearest_to(call.name)}")
    aggregate = translation(call)
    return replace(aggregate, computes=call.text, unsaid={**aggregate.unsaid, **call.unsaid})


def _taken(call: AggregateCall) -> list[Column]:
    """The arguments, null in rows that the call does not take; for functions that skip nulls."""
    columns = list(call.columns)
    return columns if call.condition is None else [F.when(call.condition, column) for column in columns]


_KEEPING_NULLS = (4, 2)
"""The first Spark line whose collect_list can keep nulls."""


def _of(make: Callable[..., Aggregate], columns: int | None = None) -> _Translation:
    """A function of columns; arguments from number ``columns`` on are constants."""

    def translated(call: AggregateCall) -> Aggregate:
        count = len(call.columns) if columns is None else columns
        return make(*_taken(call)[:count], *map(call.constant, range(count, len(call.columns))))

    return translated


def _by_time(make: Callable[..., Aggregate]) -> _Translation:
    """A function that picks a row, and may skip nulls."""

    def translated(call: AggregateCall) -> Aggregate:
        value, ignorenulls = call.columns[0], call.ignores_nulls
        if call.condition is None or ignorenulls:
            return make(*_taken(call), ignorenulls)
        # In a struct: a null that is taken differs from a row that is not. By position: the names of the flag differ.
        aggregate = make(F.when(call.condition, F.struct(value.alias("value"))), True)
        return replace(_unwrapped(aggregate), unsaid={**aggregate.unsaid, "ignorenulls": False})

    return translated


def _unwrapped(aggregate: Aggregate) -> Aggregate:
    def resolve(inputs: Inputs) -> AggregateOperation:
        operation = aggregate.resolve(inputs)
        return replace(operation, finish=lambda acc: operation.finish(acc)["value"])

    return replace(aggregate, resolve=resolve)


def _count(call: AggregateCall) -> Aggregate:
    return built_in.count() if call.counts_rows else built_in.count(*_taken(call))


def _approx_count_distinct(call: AggregateCall) -> Aggregate:
    return built_in.approx_count_distinct(_taken(call)[0], float(call.function.relativeSD()))


def _collect_list(call: AggregateCall) -> Aggregate:
    if LINE >= _KEEPING_NULLS and not call.function.ignoreNulls():
        _refuse(call, "It keeps nulls: collect_list(struct(column)) does as well.")
    return built_in.collect_list(*_taken(call))


def _listing(make: Callable[..., Aggregate]) -> _Translation:
    def translated(call: AggregateCall) -> Aggregate:
        if call.order:
            keys = [listings.SortKey(*each) for each in call.order]
            value, delimiter = _taken(call)[0], call.constant(1)
            return listings.listed_by(call.text, value, delimiter, keys, distinct=call.distinct)
        value, *others = _taken(call)
        return make(value, *(call.constant(1) for _ in others))

    return translated


def _mode(call: AggregateCall) -> Aggregate:
    order = call.function.reverseOpt()
    # False for ORDER BY … DESC: Spark writes it the other way round, in SQL too.
    return modes.most_frequent(call.text, _taken(call)[0], greatest=order.isDefined() and not order.get())


def _percentile(call: AggregateCall) -> Aggregate:
    value, _, often = _taken(call)
    frequency = call.constant(2) if call.is_constant(2) else often
    return built_in.percentile(value, call.constant(1), frequency)


def _within_group(make: Callable[..., Aggregate]) -> _Translation:
    def translated(call: AggregateCall) -> Aggregate:
        return make(_taken(call)[0], call.constant(1), reverse=bool(call.function.reverse()))

    return translated


def _refuse(call: AggregateCall, why: str) -> NoReturn:
    raise AnalysisError(f"agg: {call.text} is not supported. {why}")


_OF_COLUMNS: Sequence[Callable[..., Aggregate]] = (
    *(built_in.bit_and, built_in.bit_or, built_in.bit_xor),
    *(built_in.bool_and, built_in.bool_or, built_in.count_if, built_in.every, built_in.some),
    *(built_in.corr, built_in.covar_pop, built_in.covar_samp),
    *(built_in.collect_set, built_in.max, built_in.min, built_in.median),
    *(built_in.kurtosis, built_in.skewness, built_in.std, built_in.stddev, built_in.stddev_pop, built_in.stddev_samp),
    *(built_in.var_pop, built_in.var_samp, built_in.variance),
    *(built_in.regr_avgx, built_in.regr_avgy, built_in.regr_count, built_in.regr_intercept),
    *(built_in.regr_r2, built_in.regr_slope, built_in.regr_sxx, built_in.regr_sxy, built_in.regr_syy),
    *(built_in.avg, built_in.product, built_in.sum, built_in.try_avg, built_in.try_sum),
)

_FUNCTIONS: dict[str, _Translation] = {
    **{make.__name__: _of(make) for make in _OF_COLUMNS},
    "any": _of(built_in.some),
    "any_value": _by_time(built_in.any_value),
    "approx_count_distinct": _approx_count_distinct,
    "approx_percentile": _of(built_in.percentile_approx, 1),
    "array_agg": _collect_list,
    "collect_list": _collect_list,
    "count": _count,
    "first": _by_time(built_in.first),
    "first_value": _by_time(built_in.first),
    "histogram_numeric": _of(built_in.histogram_numeric, 1),
    "last": _by_time(built_in.last),
    "last_value": _by_time(built_in.last),
    "listagg": _listing(built_in.listagg),
    "max_by": _of(built_in.max_by, 2),
    "mean": _of(built_in.avg),
    "min_by": _of(built_in.min_by, 2),
    "mode": _mode,
    "percentile": _percentile,
    "percentile_approx": _of(built_in.percentile_approx, 1),
    "percentile_cont": _within_group(built_in.percentile_cont),
    "percentile_disc": _within_group(built_in.percentile_disc),
    "string_agg": _listing(built_in.listagg),
}
"""Translations by the name of Spark's function."""

_WITHOUT_REPETITION = ("any", "bit_and", "bit_or", "bool_and", "bool_or", "collect_set", "every", "max", "min", "some")
"""Functions with the same result whether they take each value once or as often as it occurs."""

_DISTINCT: dict[str, _Translation] = {
    **{name: _FUNCTIONS[name] for name in _WITHOUT_REPETITION},
    "array_agg": _of(built_in.collect_set),
    "avg": _of(built_in.avg_distinct),
    "collect_list": _of(built_in.collect_set),
    "count": _of(built_in.count_distinct),
    "listagg": _listing(built_in.listagg_distinct),
    "mean": _of(built_in.avg_distinct),
    "string_agg": _listing(built_in.listagg_distinct),
    "sum": _of(built_in.sum_distinct),
}
"""The same for calls with DISTINCT."""
