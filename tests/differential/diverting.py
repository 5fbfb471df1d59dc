"""Steps that raise for some rows, after ``divert``; of which rows they do is said in SQL that does not raise."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from tests.differential.cases import Diverting, Try, quoted
from tests.differential.values import TYPE

Columns = dict[str, str | None]


@dataclass(frozen=True)
class _Kind:
    """An expression, of which rows of a column it raises, and the column that it makes; a filter makes none."""

    text: str
    fails: str
    column: str | None = None
    of: str = "n"
    """``n`` for a small number, ``text`` for any text."""


KINDS = (
    _Kind("100 div {c}", "{c} <=> 0", "n_div"),
    _Kind("CAST(CAST({c} * 20 AS TINYINT) AS BIGINT)", "coalesce({c} * 20 > 127, false)", "n_cast"),
    _Kind(
        "CAST(element_at(array(5, 6, 7), CAST({c} AS INT)) AS BIGINT)",
        "coalesce({c} = 0 OR abs({c}) > 3, false)",
        "n_at",
    ),
    _Kind("100 div {c} > 20", "{c} <=> 0"),
    _Kind("CASE WHEN {c} > 8 THEN raise_error('much') ELSE {c} < 6 END", "coalesce({c} > 8, false)"),
    _Kind("CAST({c} AS INT) < 0", "{c} IS NOT NULL AND try_cast({c} AS INT) IS NULL", of="text"),
    _Kind("CAST(CAST({c} AS INT) AS BIGINT)", "{c} IS NOT NULL AND try_cast({c} AS INT) IS NULL", "n_text", of="text"),
)


def diverting(rng: Random, columns: Columns, *, timed: bool, filters: bool) -> Diverting:
    """One to three steps that may raise; the columns follow them.

    Args:
        rng: What is random.
        columns: The columns, which are changed.
        timed: Whether there is a watermark.
        filters: Whether rows may be dropped where they move the watermark.
    """
    early = timed and rng.random() < 0.5
    tries: list[Try] = []
    for _ in range(rng.randint(1, 3)):
        kinds = [kind for kind in KINDS if kind.column not in columns and (kind.column or filters or not early)]
        kind = rng.choice(kinds)
        fitting = [name for name, ddl in columns.items() if _fits(kind, name, ddl)]
        if fitting:
            tries.append(_try(kind, quoted(rng.choice(fitting))))
            if kind.column:
                columns[kind.column] = "bigint"
    return Diverting(tuple(tries), early=early)


def _fits(kind: _Kind, name: str, ddl: str | None) -> bool:
    if kind.of == "n":
        return name == "n"
    return ddl in TYPE and name not in ("sub", "label") and "text" in TYPE[ddl].traits


def _try(kind: _Kind, column: str) -> Try:
    text, fails = kind.text.format(c=column), kind.fails.format(c=column)
    # Spark may move what is computed in front of a filter.
    calm = f"CASE WHEN NOT ({fails}) THEN {text} END"
    if kind.column is None:
        return Try(fails, "where", _call("where", text), _call("where", calm))
    name = kind.column
    return Try(fails, f"withColumn {name}", _call("withColumn", text, name), _call("withColumn", calm, name))


def _call(method: str, text: str, name: str | None = None) -> str:
    before = "" if name is None else f'"{name}", '
    return f'.{method}({before}F.expr("{text.replace(chr(34), chr(92) + chr(34))}"))'
