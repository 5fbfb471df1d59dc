"""The links of a chain: Spark's row-by-row methods, in the user's form and for rows that a filter has marked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from itertools import count
from operator import add
from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import DoubleType, FloatType

from sparkjet.catalyst.columns import HIDDEN, KEPT, Once, is_star, quoted, select_visible, visible
from sparkjet.catalyst.expressions import label
from sparkjet.catalyst.lateral_aliases import standing_alone
from sparkjet.catalyst.logical_plans import analyzed, listed
from sparkjet.catalyst.stars import leaves_out, stood_for
from sparkjet.catalyst.window_calls import is_window, window_call
from sparkjet.errors import AnalysisError
from sparkjet.plan import diverting
from sparkjet.plan.diverting import Tries
from sparkjet.plan.transformations import Link

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from sparkjet.plan.diverting import Divert
    from sparkjet.plan.transformations import Transformation


def divert(point: Divert) -> Link:
    """The point from which failed rows are diverted."""
    return Link(lambda frame: frame, lambda frame: frame, tried=lambda frame, _: diverting.begun(frame), divert=point)


def timing(hidden: Mapping[str, Column], by: Sequence[str], violated: Column, number: int) -> Link:
    """Event time and substream of rows after ``divert``, as defined by ``withWatermark``."""
    return Link(
        lambda frame: frame.withColumns({**hidden}),
        None,
        tried=lambda frame, _: diverting.with_known_times(frame, hidden, by, violated),
        number=number,
    )


def where(condition: Column | str) -> Link:
    """Filter rows."""
    column = F.expr(condition) if isinstance(condition, str) else condition
    # Evaluated only on rows that pass the earlier filters: it may fail on the others.
    passed = F.when(F.col(KEPT), F.coalesce(column, F.lit(False))).otherwise(False)
    tries = Tries([("where", column)])

    def tried(frame: DataFrame, step: int) -> DataFrame:
        frame = tries.on(frame)
        return tries.without(frame.withColumns(tries.marks(step, F.coalesce(tries.value(0), F.lit(False)))))

    return Link(
        lambda frame: frame.where(condition),
        lambda frame: frame.withColumn(KEPT, passed),
        filters=True,
        tried=tried,
        tries=lambda: tries,
    )


def dropna(shape: DataFrame, how: str, thresh: int | None, subset: str | Sequence[str] | None) -> Link:
    """Filter rows of the schema of ``shape`` by their nulls and NaNs."""
    names = _names(shape, subset)
    least = thresh if thresh is not None else len(names) if how == "any" else 1
    types = [field.dataType for field in shape.select(*names).schema.fields] if names else []
    present = [_present(name, each) for name, each in zip(names, types, strict=True)]
    passed = F.col(KEPT) & (reduce(add, present, F.lit(0)) >= least)

    def marked(frame: DataFrame) -> DataFrame:
        return frame.withColumn(KEPT, passed)

    return Link(
        lambda frame: frame.dropna(how, thresh, names),
        marked,
        filters=True,
        tried=lambda frame, _: marked(frame),
    )


def fillna(shape: DataFrame, value: object, subset: str | Sequence[str] | None) -> Link:
    """Replace nulls in columns of ``shape``; hidden columns keep theirs."""
    columns = None if isinstance(value, dict) else _names(shape, subset)
    return everywhere(lambda frame: frame.fillna(value, columns))  # type: ignore[arg-type]


def replace_values(shape: DataFrame, arguments: Sequence[Any], subset: str | Sequence[str] | None) -> Link:
    """Replace values in columns of ``shape``; hidden columns keep theirs."""
    columns = _names(shape, subset)
    return everywhere(lambda frame: frame.replace(*arguments, subset=columns))


def with_columns(shape: DataFrame, given: Mapping[str, Column | str]) -> Link:
    """Add or replace columns of rows with the schema of ``shape``."""
    # In F.when, the name of a column would be a constant.
    columns = {name: F.col(each) if isinstance(each, str) else each for name, each in given.items()}
    guarded = {name: F.when(F.col(KEPT), column) for name, column in columns.items()}
    windows = _windows(columns, shape)
    tries = Tries((f"withColumn {name}:", column) for name, column in columns.items())

    def tried(frame: DataFrame, step: int) -> DataFrame:
        frame = tries.on(frame)
        values = {name: tries.value(number) for number, name in enumerate(columns)}
        return tries.without(frame.withColumns({**values, **tries.marks(step)}))

    return Link(
        lambda frame: frame.withColumns({**columns}),
        lambda frame: frame.withColumns(guarded),
        windows=windows,
        tried=tried,
        tries=lambda: tries,
    )


def everywhere(step: Transformation) -> Link:
    """A transformation that evaluates none of the user's expressions, so that marked rows may go through it."""
    return Link(step, step, tried=lambda frame, _: step(frame))


def placed(step: Transformation) -> Link:
    """A transformation that changes only where rows are, not the rows."""
    return replace(everywhere(step), alone=lambda frame: frame)


def alias(name: str) -> Link:
    """Name the rows, for columns such as ``name.column``."""
    return everywhere(lambda frame: frame.alias(name))


def whole(step: Transformation) -> Link:
    """A transformation of all results at once."""
    return Link(step, None, filters=True, whole=True)


def regrouped(step: Transformation) -> Link:
    """A transformation that aggregates all results at once: the new rows have no window."""
    return Link(lambda frame: step(frame.drop(*HIDDEN)), None, filters=True, remakes=True, whole=True)


def remade(step: Transformation) -> Link:
    """A transformation that makes new rows from the visible columns."""
    return Link(lambda frame: step(frame.drop(*HIDDEN)), None, filters=True, remakes=True)


def repartition(number: int | Column | str, columns: Sequence[Column | str]) -> Link:
    """Redistribute rows."""

    def plain(frame: DataFrame) -> DataFrame:
        return frame.repartition(number, *columns)

    # An expression may fail on rows that a filter has dropped.
    return placed(plain) if all(isinstance(each, str | int) for each in (number, *columns)) else Link(plain, None)


def select(shape: DataFrame, columns: Sequence[Column | str]) -> Link:
    """Select or compute columns of rows with the schema of ``shape``."""
    items = [item for column in columns for item in _expanded(shape, column)]

    def plain(frame: DataFrame) -> DataFrame:
        return select_visible(frame, items)

    selected = _selected(shape, items)
    names = visible(selected)
    tried, tries = _tried(shape, items)
    if len(items) != len(names):
        # A column that expands to several (``struct.*``) has no single name.
        return Link(plain, None, tried=tried, tries=tries)
    windows = _windows({name: item for name, item in zip(names, items, strict=True) if isinstance(item, Column)}, shape)
    # A column that is only named cannot fail; guarded, it would lose the alias by which later steps may name it.
    guarded = [
        item if named or isinstance(item, str) else F.when(F.col(KEPT), item).alias(name)
        for item, name, named in zip(items, names, _named(selected, len(items)), strict=True)
    ]
    return Link(plain, lambda frame: select_visible(frame, guarded), windows=windows, tried=tried, tries=tries)


def _tried(
    shape: DataFrame, items: Sequence[Column | str]
) -> tuple[Callable[[DataFrame, int], DataFrame], Callable[[], Tries]]:
    """The selection of some items, none of which may stop it, and the attempts at them."""
    once = Once()

    def planned() -> tuple[list[tuple[str, Column | str, bool]], Tries]:
        each = [one for item in items for one in _one_by_one(shape, item)]
        selected = select_visible(shape, each)
        # Each separately: attempts are not computed along with the other columns.
        each = standing_alone(each, visible(selected), shape)
        selected = select_visible(shape, each)
        named = zip(visible(selected), each, _named(selected, len(each)), strict=True)
        found = [(name, item, is_named or isinstance(item, str)) for name, item, is_named in named]
        computed = (item for _, item, is_named in found if not is_named and isinstance(item, Column))
        return found, Tries(("select", item) for item in computed)

    def tried(frame: DataFrame, step: int) -> DataFrame:
        found, tries = once("planned", build=planned)
        frame = tries.on(frame)
        marks, numbers = tries.marks(step), count()
        values = [item if is_named else tries.value(next(numbers)).alias(name) for name, item, is_named in found]
        hidden = [marks[name].alias(name) if name in marks else name for name in HIDDEN if name in frame.columns]
        return frame.select(*values, *hidden)

    return tried, lambda: once("planned", build=planned)[1]


def _one_by_one(shape: DataFrame, item: Column | str) -> Sequence[Column | str]:
    """An item as items of one column each: ``struct.*`` stands for the fields."""
    column = F.col(item) if isinstance(item, str) else item
    return stood_for(column, shape) if label(item).endswith(".*") else [item]


def _selected(shape: DataFrame, items: Sequence[Column | str]) -> DataFrame:
    """The selection of some columns, for analysis only."""
    error = None
    try:
        selected = select_visible(shape, items)
        if not _is_aggregate(selected):
            return selected
    except AnalysisException as found:
        # Hidden columns would be next to the aggregate, and Spark's error would be about them; without them it says
        # what is wrong.
        if not _is_aggregate(shape.drop(*HIDDEN).select(*items)):
            raise
        error = found
    message = (
        "select: an aggregation of all rows is never final, and late rows are shaped row by row. On a stream call "
        'agg(…) instead of select(…), and write its result with outputMode("update") or outputMode("complete").'
    )
    raise AnalysisError(message) from error


def _is_aggregate(selected: DataFrame) -> bool:
    return bool(analyzed(selected).nodeName() == "Aggregate")


def _windows(columns: Mapping[str, Column], shape: DataFrame) -> dict[str, Column]:
    """The columns that are calls of a window function."""
    return {
        name: column
        for name, column in columns.items()
        if is_window(column) and window_call(column, shape.sparkSession) is not None
    }


def _expanded(shape: DataFrame, column: Column | str) -> Sequence[Column | str]:
    """A column as the items to select: ``*`` and ``alias.*`` stand for the visible columns."""
    if is_star(column):
        return [quoted(name) for name in visible(shape)]
    if not isinstance(column, str) and leaves_out(column, shape.sparkSession):
        return stood_for(column, shape)
    spelled = label(column).strip()
    if spelled.endswith(".*"):
        named = shape.select(column)
        if HIDDEN[0] in named.columns:
            # The alias of the stream itself; a joined table with an alias has no hidden columns.
            return [f"{spelled[:-1]}{quoted(name)}" for name in visible(named)]
    return [column]


def _named(selected: DataFrame, count: int) -> list[bool]:
    """For each of the first columns of a selection, whether it only names a column of the rows."""
    plan = analyzed(selected)
    if plan.nodeName() != "Project":
        return [False] * count
    return [each.getClass().getSimpleName() == "AttributeReference" for each in listed(plan.projectList())[:count]]


def _names(shape: DataFrame, subset: str | Sequence[str] | None) -> list[str]:
    """The columns of ``shape`` that a subset names, by default all visible ones."""
    if subset is None:
        return [quoted(name) for name in visible(shape)]
    given: object = subset
    if not isinstance(given, str | list | tuple):
        raise AnalysisError(f"subset={given!r} is neither the name of a column nor a list of names.")
    return [subset] if isinstance(subset, str) else list(subset)


def _present(name: str, data_type: object) -> Column:
    """1 if a column has a value, as Spark's ``dropna`` counts them."""
    column = F.col(name)
    is_nan = F.isnan(column) if isinstance(data_type, DoubleType | FloatType) else F.lit(False)
    return (column.isNotNull() & ~is_nan).cast("int")
