"""Catalyst expressions: Columns as the JVM has them, to be taken apart, rebuilt and turned back into Columns."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql import Column
from pyspark.sql import functions as F

from sparkjet.catalyst.columns import quoted
from sparkjet.catalyst.logical_plans import attribute_id, children, kind_of, listed
from sparkjet.errors import refuse_connect
from sparkjet.java import as_seq, java_class, static_method

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_WITH_PATTERNS = frozenset({"LikeAll", "LikeAny", "NotLikeAll", "NotLikeAny"})


def expression_of(column: Column, session: SparkSession) -> Any:
    """The expression of a Column, before any analysis."""
    refuse_connect("sparkjet", column)
    return session._jsparkSession.expression(column._jc)


def column_of(expression: Any, session: SparkSession) -> Column:
    """An expression as a Column."""
    return Column(static_method(session, "org.apache.spark.sql.classic.ExpressionUtils.column")(expression))


def function_name(expression: Any) -> str | None:
    """Name of the function that an expression calls before analysis, None if it does not call one."""
    return str(expression.nameParts().last()).lower() if kind_of(expression) == "UnresolvedFunction" else None


def without_alias(expression: Any) -> Any:
    """The expression without the name it is given."""
    while kind_of(expression) == "Alias":
        expression = expression.child()
    return expression


def has_columns(rows: DataFrame, column: Column) -> bool:
    """Whether rows have all columns that a Column names; does not try to analyze it, as Spark logs a failed attempt."""
    session = rows.sparkSession
    plan = rows._jdf.queryExecution().analyzed()
    resolver = session._jsparkSession.sessionState().conf().resolver()
    return all(
        plan.resolve(part.nameParts(), resolver).isDefined()
        for part in parts_of(expression_of(column, session))
        if kind_of(part) == "UnresolvedAttribute"
    )


def parts_of(expression: Any) -> Iterator[Any]:
    """An expression and all its parts."""
    yield expression
    for child in children(expression):
        yield from parts_of(child)


def rebuilt(expression: Any, session: SparkSession, replacement: Callable[[Any], Any]) -> Any:
    """The expression with some of its parts replaced, from the top down."""
    found = replacement(expression)
    if found is not None:
        return found
    parts = children(expression)
    new = [rebuilt(part, session, replacement) for part in parts]
    if all(one is other for one, other in zip(parts, new, strict=True)):
        return expression
    return expression.withNewChildren(as_seq(session, new))


def inlined(expression: Any, session: SparkSession) -> Any:
    """The expression without common expressions, into which BETWEEN and NULLIF turn what they use twice.

    Once something in one has been replaced, Spark cannot analyze it again.
    """

    def without(part: Any, defined: Mapping[str, Any]) -> Any:
        def replaced(each: Any) -> Any:
            if kind_of(each) == "With":
                own = {str(one.id().toString()): without(one.child(), defined) for one in listed(each.defs())}
                return without(each.child(), {**defined, **own})
            return defined.get(str(each.id().toString())) if kind_of(each) == "CommonExpressionRef" else None

        return rebuilt(part, session, replaced)

    return without(expression, {})


def by_name(expression: Any, session: SparkSession, names: Mapping[int, str]) -> Any:
    """An analyzed expression whose columns are resolved by name again.

    Analysis binds a column to one DataFrame, and every batch is a different one.
    """

    def named(part: Any) -> Any:
        if kind_of(part) == "AttributeReference" and attribute_id(part) in names:
            return expression_of(F.col(quoted(names[attribute_id(part)])), session)
        return None

    return rebuilt(expression, session, named)


def label(column: Column | str) -> str:
    """A column as spelled in names and messages.

    >>> label("px")
    'px'
    """
    refuse_connect("sparkjet", column)
    return column if isinstance(column, str) else re.sub(r"^Column<'(.*)'>$", r"\1", str(column), flags=re.DOTALL)


def redacted(column: Column, session: SparkSession) -> str:
    """A column as spelled where others can read it: without the text of constants, which may be keys or passwords.

    >>> redacted(F.expr("concat(aes_decrypt(body, 'key'), name)"), spark)
    "concat(aes_decrypt(body, '…'), name)"
    """

    def shown(part: Any) -> Any:
        if kind_of(part) == "Literal" and kind_of(part.dataType()) in {"StringType", "StringType$", "BinaryType$"}:
            return expression_of(F.lit("…"), session)
        if kind_of(part) in _WITH_PATTERNS:
            # Its patterns are not expressions.
            made = java_class(session, f"org.apache.spark.sql.catalyst.expressions.{kind_of(part)}")
            hidden = static_method(session, "org.apache.spark.unsafe.types.UTF8String.fromString")("…")
            return made(rebuilt(part.child(), session, shown), as_seq(session, [hidden]))
        if kind_of(part) == "PythonUDF":
            # Spark shows a column among its arguments with everything in it.
            arguments = [column_of(rebuilt(each, session, shown), session) for each in children(part)]
            return expression_of(F.call_function(quoted(str(part.name())), *arguments), session)
        return None

    expression = expression_of(column, session)
    found = rebuilt(expression, session, shown)
    return label(column) if found is expression else label(column_of(found, session))
