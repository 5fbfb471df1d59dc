"""A user's Python function of batches after ``divert``: where it raises it is called with halves, down to the row.

Runs in Spark's Python workers, like :mod:`sparkjet.catalyst.tried_functions`, and imports nothing else from sparkjet.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from sparkjet.catalyst.tried_functions import FAILED, VALUE, Conversion, TriedFunction, failure, of_series

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Piece:
    """Rows of a batch that were computed together.

    Attributes:
        count: The number of rows.
        found: The return value of the function, by column; None if it raised.
        arrays: The same as Arrow arrays.
        failure: What it raised.
    """

    count: int
    found: Sequence[Any] | None
    arrays: Sequence[pa.Array]
    failure: str | None = None


class TriedBatches(TriedFunction, ABC):
    """A function of batches, called with halves of a batch for which it raises, down to the row."""

    def __init__(self, command: bytes, conversion: Conversion) -> None:
        super().__init__(command)
        self.conversion = conversion

    def __call__(self, kept: Any, /, *args: Any, **kwargs: Any) -> Any:
        """The values and failures of a batch."""
        places = self.places(kept)
        chosen = args if places is None else self.chosen(args, places)
        named = kwargs if places is None else dict(zip(kwargs, self.chosen([*kwargs.values()], places), strict=True))
        count = len(kept) if places is None else len(places)

        def run(first: int, last: int) -> Any:
            if (first, last) == (0, count):
                return self.function(*chosen, **named)
            cut = self.cut([*chosen, *named.values()], first, last)
            return self.function(*cut[: len(chosen)], **dict(zip(named, cut[len(chosen) :], strict=True)))

        return self.joined(len(kept), places, self.halved(run, 0, count) if count else [])

    def halved(self, run: Any, first: int, last: int) -> list[Piece]:
        """The return values of a function for some rows, in pieces for which it did not raise, or single rows."""
        try:
            return [self.piece(run(first, last), last - first)]
        except Exception as error:  # noqa: BLE001 - that of the user's function
            if last - first == 1:
                return [Piece(1, None, (), failure(error))]
        middle = (first + last) // 2
        return [*self.halved(run, first, middle), *self.halved(run, middle, last)]

    def piece(self, found: Any, count: int) -> Piece:
        """The piece of what a function has returned for some rows."""
        # A text has a length, and is one value to pandas: the other rows would be null.
        if not hasattr(found, "__len__") or isinstance(found, str | bytes):
            raise TypeError(f"the function returned {type(found).__name__}, which is not a column of values")
        if len(found) != count:
            raise ValueError(f"the function returned {len(found)} values for {count} rows")
        columns = self.columns(found)
        return Piece(count, *columns)

    @abstractmethod
    def places(self, kept: Any) -> Any:
        """The numbers of the kept rows, None if all are kept."""

    @abstractmethod
    def chosen(self, args: Sequence[Any], places: Any) -> Sequence[Any]:
        """The arguments for some rows."""

    @abstractmethod
    def cut(self, args: Sequence[Any], first: int, last: int) -> list[Any]:
        """The arguments for a part of the rows."""

    @abstractmethod
    def columns(self, found: Any) -> tuple[Sequence[Any], Sequence[pa.Array]]:
        """The return value of a function, by column, and as Arrow arrays."""

    @abstractmethod
    def joined(self, count: int, places: Any, pieces: Sequence[Piece]) -> Any:
        """The values and failures that the worker gets for a batch."""

    def arrays(self, count: int, places: Any, pieces: Sequence[Piece]) -> tuple[list[pa.Array], pa.Array]:
        """The values of a batch, null for rows that are not kept or have failed, and the failures."""
        import pyarrow as pa  # noqa: PLC0415 - an extra

        order: list[int | None] = [None] * count
        failures: list[str | None] = [None] * count
        row = computed = 0
        for piece in pieces:
            for _ in range(piece.count):
                place = row if places is None else int(places[row])
                row += 1
                if piece.failure is None:
                    order[place], computed = computed, computed + 1
                else:
                    failures[place] = piece.failure
        good = [piece.arrays for piece in pieces if piece.failure is None]
        indices = pa.array(order, pa.int64())
        values = [
            pa.concat_arrays([each[number] for each in good]).take(indices) if good else pa.nulls(count, kind)
            for number, kind in enumerate(self.conversion.types)
        ]
        return values, pa.array(failures, pa.string())


class TriedSeries(TriedBatches):
    """A function from Series to a Series, or to a DataFrame, which stands for a struct."""

    def places(self, kept: Any) -> Any:
        """See :meth:`TriedBatches.places`."""
        return None if kept.all() else kept.to_numpy(dtype=bool).nonzero()[0]

    def chosen(self, args: Sequence[Any], places: Any) -> Sequence[Any]:
        """See :meth:`TriedBatches.chosen`."""
        return [each.iloc[places].reset_index(drop=True) for each in args]

    def cut(self, args: Sequence[Any], first: int, last: int) -> list[Any]:
        """See :meth:`TriedBatches.cut`."""
        return [each.iloc[first:last].reset_index(drop=True) for each in args]

    def columns(self, found: Any) -> tuple[Sequence[Any], Sequence[pa.Array]]:
        """See :meth:`TriedBatches.columns`."""
        import pandas as pd  # noqa: PLC0415 - an extra

        names = self.conversion.names
        if names is None:
            series = [found if isinstance(found, pd.Series) else pd.Series(found)]
        else:
            if not isinstance(found, pd.DataFrame):
                raise TypeError(f"the function returned {type(found).__name__}, not a DataFrame of {', '.join(names)}")
            if self.conversion.by_name and any(isinstance(each, str) for each in found.columns):
                series = [found[name] for name in names]
            else:
                series = [found.iloc[:, number] for number in range(len(names))]
        return series, [of_series(each, self.conversion, number)[0] for number, each in enumerate(series)]

    def joined(self, count: int, places: Any, pieces: Sequence[Piece]) -> Any:
        """See :meth:`TriedBatches.joined`."""
        import pandas as pd  # noqa: PLC0415 - an extra

        if places is None and len(pieces) == 1 and pieces[0].found is not None:
            columns = [each.reset_index(drop=True) for each in pieces[0].found]
            failures = pd.Series([None] * count, dtype=object)
        else:
            values, found = self.arrays(count, places, pieces)
            columns = [_as_series(each, kind) for each, kind in zip(values, self.conversion.kinds, strict=True)]
            failures = pd.Series(found.to_pylist(), dtype=object)
        names = [VALUE] if self.conversion.names is None else [f"{VALUE}{number}" for number in range(len(columns))]
        # As one: a DataFrame made of nothing has no rows.
        return pd.concat([failures, *columns], axis=1, keys=[FAILED, *names])


def _as_series(array: pa.Array, kind: DataType) -> Any:
    """Values as a Series that Arrow converts back to the same: of objects, as pandas has no null integers."""
    import pandas as pd  # noqa: PLC0415 - an extra

    return pd.Series([_as_returned(each, kind) for each in array.to_pylist()], dtype=object)


def _as_returned(value: Any, kind: DataType) -> Any:
    """An Arrow value in the form in which a function returns it: Arrow represents maps as pairs."""
    if value is None:
        return None
    if isinstance(kind, MapType):
        return {_as_returned(key, kind.keyType): _as_returned(each, kind.valueType) for key, each in value}
    if isinstance(kind, ArrayType):
        return [_as_returned(each, kind.elementType) for each in value]
    if isinstance(kind, StructType):
        return {field.name: _as_returned(value[field.name], field.dataType) for field in kind.fields}
    return value


class TriedArrays(TriedBatches):
    """A function from Arrow arrays to an array."""

    def places(self, kept: Any) -> Any:
        """See :meth:`TriedBatches.places`."""
        import pyarrow.compute as pc  # noqa: PLC0415 - an extra

        return None if kept.true_count == len(kept) else pc.indices_nonzero(kept).to_pylist()

    def chosen(self, args: Sequence[Any], places: Any) -> Sequence[Any]:
        """See :meth:`TriedBatches.chosen`."""
        import pyarrow as pa  # noqa: PLC0415 - an extra

        return [each.take(pa.array(places, pa.int64())) for each in args]

    def cut(self, args: Sequence[Any], first: int, last: int) -> list[Any]:
        """See :meth:`TriedBatches.cut`."""
        return [each.slice(first, last - first) for each in args]

    def columns(self, found: Any) -> tuple[Sequence[Any], Sequence[pa.Array]]:
        """See :meth:`TriedBatches.columns`."""
        import pyarrow as pa  # noqa: PLC0415 - an extra

        array = found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found
        if not isinstance(array, pa.Array):
            raise TypeError(f"the function returned {type(found).__name__}, not an array of Arrow's")
        (kind,) = self.conversion.types
        array = array if array.type == kind else array.cast(kind, safe=self.conversion.safe)
        return [array], [array]

    def joined(self, count: int, places: Any, pieces: Sequence[Piece]) -> Any:
        """See :meth:`TriedBatches.joined`."""
        import pyarrow as pa  # noqa: PLC0415 - an extra

        if places is None and len(pieces) == 1 and pieces[0].found is not None:
            values, failures = pieces[0].arrays, pa.nulls(count, pa.string())
        else:
            values, failures = self.arrays(count, places, pieces)
        return pa.StructArray.from_arrays([failures, *values], [FAILED, VALUE])


@dataclass(frozen=True)
class _Batch:
    """A batch given to an iterator's function: its rows, those that are kept, and its arguments for them."""

    count: int
    places: Any
    kept: int
    args: Any


class TriedIterator(TriedFunction):
    """A function from an iterator of batches to one of results, each for the earliest unanswered batch.

    Where it raises it is called again, with halves of what it was given, and then with the rest of the input.

    Args:
        batches: The corresponding function of a single batch.
    """

    def __init__(self, batches: TriedBatches) -> None:
        self._batches = batches

    def load(self) -> None:
        """See :meth:`TriedFunction.load`."""
        # By its own `__reduce__`.

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        """The values and failures, batch by batch."""
        given: deque[_Batch] = deque()
        fed = _Fed(self._batches, batches, given)
        results: Iterator[Any] | None = None
        while True:
            try:
                if results is None:
                    results = iter(self._batches.function(fed))
                found = next(results)
            except StopIteration:
                break
            except Exception:
                # Something that a worker has not been sent is no fault of a row, nor is a function that fails before it
                # reads.
                if fed.broken or not any(each.kept for each in given):
                    raise
                results = None
                yield from self._tried(given)
                continue
            yield from self._empty(given)
            if not given:
                raise RuntimeError("the function returned more batches than it was given")
            batch = given.popleft()
            try:
                pieces = [self._batches.piece(found, batch.kept)]
            except Exception:  # noqa: BLE001 - as where the function raises
                pieces = self._halved(batch)
            yield self._batches.joined(batch.count, batch.places, pieces)
        # For any other batches it has returned nothing, which Spark refuses.
        yield from self._empty(given)

    def _empty(self, given: deque[_Batch]) -> Iterator[Any]:
        """The next batches that have no rows to compute."""
        while given and not given[0].kept:
            batch = given.popleft()
            yield self._batches.joined(batch.count, batch.places, [])

    def _tried(self, given: deque[_Batch]) -> Iterator[Any]:
        """Everything that was given and not answered."""
        while given:
            batch = given.popleft()
            pieces = self._halved(batch) if batch.kept else []
            yield self._batches.joined(batch.count, batch.places, pieces)

    def _halved(self, batch: _Batch) -> list[Piece]:
        def run(first: int, last: int) -> Any:
            cut = self._batches.cut(batch.args, first, last)
            found = list(self._batches.function(iter([cut[0] if len(cut) == 1 else tuple(cut)])))
            if len(found) != 1:
                raise ValueError(f"the function returned {len(found)} batches for one")
            return found[0]

        return self._batches.halved(run, 0, batch.kept)


class _Fed:
    """The input of a function, which continues after what was read if the function is called again."""

    def __init__(self, kind: TriedBatches, batches: Iterator[Any], given: deque[_Batch]) -> None:
        self._kind = kind
        self._batches = batches
        self._given = given
        self.broken = False

    def __iter__(self) -> _Fed:
        return self

    def __next__(self) -> Any:
        while True:
            try:
                kept, *args = next(self._batches)
            except StopIteration:
                raise
            except BaseException:
                self.broken = True
                raise
            places = self._kind.places(kept)
            chosen = args if places is None else self._kind.chosen(args, places)
            count = len(kept) if places is None else len(places)
            self._given.append(_Batch(len(kept), places, count, chosen))
            if count:
                return chosen[0] if len(chosen) == 1 else tuple(chosen)
