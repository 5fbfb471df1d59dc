"""The DataFrame methods that streams and results share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Concatenate, Generic, TypeVar, overload

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from typing_extensions import ParamSpec, Self

from sparkjet.api.guided import Guided
from sparkjet.api.notebook import table
from sparkjet.catalyst import alternatives
from sparkjet.catalyst.columns import HIDDEN, is_own, quoted, visible
from sparkjet.catalyst.expressions import label
from sparkjet.catalyst.stars import starless
from sparkjet.errors import AnalysisError, nearest, refuse_connect
from sparkjet.plan import links
from sparkjet.plan.static_join import static_join
from sparkjet.plan.static_tables import static_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

    from sparkjet.plan.static_join import On
    from sparkjet.plan.static_tables import StaticTable
    from sparkjet.plan.transformations import Link, Transformation, Transformations

P = ParamSpec("P")
T = TypeVar("T")
Rows = TypeVar("Rows", bound="FrameMethods")

NOT_GIVEN = object()
"""The default of an argument for which None is a value."""


class FrameMethods(Guided, ABC):
    """The DataFrame methods that streams and results share, with Spark's names and arguments.

    A column is ``rows.<name>`` or ``rows["<name>"]``, as on a DataFrame; the name of one of Spark's methods is never a
    column.
    """

    def __init__(self, chain: Transformations) -> None:
        self._chain = chain

    @abstractmethod
    def _with(self, chain: Transformations) -> Self:
        """The same rows with other transformations."""

    def _then(self, link: Link) -> Self:
        return self._with(self._chain.then(link))

    def _remade(self, method: str, step: Transformation) -> Self:
        """The rows that a method creates, about whose time nothing is known."""
        del method
        return self._then(links.remade(step))

    @property
    @abstractmethod
    def isStreaming(self) -> bool:
        """Whether the rows come from a stream; otherwise :meth:`toDF` computes them."""

    @abstractmethod
    def _computed(self) -> DataFrame:
        """All rows, if they come from a batch DataFrame."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}[{', '.join(f'{name}: {found}' for name, found in self.dtypes)}]"

    def _repr_html_(self) -> str:
        """The columns, in a small table for notebooks: there are rows only once a query runs."""
        return table(type(self).__name__, self.dtypes, ("column", "type"))

    @property
    def sparkSession(self) -> SparkSession:
        """The session of the rows."""
        return self._chain.source.sparkSession

    @property
    def schema(self) -> StructType:
        """Schema of the rows."""
        return self._visible.schema

    @property
    def columns(self) -> list[str]:
        """Names of the columns."""
        return visible(self._chain.shape)

    @property
    def dtypes(self) -> list[tuple[str, str]]:
        """Names and types of the columns."""
        return self._visible.dtypes

    def printSchema(self, level: int | None = None) -> None:
        """Print the schema as a tree."""
        self._visible.printSchema(level)

    def _starless(self, columns: Sequence[Any]) -> list[Any]:
        """Columns in whose functions ``*`` stands for the user's visible columns; names as they are."""
        return [starless(each, self._chain.shape) if isinstance(each, Column) else each for each in columns]

    @property
    def _visible(self) -> DataFrame:
        return self._chain.shape.drop(*HIDDEN)

    def select(self, *cols: Column | str | Sequence[Column | str]) -> Self:
        """Select or compute columns, as ``DataFrame.select``."""
        given = one_by_one(cols)
        for each in given:
            _check("select", each, Column | str, 'a Column or the name of one: F.col(…), F.lit(…) or "…"')
        return self._then(links.select(self._chain.shape, self._starless(given)))

    def selectExpr(self, *expr: str | Sequence[str]) -> Self:
        """Select columns by SQL expressions, as ``DataFrame.selectExpr``."""
        return self.select(*(F.expr(text) for text in one_by_one(expr)))

    def where(self, condition: Column | str) -> Self:
        """Filter rows, as ``DataFrame.where``; rows that are filtered out still advance the watermark."""
        _check("where", condition, Column | str, 'a condition: a Column or SQL, such as F.col("n") > 0 or "n > 0"')
        column = F.expr(condition) if isinstance(condition, str) else condition
        return self._then(links.where(starless(column, self._chain.shape)))

    def filter(self, condition: Column | str) -> Self:
        """Alias of :meth:`where`."""
        return self.where(condition)

    def withColumn(self, colName: str, col: Column) -> Self:
        """Add or replace a column, as ``DataFrame.withColumn``.

        Raises:
            AnalysisError: It is not given a Column.
        """
        given: object = col
        if not isinstance(given, Column):
            message = f"withColumn: {colName!r} is given {given!r}, not a Column. Give F.col(…), or F.lit(…)."
            raise AnalysisError(message)
        return self.withColumns({colName: col})

    def withColumns(self, colsMap: Mapping[str, Column], /) -> Self:
        """Add or replace columns, as ``DataFrame.withColumns``; a string is the name of a column.

        Raises:
            AnalysisError: One is neither a Column nor a name.
        """
        _check("withColumns", colsMap, Mapping, "a dict from name to Column")
        everything: Mapping[str, object] = colsMap
        for name, given in everything.items():
            if not isinstance(given, Column | str):
                message = f"withColumns: {name!r} is given {given!r}, not a Column. Give F.col(…), or F.lit(…)."
                raise AnalysisError(message)
        columns = dict(zip(colsMap, self._starless([*colsMap.values()]), strict=True))
        return self._then(links.with_columns(self._chain.shape, columns))

    def withColumnRenamed(self, existing: str, new: str) -> Self:
        """Rename a column, as ``DataFrame.withColumnRenamed``; does nothing if there is none of that name."""
        return self.withColumnsRenamed({existing: new})

    def withColumnsRenamed(self, colsMap: Mapping[str, str]) -> Self:
        """Rename columns, as ``DataFrame.withColumnsRenamed``."""
        _check("withColumnsRenamed", colsMap, Mapping, "a dict from name to name")
        check_own(colsMap)
        return self._then(links.everywhere(lambda frame: frame.withColumnsRenamed({**colsMap})))

    @overload
    def toDF(self) -> DataFrame: ...

    @overload
    def toDF(self, name: str, /, *cols: str) -> Self: ...

    def toDF(self, *cols: str) -> DataFrame | Self:
        """All rows, if :func:`sparkjet.stream` was given a batch DataFrame; with names, as ``DataFrame.toDF``.

        Everything is one epoch, so no row is late and every window is closed: a function that builds a query can be
        tested on static data.

        Raises:
            AnalysisError: The rows come from a stream, or the number of names is not that of the columns.
        """
        if cols:
            if len(cols) != len(self.columns):
                message = f"toDF: {len(cols)} names for {len(self.columns)} columns, {', '.join(self.columns)}."
                raise AnalysisError(message)
            return self.select(*(F.col(quoted(old)).alias(new) for old, new in zip(self.columns, cols, strict=True)))
        if self.isStreaming:
            raise AnalysisError("toDF: these rows come from a stream, which has no end. Write them with writeStream.")
        return self._computed()

    def drop(self, *cols: Column | str) -> Self:
        """Drop columns, as ``DataFrame.drop``."""
        refuse_connect("drop", *cols)
        check_own(map(label, cols))
        return self._then(links.everywhere(lambda frame: frame.drop(*cols)))

    def dropna(self, how: str = "any", thresh: int | None = None, subset: str | Sequence[str] | None = None) -> Self:
        """Drop rows with nulls, as ``DataFrame.dropna``; they still advance the watermark."""
        return self._then(links.dropna(self._chain.shape, how, thresh, subset))

    def fillna(self, value: Any, subset: str | Sequence[str] | None = None) -> Self:
        """Replace nulls, as ``DataFrame.fillna``."""
        return self._then(links.fillna(self._chain.shape, value, subset))

    def replace(self, to_replace: Any, value: Any = NOT_GIVEN, subset: str | Sequence[str] | None = None) -> Self:
        """Replace values, as ``DataFrame.replace``."""
        arguments = [to_replace] if value is NOT_GIVEN else [to_replace, value]
        return self._then(links.replace_values(self._chain.shape, arguments, subset))

    @property
    def na(self) -> NaFunctions[Self]:
        """``drop``, ``fill`` and ``replace``, as ``DataFrame.na``."""
        return NaFunctions(self)

    def transform(self, func: Callable[Concatenate[Self, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The result of a function on these rows, as ``DataFrame.transform``.

        Raises:
            AnalysisError: It returns something other than a stream or results.
        """
        result = func(self, *args, **kwargs)
        if not isinstance(result, FrameMethods):
            message = f"transform: the function returned {type(result).__name__}. Have it return the transformed rows."
            raise AnalysisError(message)
        return result

    def repartition(self, numPartitions: int | Column | str, *cols: Column | str) -> Self:
        """Distribute the rows over partitions, as ``DataFrame.repartition``: in the files sink, over files."""
        number, *columns = self._starless([numPartitions, *cols])
        return self._then(links.repartition(number, columns))

    def coalesce(self, numPartitions: int) -> Self:
        """Combine the rows into fewer partitions, as ``DataFrame.coalesce``: in the files sink, into fewer files."""
        return self._then(links.placed(lambda frame: frame.coalesce(numPartitions)))

    def hint(self, name: str, *parameters: Any) -> Self:
        """Give Spark's optimizer a hint, as ``DataFrame.hint``."""
        return self._then(links.placed(lambda frame: frame.hint(name, *parameters)))

    def join(self, other: FrameMethods | DataFrame | StaticTable, on: On = None, how: str | None = None) -> Self:
        """Join with a static table, as ``DataFrame.join`` joins a stream with a batch DataFrame.

        Rows that the join drops still advance the watermark.

        Args:
            other: A batch DataFrame, which is read as Spark reads it in its own queries, unless it is given to
                :func:`sparkjet.read_once` or :func:`sparkjet.read_every_epoch`.
            on: A name or a list of names that both have, or a condition as a Column or a list of them.
            how: ``inner`` (the default), ``cross``, ``left``, ``left_outer``, ``left_semi`` or ``left_anti``.

        Raises:
            AnalysisError: A stream, another ``how``, or a condition that reads an internal column of sparkjet.

        >>> import sparkjet as sj
        >>> rates = spark.createDataFrame([("EUR", 1.25)], "currency string, dollars double")
        >>> paid = sj.stream(spark.createDataFrame([("EUR", 4), ("USD", 3)], "currency string, amount int"))
        >>> paid.join(rates, "currency", "left").fillna(1.0).selectExpr("amount * dollars AS paid").toDF().collect()
        [Row(paid=5.0), Row(paid=3.0)]
        """
        check_how(how)
        if isinstance(other, FrameMethods) or (isinstance(other, DataFrame) and other.isStreaming):
            raise AnalysisError(f"join: the other side is a stream. {alternatives.STREAM_JOIN}")
        return self._then(static_join(self._chain, static_table(other), on, how))

    def crossJoin(self, other: DataFrame | StaticTable) -> Self:
        """Every row with each row of a static table, as ``DataFrame.crossJoin``; see :meth:`join`."""
        return self.join(other, how="cross")

    def mapInPandas(self, func: Any, schema: StructType | str, barrier: bool = False, profile: Any = None) -> Self:
        """Make new rows with pandas, as ``DataFrame.mapInPandas``.

        On a stream, call it before ``withWatermark``, as the new rows have event time only in their columns; on
        results, as one of the last steps, as they cannot be grouped again.
        """
        return self._remade("mapInPandas", lambda frame: frame.mapInPandas(func, schema, barrier, profile))

    def mapInArrow(self, func: Any, schema: StructType | str, barrier: bool = False, profile: Any = None) -> Self:
        """Make new rows with Arrow, as ``DataFrame.mapInArrow``; can be called wherever :meth:`mapInPandas` can."""
        return self._remade("mapInArrow", lambda frame: frame.mapInArrow(func, schema, barrier, profile))

    def unpivot(self, ids: Any, values: Any, variableColumnName: str, valueColumnName: str) -> Self:
        """Turn several columns into rows, as ``DataFrame.unpivot``; can be called wherever :meth:`mapInPandas` can."""
        arguments = (ids, values, variableColumnName, valueColumnName)
        return self._remade("unpivot", lambda frame: frame.unpivot(*arguments))

    def melt(self, ids: Any, values: Any, variableColumnName: str, valueColumnName: str) -> Self:
        """Alias of :meth:`unpivot`."""
        return self.unpivot(ids, values, variableColumnName, valueColumnName)

    @overload
    def __getitem__(self, item: int | str) -> Column: ...

    @overload
    def __getitem__(self, item: Column | list[Column | str] | tuple[Column | str, ...]) -> Self: ...

    def __getitem__(self, item: Any) -> Any:
        """A column by name or number; with a Column filters, and with a list selects, as ``DataFrame[…]``."""
        if isinstance(item, Column):
            return self.where(item)
        if isinstance(item, list | tuple):
            return self.select(*item)
        name = self.columns[item] if isinstance(item, int) else item
        try:
            self._visible.select(name)
        except AnalysisException as error:
            raise AnalysisError(f"there is no column {name!r}; {nearest(str(name), self.columns)}.") from error
        return F.col(name)

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Column:
            """A column by its name."""

    def _found(self, name: str) -> Column | None:
        return F.col(name) if name in self.columns and name not in self._alternatives else None

    def _names(self) -> Sequence[str]:
        return self.columns

    def _way_out(self, name: str) -> str | None:
        found = super()._way_out(name)
        return f'{found} The column of this name is F.col("{name}").' if found and name in self.columns else found


class NaFunctions(Generic[Rows]):
    """The methods of ``rows.na``: other names for ``rows.dropna``, ``rows.fillna`` and ``rows.replace``."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    def __repr__(self) -> str:
        return f"{type(self).__name__}[{self._rows!r}]"

    def drop(self, how: str = "any", thresh: int | None = None, subset: str | Sequence[str] | None = None) -> Rows:
        """See :meth:`FrameMethods.dropna`."""
        return self._rows.dropna(how, thresh, subset)

    def fill(self, value: Any, subset: str | Sequence[str] | None = None) -> Rows:
        """See :meth:`FrameMethods.fillna`."""
        return self._rows.fillna(value, subset)

    def replace(self, to_replace: Any, value: Any = NOT_GIVEN, subset: str | Sequence[str] | None = None) -> Rows:
        """See :meth:`FrameMethods.replace`."""
        return self._rows.replace(to_replace, value, subset)


def _check(method: str, given: object, kinds: Any, what: str) -> None:
    if not isinstance(given, kinds):
        raise AnalysisError(f"{method}: {given!r} is not {what}.")


def check_own(names: Iterable[str]) -> None:
    """Refuse names that sparkjet reserves for its own columns.

    Raises:
        AnalysisError: One of them is reserved.
    """
    for name in names:
        if is_own(name):
            raise AnalysisError(f"the column name {name!r} is used by sparkjet. Leave it out.")


def check_how(how: object) -> None:
    """Refuse a value that cannot be the name of a join type.

    Raises:
        AnalysisError: It is not a string.
    """
    if how is not None and not isinstance(how, str):
        raise AnalysisError(f"join: how={how!r} is not the name of a join, such as 'inner' or 'left'.")


def one_by_one(cols: Sequence[Any]) -> Sequence[Any]:
    """Arguments that may be given as one list or tuple, as in Spark's methods."""
    return cols[0] if len(cols) == 1 and isinstance(cols[0], list | tuple) else cols
