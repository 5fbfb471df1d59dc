"""Stars: ``*`` inside an expression stands for the columns that the user sees, not for hidden ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from sparkjet.catalyst.columns import HIDDEN, quoted
from sparkjet.catalyst.expressions import column_of, expression_of, function_name, parts_of, rebuilt, without_alias
from sparkjet.catalyst.logical_plans import analyzed, children, kind_of, listed
from sparkjet.errors import refuse_connect
from sparkjet.java import as_seq

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_STAR = ("UnresolvedStar", "UnresolvedDataFrameStar")


def starless(column: Column, rows: DataFrame) -> Column:
    """A Column with the names of the visible columns in place of each ``*`` among the arguments of a function.

    Spark would include hidden columns, wherever rows have them: another hash, another field in a struct.
    """
    refuse_connect("sparkjet", column)
    if "*" not in str(column._jc):
        return column
    session = rows.sparkSession
    expression = expression_of(column, session)
    if not any(map(_is_star, parts_of(expression))):
        # A multiplication.
        return column

    def named(star: Any) -> list[Any]:
        return [expression_of(each, session) for each in stood_for(column_of(star, session), rows)]

    def expanded(part: Any) -> Any:
        parts = children(part)
        if not any(map(_is_star, parts)) or (function_name(part) == "count" and not part.isDistinct()):
            return None
        if kind_of(part) == "CreateNamedStruct":
            # As in SQL: each value after the text that stands for its name.
            pairs = zip(parts[::2], parts[1::2], strict=True)
            found = [(name, each) for name, value in pairs for each in values(value)]
            struct = part.copy(as_seq(session, [each for pair in found for each in pair]))
            # The name it is given in a result.
            struct.copyTagsFrom(part)
            return struct
        # In the order of the class: the name, the arguments, and the rest of the call.
        further = (part.productElement(place) for place in range(2, part.productArity()))
        arguments = [each for argument in listed(part.arguments()) for each in values(argument)]
        return part.copy(part.nameParts(), as_seq(session, arguments), *further)

    def values(part: Any) -> list[Any]:
        return named(part) if _is_star(part) else [rebuilt(part, session, expanded)]

    found = rebuilt(expression, session, expanded)
    return column if found is expression else column_of(found, session)


def stood_for(star: Column, rows: DataFrame) -> list[Column]:
    """The columns that a star stands for: the visible ones, or those inside one (``s.*``, ``* EXCEPT (s.x)``).

    By column name, as it may be computed from other rows than these.
    """
    session, columns = rows.sparkSession, rows.columns

    def by_name(part: Any) -> Any:
        if kind_of(part) == "GetStructField":
            # By its number, it could not be shown before it is analyzed.
            struct = column_of(rebuilt(part.child(), session, by_name), session)
            return expression_of(struct.getField(str(part.extractFieldName())), session)
        if kind_of(part) != "AttributeReference":
            return None
        name = str(part.name())
        # Joined tables may have the same names.
        tables = [str(each) for each in listed(part.qualifier())] if columns.count(name) > 1 else []
        return expression_of(F.col(".".join(map(quoted, [*tables, name]))), session)

    def column(item: Any) -> Column:
        found = column_of(rebuilt(without_alias(item), session, by_name), session)
        return found.alias(str(item.name())) if kind_of(item) == "Alias" else found

    return [column(each) for each in listed(analyzed(rows.drop(*HIDDEN).select(star)).projectList())]


def leaves_out(column: Column, session: SparkSession) -> bool:
    """Whether a Column is ``* EXCEPT (…)``."""
    return "*" in str(column._jc) and kind_of(expression_of(column, session)).startswith("UnresolvedStarExcept")


def _is_star(expression: Any) -> bool:
    return kind_of(expression).startswith(_STAR)
