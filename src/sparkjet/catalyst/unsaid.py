"""What SQL leaves out: expressions that are written alike and compute different values, told apart."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

from py4j.java_gateway import JavaObject, is_instance_of

from sparkjet.catalyst.logical_plans import attribute_id, kind_of, listed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Unsaid: TypeAlias = dict[str, Any]
"""Values by what they are of, as JSON has them."""

_WHOLE = ("AttributeReference", "Literal")
"""Expressions that SQL writes whole."""
_NOT_TOLD = frozenset(
    {
        # Of the session, which may be set otherwise from one run to the next.
        *("ansiEnabled", "evalMode", "failOnError", "nullOnOverflow", "timeZoneId", "zoneId"),
        *("legacySizeOfNull", "variantAllowDuplicateKeys"),
        # Follow from the columns and the rest of the expression.
        *("containsNull", "nullable", "numFields", "ordinal", "propagateNull", "returnNullable"),
        # What SQL does say, and what Spark computes the expression by.
        *("Alias.name", "Cast.dataType", "replacement"),
    }
)
"""Fields that results do not depend on, or that SQL says; of all classes, or of one."""
_VARIABLE = "NamedLambdaVariable"
_EXPRESSION = "org.apache.spark.sql.catalyst.expressions.Expression"
_DATA_TYPE = "org.apache.spark.sql.types.DataType"


def unsaid(expressions: Iterable[Any], session: SparkSession) -> Unsaid:
    """The values of fields that are no expressions, such as the schema of ``from_json``, by class and field.

    Of a field there are as many values as expressions of its class, from the outermost inwards. Variables of lambdas
    are numbered as they come, since SQL writes all of them alike. Lines of Spark differ in the fields that a class has:
    what is in both of two answers can be compared.

    Args:
        expressions: Analyzed expressions.
        session: Whose JVM they are in.
    """
    found: Unsaid = {}
    variables: dict[int, int] = {}
    for expression in expressions:
        for field, value in _fields(expression, session, variables):
            found.setdefault(field, []).append(value)
    return found


def _fields(expression: Any, session: SparkSession, variables: dict[int, int]) -> Iterator[tuple[str, Any]]:
    kind = kind_of(expression)
    if kind == _VARIABLE:
        yield kind, variables.setdefault(attribute_id(expression), len(variables))
        return
    if kind in _WHOLE:
        return
    # By what it was made of: the children of a function that stands for others are those others.
    for place in range(expression.productArity()):
        name = str(expression.productElementName(place))
        field = f"{kind}.{name}"
        if name in _NOT_TOLD or field in _NOT_TOLD:
            continue
        for value in _values(expression.productElement(place), session):
            if _is(value, _EXPRESSION, session):
                yield from _fields(value, session, variables)
            elif _is(value, _DATA_TYPE, session):
                yield field, str(value.catalogString())
            elif value is None or isinstance(value, (bool, int, float, str, dict)):
                yield field, value


def _values(value: Any, session: SparkSession) -> Iterator[Any]:
    """A value of a field: those of a sequence one by one, None of an unset option, a map as a dict of texts."""
    if _is(value, "scala.Option", session):
        yield from _values(value.get() if value.isDefined() else None, session)
    elif _is(value, "scala.collection.Seq", session):
        for each in listed(value):
            yield from _values(each, session)
    elif _is(value, "scala.collection.Map", session):
        yield {str(pair.productElement(0)): str(pair.productElement(1)) for pair in listed(value.toSeq())}
    else:
        yield value


def _is(value: Any, name: str, session: SparkSession) -> bool:
    return isinstance(value, JavaObject) and bool(is_instance_of(session.sparkContext._gateway, value, name))
