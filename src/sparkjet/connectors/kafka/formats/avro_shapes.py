"""Avro's types: the shape of a reader's schema, and whether writer and reader mean the same by a number."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sparkjet.connectors.kafka.formats import semantics, shapes
from sparkjet.connectors.kafka.formats.shapes import Array, Field, Map, Shape, Struct
from sparkjet.errors import AnalysisError

_PRIMITIVES = {
    "null": shapes.NULL,
    "boolean": shapes.BOOLEAN,
    "int": shapes.INT,
    "long": shapes.LONG,
    "float": shapes.FLOAT,
    "double": shapes.DOUBLE,
    "bytes": shapes.BINARY,
    "string": shapes.STRING,
}
_WIDENED = {frozenset({"int", "long"}): "long", frozenset({"float", "double"}): "double"}
"""Unions that are one type in Spark, as in its own reader of Avro."""
_NAMED = ("record", "error", "enum", "fixed")
_MOST_DIGITS = 38
_LOGICAL: Mapping[tuple[str, str], Shape] = {
    ("int", "date"): shapes.DATE,
    ("long", "timestamp-millis"): semantics.MILLISECONDS,
    ("long", "timestamp-micros"): shapes.TIMESTAMP,
    ("long", "timestamp-nanos"): semantics.NANOSECONDS,
    ("long", "local-timestamp-millis"): shapes.TIMESTAMP_NTZ.by(lambda value: value * 1000),
    ("long", "local-timestamp-micros"): shapes.TIMESTAMP_NTZ,
    ("long", "local-timestamp-nanos"): shapes.TIMESTAMP_NTZ.by(lambda value: value // 1000),
}
"""Shapes of logical types; others, mostly times of day, keep the type below: Spark has no type for them."""
_DURATION = Struct(
    [Field(name, shapes.LONG) for name in ("months", "days", "milliseconds")],
    lambda value, name: int.from_bytes(
        value[(at := ("months", "days", "milliseconds").index(name) * 4) : at + 4], "little"
    ),
)


@dataclass(frozen=True)
class Schema:
    """A parsed schema, in which every name is a full one.

    Attributes:
        root: The schema.
        named: Those that it names.
    """

    root: Any
    named: Mapping[str, Any]

    def at(self, schema: Any) -> Any:
        """The part that a name stands for; any other part as it is."""
        return self.named.get(schema, schema) if isinstance(schema, str) else schema


def shape_of(schema: Schema, option: str) -> Shape:
    """The shape of values that are read with a schema.

    Raises:
        AnalysisError: Spark has no type for a part of it.
    """
    return _Shapes(schema, option).of(schema.root, ())


class _Shapes:
    """Makes shapes of the parts of one schema."""

    def __init__(self, schema: Schema, option: str) -> None:
        self._schema, self._option = schema, option

    def of(self, part: Any, within: tuple[str, ...]) -> Shape:
        part = self._schema.at(part)
        if isinstance(part, list):
            return self._union(part, within)
        if not isinstance(part, dict):
            return _PRIMITIVES[part]
        kind = part["type"]
        if isinstance(kind, dict | list) or kind in self._schema.named:
            # As {"type": {"type": "string"}}, which some writers make.
            return self.of(kind, within)
        return self._special(part, kind) or self._with_parts(part, kind, within)

    def _with_parts(self, part: Mapping[str, Any], kind: str, within: tuple[str, ...]) -> Shape:
        if kind in ("record", "error"):
            return self._record(part, within)
        if kind == "array":
            return Array(self.of(part["items"], within))
        if kind == "map":
            return Map(shapes.STRING, self.of(part["values"], within))
        if kind == "enum":
            return shapes.STRING.by(_unwrapped)
        if kind == "fixed":
            return shapes.BINARY.by(_unwrapped)
        return _PRIMITIVES[kind]

    def _special(self, part: Mapping[str, Any], kind: str) -> Shape | None:
        logical = part.get("logicalType")
        if _is_decimal(part):
            precision, scale = part["precision"], part.get("scale", 0)
            if precision > _MOST_DIGITS:
                message = (
                    f"option: {self._option}: {part.get('name', 'a field')} is a decimal of {precision} digits; Spark "
                    f"has {_MOST_DIGITS} at most. Leave it out of {self._option}, or leave its logicalType out there."
                )
                raise AnalysisError(message)
            return shapes.decimal(precision, scale).by(
                lambda value: shapes.exact(int.from_bytes(_unwrapped(value), "big", signed=True), scale)
            )
        if logical == "duration" and kind == "fixed":
            return _Unwrapping(_DURATION)
        if logical == "uuid" and kind == "fixed":
            return shapes.STRING.by(semantics.uuid_text(_unwrapped))
        found = _LOGICAL.get((kind, str(logical)))
        return semantics.of_connect(kind, part) if found is None else found

    def _record(self, part: Mapping[str, Any], within: tuple[str, ...]) -> Shape:
        name = part["name"]
        if name in within:
            message = (
                f"option: {self._option}: {name} contains itself, which no type of Spark can. Leave the field out of "
                f"{self._option}."
            )
            raise AnalysisError(message)
        fields = [Field(each["name"], self.of(each["type"], (*within, name))) for each in part["fields"]]
        connect = semantics.of_connect_record(part)
        return _Unwrapping(Struct(fields) if connect is None else connect)

    def _union(self, branches: Sequence[Any], within: tuple[str, ...]) -> Shape:
        some = [branch for branch in branches if _kind(self._schema.at(branch)) != "null"]
        if not some:
            return shapes.NULL
        if len(some) == 1:
            return self.of(some[0], within)
        kinds = [each if isinstance(each, str) else "" for each in some]
        if frozenset(kinds) in _WIDENED:
            return _PRIMITIVES[_WIDENED[frozenset(kinds)]]
        branches = [self._schema.at(branch) for branch in some]
        self._check(branches)
        choose = _Choice(branches)
        members = [Field(f"member{number}", self.of(branch, within)) for number, branch in enumerate(some)]
        return Struct(members, lambda value, name: value if choose(value) == int(name[6:]) else None)

    def _check(self, branches: Sequence[Any]) -> None:
        """Refuse a union whose values do not tell its numbers apart, such as days and a plain long."""
        for kinds in _WIDENED:
            alike = [branch for branch in branches if _kind(branch) in kinds]
            if len(alike) > 1 and any(_meaning(branch) for branch in alike):
                names = " and ".join(_meaning(branch) or _kind(branch) for branch in alike)
                message = (
                    f"option: {self._option}: a union of {names}: a value does not tell which of them it is. Leave one "
                    f"of them out of {self._option}."
                )
                raise AnalysisError(message)


class _Unwrapping(Shape):
    """Values of a named type; in unions they come with its name."""

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self.spark, self.arrow = shape.spark, shape.arrow

    def parts(self) -> Sequence[Field]:
        return self._shape.parts()

    def array(self, values: Sequence[Any]) -> Any:
        return self._shape.array([_unwrapped(value) for value in values])


def _unwrapped(value: Any) -> Any:
    return value[1] if type(value) is tuple else value


def _kind(part: Any) -> str:
    found = part.get("type") if isinstance(part, dict) else part
    return found if isinstance(found, str) else "null" if found is None else "union"


_PYTHON: Mapping[type, tuple[str, ...]] = {
    bool: ("boolean",),
    # Nothing tells an int from a long: the wider one has both.
    int: ("long", "int", "double", "float"),
    float: ("double", "float"),
    bytes: ("bytes", "fixed"),
    str: ("string", "enum"),
    list: ("array",),
}
"""The kinds of values in a union, the likeliest first."""


class _Choice:
    """The branch of a union that a value belongs to; None if there is none."""

    def __init__(self, branches: Sequence[Any]) -> None:
        self._kinds: dict[str, int] = {}
        self._full: dict[str, int] = {}
        self._short: dict[str, int] = {}
        self._records: list[tuple[set[str], int]] = []
        for number, branch in enumerate(branches):
            kind = _kind(branch)
            self._kinds.setdefault(kind, number)
            if kind in _NAMED:
                self._full[branch["name"]] = number
                # A writer may have another namespace.
                for name in (branch["name"], *branch.get("aliases", ())):
                    self._short.setdefault(_short(name), number)
            if kind in ("record", "error"):
                self._records.append(({each["name"] for each in branch["fields"]}, number))

    def __call__(self, value: Any) -> int | None:
        if type(value) is tuple:
            name = value[0]
            return self._full.get(name, self._short.get(_short(name)))
        if isinstance(value, dict):
            # The writer had no union here, so nothing says which record it is but its fields.
            found = next((number for fields, number in self._records if value.keys() == fields), None)
            return self._kinds.get("map") if found is None else found
        return next((self._kinds[kind] for kind in _PYTHON.get(type(value), ()) if kind in self._kinds), None)


def _short(name: str) -> str:
    return name.rpartition(".")[2]


def complete(schema: Schema) -> None:
    """Convert the defaults in a schema to the values that reading gives: JSON has neither bytes nor names."""
    done: set[int] = set()

    def within(part: Any) -> None:
        part = schema.at(part)
        if isinstance(part, list):
            for branch in part:
                within(branch)
        if not isinstance(part, dict) or id(part) in done:
            return
        done.add(id(part))
        for each in part.get("fields", ()):
            if "default" in each:
                each["default"] = _read(schema, each["type"], each["default"])
            within(each["type"])
        for name in ("type", "items", "values"):
            if name in part:
                within(part[name])

    within(schema.root)


def _read(schema: Schema, part: Any, default: Any) -> Any:
    """A default as if it had been read; unchanged if it is not of its type, as with some writers."""
    part = schema.at(part)
    if isinstance(part, list) and default is not None:
        # It is one of the first branch.
        branch = schema.at(part[0])
        value = _read(schema, branch, default)
        some = [each for each in part if _kind(schema.at(each)) != "null"]
        return (branch["name"], value) if len(some) > 1 and _kind(branch) in _NAMED else value
    if _kind(part) == "union" and isinstance(part, dict):
        return _read(schema, part["type"], default)
    if isinstance(part, dict) and isinstance(default, list | dict):
        return _read_within(schema, part, default)
    if isinstance(default, str) and _kind(part) in ("bytes", "fixed"):
        return default.encode("latin-1")
    if type(default) is int and _kind(part) in ("float", "double"):
        return float(default)
    return default


def _read_within(schema: Schema, part: Mapping[str, Any], default: list[Any] | dict[str, Any]) -> Any:
    if "items" in part and isinstance(default, list):
        return [_read(schema, part["items"], each) for each in default]
    if "values" in part and isinstance(default, dict):
        return {name: _read(schema, part["values"], each) for name, each in default.items()}
    if "fields" in part and isinstance(default, dict):
        given = {each["name"]: each["default"] for each in part["fields"] if "default" in each} | default
        known = [each for each in part["fields"] if each["name"] in given]
        return {each["name"]: _read(schema, each["type"], given[each["name"]]) for each in known}
    return default


def differences(writer: Schema, reader: Schema) -> Iterator[str]:
    """Where a writer means something else by a number than the reader: there would be no error."""
    yield from _differences(writer, writer.root, reader, reader.root, "value")


def _differences(writer: Schema, wrote: Any, reader: Schema, reads: Any, where: str) -> Iterator[str]:
    wrote, reads = writer.at(wrote), reader.at(reads)
    if isinstance(wrote, list) or isinstance(reads, list):
        others = [reader.at(other) for other in (reads if isinstance(reads, list) else [reads])]
        for branch in wrote if isinstance(wrote, list) else [wrote]:
            for other in _resolved(writer.at(branch), others):
                if not isinstance(wrote, list) and any(_like(other, each) for each in others if each is not other):
                    yield f"{where} is {_kind(other)} {other['name']}, which no value tells from others of its union"
                yield from _differences(writer, branch, reader, other, where)
        return
    if _meaning(wrote) != _meaning(reads) and not _is_plain_bytes(reads):
        yield f"{where} is {_meaning(wrote) or _kind(wrote)}, and is read as {_meaning(reads) or _kind(reads)}"
        return
    if isinstance(wrote, dict) and isinstance(reads, dict):
        yield from _differences_within(writer, wrote, reader, reads, where)


def _differences_within(
    writer: Schema, wrote: Mapping[str, Any], reader: Schema, reads: Mapping[str, Any], where: str
) -> Iterator[str]:
    theirs = {each["name"]: each["type"] for each in wrote.get("fields", ())}
    for each in reads.get("fields", ()):
        names = [name for name in (each["name"], *each.get("aliases", ())) if name in theirs]
        if names:
            yield from _differences(writer, theirs[names[0]], reader, each["type"], f"{where}.{each['name']}")
    for parts in ("items", "values"):
        if parts in wrote and parts in reads:
            yield from _differences(writer, wrote[parts], reader, reads[parts], where)


_PROMOTED: Mapping[str, tuple[str, ...]] = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}
"""The other types that Avro may read a type as."""


def _resolved(branch: Any, others: Sequence[Any]) -> Sequence[Any]:
    """The branches of a reader as which one of a writer may be read."""
    kind = _kind(branch)
    same = [other for other in others if _kind(other) == kind]
    if kind in _NAMED:
        name = branch["name"]
        return [other for other in same if other["name"] == name] or [
            other
            for other in same
            if _short(name) in {_short(each) for each in (other["name"], *other.get("aliases", ()))}
        ]
    return same or [other for other in others if _kind(other) in _PROMOTED.get(kind, ())]


def _like(branch: Any, other: Any) -> bool:
    """Whether values of two branches look alike without their names, as from a writer without a union."""
    kind = _kind(branch)
    if kind not in _NAMED or _kind(other) != kind:
        return False
    names = [{each["name"] for each in part.get("fields", ())} for part in (branch, other)]
    return names[0] == names[1]


def _is_plain_bytes(part: Any) -> bool:
    """Whether a decimal is read as it was written, which allows more digits than Spark's decimals have."""
    return _kind(part) in ("bytes", "fixed") and _meaning(part) is None


_TIMES_OF_DAY = {("int", "time-millis"), ("long", "time-micros"), ("long", "time-nanos")}


def _is_decimal(part: Mapping[str, Any]) -> bool:
    # Without its precision it is none, by the rules of Avro.
    return part.get("logicalType") == "decimal" and part.get("type") in ("bytes", "fixed") and "precision" in part


def _meaning(part: Any) -> str | None:
    """The meaning of the numbers of a type; None if they are plain, or not numbers."""
    if not isinstance(part, dict):
        return None
    if _is_decimal(part):
        return f"a decimal with {part.get('scale', 0)} decimal places"
    kind, logical = _kind(part), str(part.get("logicalType"))
    if (kind, logical) in _LOGICAL or (kind, logical) in _TIMES_OF_DAY:
        return logical
    # What else there is, Avro has everyone ignore; and a text says itself what it is.
    return semantics.connect_name(part) if kind in ("int", "long", "bytes", "fixed") else None


def unmeant(part: Any) -> Any:
    """A schema without logical types: numbers come as they were written, and shapes make columns of them."""
    if isinstance(part, list):
        return [unmeant(each) for each in part]
    if not isinstance(part, dict):
        return part
    kept = {name: value for name, value in part.items() if name != "logicalType"}
    for parts in ("type", "items", "values"):
        if parts in kept:
            kept[parts] = unmeant(kept[parts])
    if "fields" in kept:
        kept["fields"] = [unmeant(each) for each in kept["fields"]]
    return kept
