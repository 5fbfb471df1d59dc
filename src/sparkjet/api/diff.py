"""Differences: between two tables, or between all outputs of two forks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from pyspark.sql import DataFrame, SparkSession

from sparkjet.api.compared import ADDED, CHANGED, REMOVED, SAME, Compared, compared
from sparkjet.api.fork import Fork
from sparkjet.errors import AnalysisError, nearest, refuse_connect
from sparkjet.sinks.manifest import Manifest
from sparkjet.sinks.read_files import read_files
from sparkjet.storage.schemes import directory_at

if TYPE_CHECKING:
    from sparkjet.storage.directory import Directory

Outputs: TypeAlias = DataFrame | Fork | str | Path
"""The kinds of arguments of :func:`diff`: a table, all outputs of a fork, or a directory of either."""
Keys: TypeAlias = str | Sequence[str] | Mapping[str, str | Sequence[str]]
"""The columns that identify a row, or these by the name of an output."""

_ROWS = "rows"
"""The name of a table that has none."""


class Diff:
    """The differences between two tables, or between the outputs of two forks; made by :func:`diff`.

    >>> import sparkjet as sj
    >>> old = spark.createDataFrame([("north", 10), ("south", 5)], "shop string, px long")
    >>> new = spark.createDataFrame([("north", 11), ("west", 2)], "shop string, px long")
    >>> found = sj.diff(old, new, keys=["shop"])
    >>> found.counts()
    {'rows': {'added': 1, 'removed': 1, 'changed': 1, 'same': 0}}
    >>> found.toDF().where("_change = 'changed'").select("shop", "_columns", "px.*").collect()
    [Row(shop='north', _columns=['px'], old=10, new=11)]
    """

    def __init__(self, outputs: Mapping[str, Compared]) -> None:
        self._outputs = dict(outputs)

    @property
    def outputs(self) -> list[str]:
        """The names of the compared outputs: a fork's (``results``, ``late`` …), or ``rows``."""
        return list(self._outputs)

    @property
    def differs(self) -> bool:
        """Whether there is any difference, of rows or of columns."""
        return any(each.differs for each in self._outputs.values())

    def counts(self) -> dict[str, dict[str, int]]:
        """The number of rows per output that are ``added``, ``removed``, ``changed`` and the ``same``; runs no job."""
        return {name: dict(each.counts) for name, each in self._outputs.items()}

    def columns(self) -> dict[str, list[str]]:
        """For each output, a line for each column that only one side has, or whose type has changed."""
        return {name: list(each.schema) for name, each in self._outputs.items()}

    def toDF(self, output: str | None = None) -> DataFrame:
        """The differences of an output as rows.

        With keys, there is a row for each key whose rows differ: ``_change`` (``added``, ``removed`` or ``changed``),
        the keys, ``_columns`` with the names of the columns that differ, and each other column as a struct of its
        ``old`` and ``new`` value. Without keys, there is a row for each row that one of the two has more often:
        ``_change`` (``added`` or ``removed``), ``_count`` (how many times more), and the columns as they are.

        Args:
            output: Its name, if there are several.

        Raises:
            AnalysisError: There is no output of that name.
        """
        if output is None and len(self._outputs) == 1:
            [output] = self._outputs
        if output not in self._outputs:
            raise AnalysisError(f"toDF: {output!r} is not an output. {nearest(str(output), self._outputs)}")
        return self._outputs[output].rows

    def __repr__(self) -> str:
        """The counts."""
        lines = [
            f"{name}: {counts[ADDED]} added, {counts[REMOVED]} removed, {counts[CHANGED]} changed, {counts[SAME]} same"
            for name, counts in self.counts().items()
        ]
        return "\n".join(lines)


def diff(old: Outputs, new: Outputs, keys: Keys | None = None) -> Diff:
    """Compare two tables, or the outputs of two forks by name, including late rows and dead letters.

    Values are compared as in Spark: a null equals a null, NaN equals NaN, -0.0 equals 0.0, and other numbers are equal
    only if they are the same. Maps are compared by their entries, variants by their JSON, texts byte by byte whatever
    their collation. A column that only one table has is reported, and not compared. A column whose type has changed is
    compared in the type that Spark's union has, so whole numbers and doubles as doubles; if that would round a decimal,
    it is reported, and not compared. Each output is compared in one job, here; the differing rows are computed on
    request.

    Args:
        old: A DataFrame; a fork; or a directory that ``format("files")`` has written, or that contains such
            directories, as :attr:`Fork.outputs` does.
        new: As ``old``.
        keys: The columns that identify a row in each of the two, such as the window and the keys of an aggregation. For
            forks, those of the outputs named ``results…``; or give them by the name of the output. Without keys, rows
            are compared as a whole, and a row may occur several times.

    Raises:
        AnalysisError: A key is not a column of both, or has several rows; there is nothing to compare; or a column has
            a type that cannot be compared.
    """
    before, after = _named(old, "old"), _named(new, "new")
    if ((_ROWS in before) != (_ROWS in after)) and before and after:
        message = (
            "diff: one is a table, and the other has several outputs. Compare one output of it: "
            'sj.read_files(f"{fork.outputs}/results").'
        )
        raise AnalysisError(message)
    names = list(dict.fromkeys((*before, *after)))
    if not names:
        raise AnalysisError("diff: neither has published any output yet, so there is nothing to compare.")
    chosen = _keys_of(keys, names)
    found = {}
    for name in names:
        # If nothing was published, there are no rows.
        frames = [each[name] if name in each else _empty(before, after, name) for each in (before, after)]
        found[name] = compared(frames[0], frames[1], chosen.get(name, ()), name)
    return Diff(found)


def _empty(before: Mapping[str, DataFrame], after: Mapping[str, DataFrame], name: str) -> DataFrame:
    return (before if name in before else after)[name].limit(0)


def _keys_of(keys: Keys | None, names: Sequence[str]) -> dict[str, Sequence[str]]:
    """The keys of each output."""
    if keys is None:
        return {}
    for given in [*keys.values()] if isinstance(keys, Mapping) else [keys]:
        each: object = given
        if not isinstance(each, str | list | tuple) or not all(isinstance(name, str) for name in each):
            raise AnalysisError(f'keys: {each!r} is neither a column nor a list of columns, as in ["window", "shop"].')
    if isinstance(keys, Mapping):
        others = [name for name in keys if name not in names]
        if others:
            raise AnalysisError(f"keys: {others[0]!r} is not an output. {nearest(others[0], names)}")
        return {name: _listed(each) for name, each in keys.items()}
    return {name: _listed(keys) for name in names if name == _ROWS or name.startswith("results")}


def _listed(keys: str | Sequence[str]) -> list[str]:
    """Each key once."""
    return [keys] if isinstance(keys, str) else [*dict.fromkeys(keys)]


def _named(given: Outputs, argument: str) -> dict[str, DataFrame]:
    """The given tables, by the names of outputs."""
    refuse_connect("diff", given)
    if isinstance(given, DataFrame):
        return {_ROWS: given}
    of_fork = isinstance(given, Fork)
    place: object = given.outputs if isinstance(given, Fork) else given
    if not isinstance(place, str | Path):
        raise AnalysisError(f"{argument}: {given!r} is not a DataFrame, fork or directory.")
    directory = directory_at(str(place), argument, SparkSession.active)
    if _is_output(directory):
        return {_ROWS: read_files(place)}
    try:
        names = sorted(name for name in directory.names() if not name.startswith(("_", ".")))
    except OSError as error:
        raise AnalysisError(f'{argument}: "{directory}" cannot be read: {error.strerror or error}') from error
    found = {name: read_files(f"{place}/{name}") for name in names if _is_output(directory.below(name))}
    if not found and not of_fork:
        message = f'{argument}: "{directory}" has no output of a query: nothing was published there or below.'
        raise AnalysisError(message)
    return found


def _is_output(directory: Directory) -> bool:
    """Whether epochs were published in a directory."""
    try:
        return any(manifest.entries() for manifest in Manifest.all_of(directory))
    except (FileNotFoundError, NotADirectoryError):
        return False
