"""State variables of the current key, as a user's processor holds them: Spark's classes over values in memory.

Runs in Spark's Python workers, and on the driver to find out what a processor declares.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from copy import deepcopy
from typing import Any

import pyarrow as pa
from pyspark.sql.streaming.stateful_processor import ListState, MapState, ValueState
from pyspark.sql.types import ArrayType, DataType, LongType, StructField, StructType

from sparkjet.stateful.functions.values import StateValues, arrow_of, lengths, split, written_lists

_Tuple = tuple[Any, ...]


class Expiry:
    """Tells when the values of a variable expire, by the epoch's clock.

    Args:
        ttl: Milliseconds that a value lives after its last update, None for forever.
    """

    def __init__(self, ttl: int | None) -> None:
        self.ttl = ttl
        self.now = 0
        self.changed = False
        """Whether anything was changed since the key was opened."""

    def of_update(self) -> int | None:
        """Expiry of what is written now."""
        self.changed = True
        return None if self.ttl is None else self.now + self.ttl

    def is_live(self, expires: int | None) -> bool:
        """Whether something has not expired."""
        return expires is None or expires > self.now


class StoredValue(ValueState):
    """A value; stored as ``struct<value, expires>``."""

    def __init__(self, schema: StructType, ttl: int | None) -> None:
        self.expiry = Expiry(ttl)
        self.type: DataType = _with_expiry(schema)
        self._values = StateValues(schema)
        self._value: _Tuple | None = None
        self._expires: int | None = None

    def open(self, stored: tuple[_Tuple, int | None] | None) -> None:
        """Hold the stored value of a key."""
        self.expiry.changed = False
        self._value, self._expires = stored or (None, None)
        if self._value is not None and not self.expiry.is_live(self._expires):
            self._value, self.expiry.changed = None, True

    def stored(self) -> tuple[_Tuple, int | None] | None:
        """The value to store; None if there is nothing."""
        return None if self._value is None else (self._value, self._expires)

    def exists(self) -> bool:
        """Same as in Spark."""
        return self._value is not None

    def get(self) -> _Tuple | None:
        """Same as in Spark; None without a value."""
        return self._value if self._values.immutable else deepcopy(self._value)

    def update(self, newValue: _Tuple) -> None:
        """Same as in Spark."""
        self._value = self._values.normalized(newValue)
        self._expires = self.expiry.of_update()

    def clear(self) -> None:
        """Same as in Spark."""
        self._value, self.expiry.changed = None, True

    def last_expiry(self) -> int | None:
        """When nothing of it will be left; None if that is never, or already the case."""
        return None if self._value is None else self._expires

    def read(self, array: pa.Array) -> list[tuple[_Tuple, int | None] | None]:
        """From a column of state."""
        pairs = zip(self._values.read(array.field("value")), array.field("expires").to_pylist(), strict=True)
        return [None if value is None else (value, expires) for value, expires in pairs]

    def write(self, stored: Sequence[tuple[_Tuple, int | None] | None]) -> pa.Array:
        """To a column of state."""
        pairs = [(None, None) if each is None else each for each in stored]
        return _struct([self._values.write([value for value, _ in pairs])], [expires for _, expires in pairs])


class StoredList(ListState):
    """A list; stored as ``array<struct<value, expires>>``."""

    def __init__(self, schema: StructType, ttl: int | None) -> None:
        self.expiry = Expiry(ttl)
        self.type: DataType = ArrayType(_with_expiry(schema))
        self._arrow = arrow_of(self.type)
        self._values = StateValues(schema)
        self._items: list[tuple[_Tuple, int | None]] = []

    def open(self, stored: list[tuple[_Tuple, int | None]] | None) -> None:
        """Hold the stored list of a key."""
        self.expiry.changed = False
        self._items = _live(stored or [], self.expiry)

    def stored(self) -> list[tuple[_Tuple, int | None]] | None:
        """The value to store; None if there is nothing."""
        return self._items or None

    def exists(self) -> bool:
        """Same as in Spark."""
        return bool(self._items)

    def get(self) -> Iterator[_Tuple]:
        """Same as in Spark, without what is appended in the meantime."""
        return iter([value if self._values.immutable else deepcopy(value) for value, _ in self._items])

    def put(self, newState: Iterable[_Tuple]) -> None:
        """Same as in Spark; an empty list removes the variable."""
        self._items = []
        self.appendList(newState)

    def appendValue(self, newState: _Tuple) -> None:
        """Same as in Spark."""
        self._items.append((self._values.normalized(newState), self.expiry.of_update()))

    def appendList(self, newState: Iterable[_Tuple]) -> None:
        """Same as in Spark."""
        expires = self.expiry.of_update()
        self._items += [(self._values.normalized(each), expires) for each in newState]

    def clear(self) -> None:
        """Same as in Spark."""
        self._items, self.expiry.changed = [], True

    def last_expiry(self) -> int | None:
        """When nothing of it will be left; None if that is never, or already the case."""
        return _last(expires for _, expires in self._items)

    def read(self, array: pa.Array) -> list[list[tuple[_Tuple, int | None]]]:
        """From a column of state."""
        items = array.flatten()
        pairs = zip(self._values.read(items.field("value")), items.field("expires").to_pylist(), strict=True)
        return split(pairs, lengths(array))

    def write(self, stored: Sequence[list[tuple[_Tuple, int | None]] | None]) -> pa.Array:
        """To a column of state."""
        flat = [pair for each in stored for pair in each or ()]
        items = _struct([self._values.write([value for value, _ in flat])], [expires for _, expires in flat])
        return written_lists(stored, items, self._arrow)


class StoredMap(MapState):
    """A map; stored as ``array<struct<key, value, expires>>``, in the order of first updates."""

    def __init__(self, key_schema: StructType, schema: StructType, ttl: int | None) -> None:
        self.expiry = Expiry(ttl)
        self.type: DataType = ArrayType(StructType([StructField("key", key_schema), *_with_expiry(schema).fields]))
        self._arrow = arrow_of(self.type)
        self._keys, self._values = StateValues(key_schema), StateValues(schema)
        self._entries: dict[Hashable, tuple[tuple[_Tuple, _Tuple], int | None]] = {}

    def open(self, stored: list[tuple[tuple[_Tuple, _Tuple], int | None]] | None) -> None:
        """Hold the stored map of a key."""
        self.expiry.changed = False
        self._entries = {self._keys.identity(each[0][0]): each for each in _live(stored or [], self.expiry)}

    def stored(self) -> list[tuple[tuple[_Tuple, _Tuple], int | None]] | None:
        """The value to store; None if there is nothing."""
        return list(self._entries.values()) or None

    def exists(self) -> bool:
        """Same as in Spark."""
        return bool(self._entries)

    def getValue(self, key: _Tuple) -> _Tuple | None:
        """Same as in Spark; None without a value."""
        found = self._entries.get(self._identity(key))
        return None if found is None else self._out(found[0][1])

    def containsKey(self, key: _Tuple) -> bool:
        """Same as in Spark."""
        return self._identity(key) in self._entries

    def updateValue(self, key: _Tuple, value: _Tuple) -> None:
        """Same as in Spark."""
        pair = self._keys.normalized(key), self._values.normalized(value)
        self._entries[self._keys.identity(pair[0])] = (pair, self.expiry.of_update())

    def iterator(self) -> Iterator[tuple[_Tuple, _Tuple]]:
        """Same as in Spark; the map may be changed in the meantime."""
        return iter([(key, self._out(value)) for (key, value), _ in self._entries.values()])

    def keys(self) -> Iterator[_Tuple]:
        """Same as in Spark; the map may be changed in the meantime."""
        return iter([key for (key, _), _ in self._entries.values()])

    def values(self) -> Iterator[_Tuple]:
        """Same as in Spark; the map may be changed in the meantime."""
        return iter([self._out(value) for (_, value), _ in self._entries.values()])

    def removeKey(self, key: _Tuple) -> None:
        """Same as in Spark."""
        if self._entries.pop(self._identity(key), None) is not None:
            self.expiry.changed = True

    def clear(self) -> None:
        """Same as in Spark."""
        self._entries, self.expiry.changed = {}, True

    def last_expiry(self) -> int | None:
        """When nothing of it will be left; None if that is never, or already the case."""
        return _last(expires for _, expires in self._entries.values())

    def read(self, array: pa.Array) -> list[list[tuple[tuple[_Tuple, _Tuple], int | None]]]:
        """From a column of state."""
        items = array.flatten()
        pairs = zip(self._keys.read(items.field("key")), self._values.read(items.field("value")), strict=True)
        return split(zip(pairs, items.field("expires").to_pylist(), strict=True), lengths(array))

    def write(self, stored: Sequence[list[tuple[tuple[_Tuple, _Tuple], int | None]] | None]) -> pa.Array:
        """To a column of state."""
        flat = [each for entries in stored for each in entries or ()]
        keys = self._keys.write([key for (key, _), _ in flat])
        values = self._values.write([value for (_, value), _ in flat])
        return written_lists(stored, _struct([keys, values], [expires for _, expires in flat]), self._arrow)

    def _identity(self, key: _Tuple) -> Hashable:
        return self._keys.identity(self._keys.normalized(key))

    def _out(self, value: _Tuple) -> _Tuple:
        return value if self._values.immutable else deepcopy(value)


Variable = StoredValue | StoredList | StoredMap


def _with_expiry(schema: StructType) -> StructType:
    return StructType([StructField("value", schema), StructField("expires", LongType())])


def _live(stored: list[Any], expiry: Expiry) -> list[Any]:
    if expiry.ttl is None:
        return stored
    live = [each for each in stored if expiry.is_live(each[1])]
    expiry.changed = expiry.changed or len(live) < len(stored)
    return live


def _last(expiries: Iterable[int | None]) -> int | None:
    found = list(expiries)
    return None if not found or None in found else max(found)  # type: ignore[type-var]


def _struct(columns: Sequence[pa.Array], expires: Sequence[int | None]) -> pa.Array:
    """Columns and expiry, as a struct array."""
    names = ["key", "value"][-len(columns) :]
    return pa.StructArray.from_arrays([*columns, pa.array(expires, pa.int64())], [*names, "expires"])
