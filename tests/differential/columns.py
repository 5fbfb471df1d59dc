"""Aggregates and steps without state that fit the columns there are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random

from tests.differential.cases import Part, Step, quoted
from tests.differential.values import TYPE, TYPES

Columns = Mapping[str, str | None]
"""Names and types; None where no later step may use the column."""

_OF = {
    "count": ("count({c})", "", "bigint"),
    "count_distinct": ("count(DISTINCT {c})", "key", "bigint"),
    "max": ("max({c})", "order", "same"),
    "min": ("min({c})", "order", "same"),
    "max_by": ("max_by({c}, struct({n}, {c}))", "order", "same"),
    "min_by": ("min_by({c}, struct({n}, {c}))", "order", "same"),
    "sum": ("sum({c})", "exact", None),
    "try_sum": ("try_sum({c})", "exact", None),
    "avg": ("avg({c})", "exact", None),
    "try_avg": ("try_avg({c})", "number", None),
    "sum_float": ("sum(CAST({c} AS DOUBLE))", "small", "double"),
    "sum_distinct": ("sum(DISTINCT {c})", "exact", None),
    "bit_and": ("bit_and({c})", "integral", None),
    "bit_or": ("bit_or({c})", "integral", None),
    "bit_xor": ("bit_xor({c})", "integral", None),
    "bool_and": ("bool_and({c})", "boolean", "boolean"),
    "every": ("every({c})", "boolean", "boolean"),
    "bool_or": ("bool_or({c})", "boolean", "boolean"),
    "some": ("some({c})", "boolean", "boolean"),
    "count_if": ("count_if({n} > 2)", "", "bigint"),
    "collect_list": ("sort_array(collect_list({c}))", "order", None),
    "array_agg": ("sort_array(array_agg({c}))", "order", None),
    "collect_set": ("sort_array(collect_set({c}))", "key", None),
    "mode": ("mode({c}, true)", "order", "same"),
    "median": ("median({c})", "number", None),
    "percentile": ("percentile({c}, array(0.25, 0.9))", "small", None),
    "percentile_cont": ("percentile_cont(0.3) WITHIN GROUP (ORDER BY {c} DESC)", "small", None),
    "percentile_disc": ("percentile_disc(0.3) WITHIN GROUP (ORDER BY {c})", "small", None),
    "stddev": ("stddev({c})", "small", None),
    "stddev_pop": ("stddev_pop({c})", "small", None),
    "variance": ("variance({c})", "small", None),
    "var_pop": ("var_pop({c})", "small", None),
    "skewness": ("skewness({c})", "small", None),
    "kurtosis": ("kurtosis({c})", "small", None),
    "corr": ("corr({c}, abs({c} - 1))", "small", None),
    "covar_pop": ("covar_pop({c}, abs({c} - 1))", "small", None),
    "covar_samp": ("covar_samp({c}, abs({c} - 1))", "small", None),
    "regr_count": ("regr_count({c}, abs({c} - 1))", "small", "bigint"),
    "regr_avgx": ("regr_avgx({c}, abs({c} - 1))", "small", None),
    "regr_avgy": ("regr_avgy({c}, abs({c} - 1))", "small", None),
    "regr_slope": ("regr_slope({c}, abs({c} - 1))", "small", None),
    "regr_intercept": ("regr_intercept({c}, abs({c} - 1))", "small", None),
    "regr_r2": ("regr_r2({c}, abs({c} - 1))", "small", None),
    "regr_sxx": ("regr_sxx({c}, abs({c} - 1))", "small", None),
    "regr_sxy": ("regr_sxy({c}, abs({c} - 1))", "small", None),
    "regr_syy": ("regr_syy({c}, abs({c} - 1))", "small", None),
    "product": ("product({c})", "small", None),
    "listagg": ("listagg({c}, '|')", "text", None),
    "string_agg": ("string_agg({c}, '|')", "text", None),
    "listagg_distinct": ("listagg(DISTINCT {c}, '|')", "text", None),
    "approx_count_distinct": ("approx_count_distinct({c})", "key", "bigint"),
    "percentile_approx": ("percentile_approx({c}, 0.5)", "small", None),
    "computed": ("count(*) * 2 + coalesce(max({n}), 0)", "", "bigint"),
    "count_filtered": ("count(*) FILTER (WHERE {n} > 1)", "", "bigint"),
    "min_filtered": ("min({c}) FILTER (WHERE {n} > 1)", "order", "same"),
    "grouped_value": ("CASE WHEN count(*) > 1 THEN max({c}) END", "order", "same"),
    "first": ("first({c})", "order", "same"),
    "last": ("last({c})", "order", "same"),
    "any_value": ("any_value({c})", "order", "same"),
    "first_known": ("first({c}, true)", "order", "same"),
    "last_known": ("last({c}, true)", "order", "same"),
}
"""Each function: its SQL, what the column must be, and the type of the result."""

_LISTED = (
    "CASE WHEN count({c}) > 0 THEN array_join(transform(sort_array("
    "collect_list(struct({t}, {c})) FILTER (WHERE {c} IS NOT NULL)), x -> x.{c}), '|') END"
)
BY_TIME = {
    "listagg": _LISTED,
    "string_agg": _LISTED,
    "first": "min_by({c}, struct({t}, {c}))",
    "any_value": "min_by({c}, struct({t}, {c}))",
    "last": "max_by({c}, struct({t}, {c}))",
    "first_known": "min_by({c}, struct({t}, {c})) FILTER (WHERE {c} IS NOT NULL)",
    "last_known": "max_by({c}, struct({t}, {c})) FILTER (WHERE {c} IS NOT NULL)",
}
"""Aggregates that go by event time, where Spark's batch goes by the order of arrival."""

SORTED = {"listagg_distinct": "listagg(DISTINCT {c}, '|') WITHIN GROUP (ORDER BY {c})"}
"""Aggregates whose values sparkjet sorts."""

FUNCTIONS = tuple(_OF)
FAMILIES = (
    ("count", "count_if", "count_filtered", "sum", "sum_float", "avg"),
    ("count", "max", "min", "min_filtered", "first", "last", "max_by", "bool_or", "bit_and"),
)
"""Functions that sliding windows add and subtract, and those that they combine: one other decides for all."""
TWINS = ("computed", "count_filtered", "min", "min_filtered")
"""Functions that differ by their filter alone."""
_OFTEN = (*TYPES, *(each for each in TYPES if each.alike))
"""Values that are equal though they are not the same are worth more trials."""
_RAISING = " - 1"
"""Makes an argument one that may raise, as far as Spark knows."""


def traits(column: str, ddl: str | None) -> frozenset[str]:
    """The traits of a column: what can be done with it."""
    if column.startswith("n"):
        return frozenset({"key", "order", "number", "exact", "integral", "small"})
    if ddl in TYPE:
        return TYPE[ddl].traits
    return frozenset()


def aggregates(
    rng: Random, columns: Columns, time: str | None, *, calm: bool = False, only: Sequence[str] = ()
) -> tuple[Part, ...]:
    """One to five aggregates.

    Args:
        rng: What is random.
        columns: The columns.
        time: The event time.
        calm: Whether their arguments must be known not to raise.
        only: The functions to choose from; by default all.
    """
    found: list[Part] = []
    number = next((name for name in columns if name.startswith("n")), None)
    wanted = rng.choice([1, 1, 2, 3, 5])
    while len(found) < wanted:
        # Nearly all functions take a number, and most of the others a text.
        few = sorted(_of_few(columns)) if rng.random() < 0.3 else ()
        name = rng.choice(only or few or FUNCTIONS)
        sql, needed, result = _OF[name]
        fitting = [c for c, ddl in columns.items() if ddl and (not needed or needed in traits(c, ddl))]
        if not fitting or ("{n}" in sql and number is None) or (name in BY_TIME and time is None):
            continue
        if calm and _RAISING in sql:
            continue
        column = rng.choice(fitting)
        names = {"c": quoted(column), "n": number, "t": time}
        stream = sql.format(**names)
        batch = {**BY_TIME, **SORTED}.get(name, sql).format(**names)
        kind = columns[column] if result == "same" else result
        texts = [f'F.product("{column}")' if name == "product" else f'F.expr("{text}")' for text in (stream, batch)]
        found.append(Part(f"{name}{len(found)}", *texts, kind))
    return tuple(found)


def _of_few(columns: Columns) -> set[str]:
    """Functions of what not all columns are."""
    found = {trait for name, ddl in columns.items() if ddl for trait in traits(name, ddl)} & {"boolean", "text"}
    return {name for name, (_, needed, _) in _OF.items() if needed in found}


def keys(rng: Random, columns: Columns, most: int = 2) -> tuple[str, ...]:
    """Columns to group by."""
    fitting = [name for name, ddl in columns.items() if "key" in traits(name, ddl)]
    return tuple(rng.sample(fitting, min(len(fitting), rng.randint(0, most))))


def plain_step(rng: Random, columns: dict[str, str | None], *, before: bool = False, calm: bool = False) -> Step | None:
    """A filter, a projection or a function in Python; the columns follow it. None where it does not fit them.

    Args:
        rng: What is random.
        columns: The columns, which are changed.
        before: Whether it stands before the watermark, where only Spark knows when a table is read.
        calm: Whether it must be one that may stand after ``divert``.
    """
    if not calm and "n" in columns and "label" not in columns and rng.random() < 0.2:
        return _table(rng, columns, before=before)
    number = next((name for name in columns if name.startswith("n")), None)
    values = [name for name, ddl in columns.items() if ddl and not name.startswith(("ts", "sub", "n", "label"))]
    on_numbers = [_remainder, _more] if calm else [_remainder, _more, _function, _function, _explode]
    on_values = [_where, _dropna, _drop, _rename]
    made = rng.choice(on_numbers + on_values)
    name = number if made in on_numbers else rng.choice(values) if values else None
    return None if name is None else made(rng, columns, name)


def _where(rng: Random, columns: dict[str, str | None], value: str) -> Step:
    del rng, columns
    return Step("where", f'.where("{quoted(value)} IS NOT NULL")')


def _remainder(rng: Random, columns: dict[str, str | None], number: str) -> Step:
    del rng, columns
    return Step("where", f'.where("{number} % 3 <> 1 OR {number} IS NULL")')


def _more(rng: Random, columns: dict[str, str | None], number: str) -> Step:
    del rng
    columns["n_more"] = "bigint"
    return Step("withColumn", f'.withColumn("n_more", F.expr("{number} * 2 - 1"))')


def _function(rng: Random, columns: dict[str, str | None], number: str) -> Step:
    name, function, kind = rng.choice([("n_udf", "plus_one", "udf"), ("n_arrow", "doubled", "pandas")])
    columns[name] = "bigint"
    return Step(f"{kind} function", f'.withColumn("{name}", {function}("{number}"))')


def _explode(rng: Random, columns: dict[str, str | None], number: str) -> Step | None:
    del rng
    if "n_each" in columns:
        return None
    columns["n_each"] = "bigint"
    series = f'F.expr("sequence(1, abs({number}) % 3 + 1)")'
    return Step("explode", f'.select("*", F.explode({series}).alias("n_each"))')


def _table(rng: Random, columns: dict[str, str | None], *, before: bool) -> Step:
    how = rng.choice(["inner", "left", "left_semi", "left_anti"])
    if rng.random() < 0.3:
        columns |= {"label": "string"} if how in ("inner", "left") else {}
        text = f""".join(names(), F.expr("n = m AND name <> 'ZERO'"), "{how}")"""
        after = '.withColumnRenamed("name", "label").drop("m")' if how in ("inner", "left") else ""
        return Step(f"table {how}", text + after)
    columns |= {"label": "string"} if how in ("inner", "left") else {}
    text = f'.join({{}}, "n", "{how}")'
    read = "labels()" if before else rng.choice(["labels()", "sj.read_once(labels())", "sj.read_every_epoch(labels)"])
    return Step(f"table {how}", text.format(read), text.format("labels()"))


def _dropna(rng: Random, columns: dict[str, str | None], value: str) -> Step:
    del rng, columns
    return Step("dropna", f'.dropna(subset=["{quoted(value)}"])')


def _drop(rng: Random, columns: dict[str, str | None], value: str) -> Step:
    del rng, columns[value]
    return Step("drop", f'.drop("{value}")')


def _rename(rng: Random, columns: dict[str, str | None], value: str) -> Step:
    del rng
    columns[f"{value}_new"] = columns.pop(value)
    return Step("rename", f'.withColumnRenamed("{value}", "{value}_new")')


def some_type(rng: Random) -> str:
    """A type of a column."""
    return rng.choice(_OFTEN).ddl
