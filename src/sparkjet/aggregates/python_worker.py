"""The parts of an aggregate written in Python, run over Arrow arrays.

Runs in Spark's Python workers, to which this module is shipped with the functions. Errors of the user's code and values
of the wrong type become a :class:`PartError`, which Spark forwards to the driver as text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from itertools import accumulate, islice
from typing import Any

import pyarrow as pa

from sparkjet.aggregates.arrow_values import UnfitValueError, read, write

_LONGEST_SHOWN = 300


class PartError(Exception):
    """A part of an aggregate written in Python failed; the message names the part and the values."""

    condition = "SPARKJET_AGGREGATE"

    def __str__(self) -> str:
        # Not an error of sparkjet.errors, which is not shipped: Spark forwards its text.
        return f"[{self.condition}] {super().__str__()}"


@dataclass(frozen=True)
class PythonParts:
    """The user's functions and their return types.

    A group is an element of a list array. In groups, accumulators are structs of one field, because ``collect_list``
    omits nulls, and null is a valid accumulator.

    Attributes:
        name: Name of the aggregate in messages.
        create: The user's function for an empty accumulator.
        accumulate: The user's function that adds a row.
        combine: The user's function that puts two accumulators together.
        finish: The user's function for the result.
        deduct: The user's function that takes an accumulator out of another, or None.
        accumulator: The declared type of an accumulator.
        result: The declared type of a result.
        as_dict: Whether the user's accumulators are dicts instead of tuples.
    """

    name: str
    create: Callable[[], Any]
    accumulate: Callable[..., Any]
    combine: Callable[[Any, Any], Any]
    finish: Callable[[Any], Any]
    deduct: Callable[[Any, Any], Any] | None
    accumulator: pa.DataType
    result: pa.DataType
    as_dict: bool

    def accumulate_groups(self, groups: pa.Array) -> pa.Array:
        """One accumulator per group of input rows."""
        rows = zip(*(read(column) for column in groups.flatten().flatten()), strict=True)
        done = []
        for length in groups.value_lengths().to_pylist():
            value = self._call("create", self.create)
            row: tuple[Any, ...] = ()
            try:
                for row in islice(rows, length):
                    value = self.accumulate(value, *row)
            except Exception as error:
                raise self._failed("accumulate", (value, *row), error) from error
            done.append(value)
        return self._written("accumulate", done, self.accumulator)

    def combine_groups(self, groups: pa.Array) -> pa.Array:
        """One accumulator per group of accumulators."""
        items = iter(self._read(groups.flatten().field(0)))
        done = []
        for length in groups.value_lengths().to_pylist():
            value = next(items)
            for item in islice(items, length - 1):
                value = self._call("combine", self.combine, value, item)
            done.append(value)
        return self._written("combine", done, self.accumulator)

    def scan_groups(self, groups: pa.Array) -> pa.Array:
        """Each group, with element i replaced by the combination of elements 0 to i."""
        items = iter(self._read(groups.flatten().field(0)))
        lengths = groups.value_lengths().to_pylist()
        done = []
        for length in lengths:
            value: Any = None
            for position, item in enumerate(islice(items, length)):
                value = item if position == 0 else self._call("combine", self.combine, value, item)
                # A combine that modifies its first argument would change the stored elements.
                done.append(value if self._immutable else deepcopy(value))
        combined = self._written("combine", done, self.accumulator)
        field = pa.field(groups.type.value_type.field(0).name, self.accumulator)
        return pa.ListArray.from_arrays(
            pa.array(accumulate(lengths, initial=0), pa.int32()), pa.StructArray.from_arrays([combined], fields=[field])
        )

    def combine_pairs(self, left: pa.Array, right: pa.Array) -> pa.Array:
        """The two accumulators of each row, combined."""
        return self._pairs("combine", self.combine, left, right)

    def deduct_pairs(self, left: pa.Array, right: pa.Array) -> pa.Array:
        """The left accumulator of each row minus the right one."""
        assert self.deduct is not None  # noqa: S101 - called only where there is one
        return self._pairs("deduct", self.deduct, left, right)

    def finish_all(self, accumulators: pa.Array) -> pa.Array:
        """The result of each accumulator."""
        done = [self._call("finish", self.finish, value) for value in self._read(accumulators)]
        return self._written("finish", done, self.result)

    def created(self) -> Any:
        """The result of ``create``, structs as dicts; called on the driver, to check it before the query starts."""
        return read(self._written("create", [self._call("create", self.create)], self.accumulator))[0]

    def _pairs(self, part: str, function: Callable[[Any, Any], Any], left: pa.Array, right: pa.Array) -> pa.Array:
        pairs = zip(self._read(left), self._read(right), strict=True)
        return self._written(part, [self._call(part, function, *pair) for pair in pairs], self.accumulator)

    def _read(self, accumulators: pa.Array) -> list[Any]:
        return read(accumulators, as_dict=self.as_dict)

    def _call(self, part: str, function: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return function(*arguments)
        except Exception as error:
            raise self._failed(part, arguments, error) from error

    @property
    def _immutable(self) -> bool:
        return not self.as_dict and not any(map(pa.types.is_nested, _fields(self.accumulator)))

    def _written(self, part: str, values: Sequence[Any], declared: pa.DataType) -> pa.Array:
        try:
            return write(values, declared)
        except UnfitValueError as error:
            message = (
                f"{self.name}: {part} returned {_shown(error.value)}: {error.reason}. The declared type is {declared}."
            )
            raise PartError(message) from error

    def _failed(self, part: str, arguments: Sequence[Any], error: Exception) -> PartError:
        shown = ", ".join(map(_shown, arguments))
        return PartError(f"{self.name}: {part}({shown}) raised {type(error).__name__}: {error}")


def _fields(declared: pa.DataType) -> list[pa.DataType]:
    if not pa.types.is_struct(declared):
        return [declared]
    return [declared.field(i).type for i in range(declared.num_fields)]


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[:_LONGEST_SHOWN]}…"
