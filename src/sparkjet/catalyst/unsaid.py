"""Details that SQL leaves out: expressions that are written alike and compute different values, told apart."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeAlias

from py4j.java_gateway import JavaObject, is_instance_of

from sparkjet.catalyst.logical_plans import attribute_id, kind_of, listed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Unsaid: TypeAlias = dict[str, Any]
"""Values by what they belong to, as JSON has them."""

_WHOLE = ("AttributeReference", "Literal", "UnresolvedAttribute")
"""Expressions that SQL writes in full."""
_NOT_TOLD = frozenset(
    {
        # Of the session, which may be set otherwise from one run to the next, and drawn again in each.
        *("ansiEnabled", "evalMode", "failOnError", "nullOnOverflow", "timeZoneId", "zoneId"),
        *("allowNullComparisonResult", "legacyInterval", "legacySizeOfNull", "useStringTypeWhenEmpty"),
        *("variantAllowDuplicateKeys", "randomSeed"),
        # How rows get to a Python function: by Arrow unless a setting says otherwise, since Spark 4.2.
        "PythonUDF.evalType",
        # Follow from the columns and the rest of the expression.
        *("containsNull", "hidden", "nullable", "numFields", "ordinal", "propagateNull", "returnNullable"),
        # What SQL does show, and the replacement that Spark computes instead.
        *("Alias.name", "Cast.dataType", "GetStructField.name", "replacement"),
    }
)
"""Fields that results do not depend on, or that SQL shows; of all classes, or of one."""
_EXPRESSION = "org.apache.spark.sql.catalyst.expressions.Expression"
_DATA_TYPE = "org.apache.spark.sql.types.DataType"


def unsaid(expressions: Iterable[Any], session: SparkSession) -> Unsaid:
    """The values of fields that are not expressions, such as the schema of ``from_json``, by class and field.

    A field has as many values as there are expressions of its class, from the outermost inwards. Lambda variables are
    numbered in order of appearance, since SQL writes all of them alike. Spark lines differ in the fields of a class:
    compare only what is in both answers.
    """
    reader, found = _Reader(session), Unsaid()
    for expression in expressions:
        for field, value in reader.fields(expression):
            found.setdefault(field, []).append(value)
    return found


class _Reader:
    """Reads some expressions, which share their variables; on the driver."""

    def __init__(self, session: SparkSession) -> None:
        self._gateway = session.sparkContext._gateway
        self._variables: dict[int | str, int] = {}

    def fields(self, expression: Any) -> Iterator[tuple[str, Any]]:
        """The fields of an expression and of all its parts."""
        kind = kind_of(expression)
        if kind in _WHOLE:
            return
        if kind.endswith("NamedLambdaVariable"):
            # Not by its name, which is a new one each time a Python lambda is made a Column.
            variable = str(expression.name()) if kind.startswith("Unresolved") else attribute_id(expression)
            yield kind, self._variables.setdefault(variable, len(self._variables))
            return
        # Its original arguments, not its children: those of a function that stands for others are these.
        for place in range(expression.productArity()):
            name = str(expression.productElementName(place))
            field = f"{kind}.{name}"
            if name not in _NOT_TOLD and field not in _NOT_TOLD:
                yield from self._values(field, expression.productElement(place))

    def _values(self, field: str, value: Any) -> Iterator[tuple[str, Any]]:
        if not isinstance(value, JavaObject):
            if value is None or isinstance(value, (bool, int, float, str)):
                yield field, value
        elif self._is(value, _EXPRESSION):
            yield from self.fields(value)
        elif self._is(value, _DATA_TYPE):
            yield field, str(value.catalogString())
        elif self._is(value, "scala.collection.Map"):
            yield field, {str(key): str(of_key) for key, of_key in map(_all, listed(value.toSeq()))}
        else:
            for each in self._held(value):
                yield from self._values(field, each)

    def _held(self, value: Any) -> list[Any]:
        """The contents of some values, None for an option that is not set; nothing for a value of unknown kind."""
        if self._is(value, "scala.Option"):
            return [value.get() if value.isDefined() else None]
        if self._is(value, "scala.collection.Seq"):
            return listed(value)
        # A branch of CASE.
        return _all(value) if self._is(value, "scala.Tuple2") else []

    def _is(self, value: Any, name: str) -> bool:
        return bool(is_instance_of(self._gateway, value, name))


def _all(pair: Any) -> list[Any]:
    return [pair.productElement(place) for place in range(2)]
