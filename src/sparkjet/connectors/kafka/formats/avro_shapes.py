"""Avro's types: the shape of a reader's schema, and whether a writer's numbers mean what a reader takes them for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
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
    "bytes": shapes.BINARY.by(lambda value: value.encode("latin-1") if isinstance(value, str) else value),
    "string": shapes.STRING,
}
"""Of bytes, a default of the schema is a text."""
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
"""What Spark has no type for stays what it is below its logical type, as in Spark's reader: time of day, mostly."""
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
        """What a part of it stands for, where it is a name."""
        return self.named.get(schema, schema) if isinstance(schema, str) else schema


def shape_of(schema: Schema, option: str) -> Shape:
    """The shape of what is read with a schema.

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
            return shapes.BINARY.by(lambda value: _bytes(_unwrapped(value)))
        return _PRIMITIVES[kind]

    def _special(self, part: Mapping[str, Any], kind: str) -> Shape | None:
        logical = part.get("logicalType")
        if logical == "decimal" and kind in ("bytes", "fixed"):
            precision, scale = part["precision"], part.get("scale", 0)
            if precision > _MOST_DIGITS:
                message = (
                    f"option: {self._option}: {part.get('name', 'a field')} is a decimal of {precision} digits; Spark "
                    f"has {_MOST_DIGITS} at most. Leave it out of {self._option}, or leave its logicalType out there."
                )
                raise AnalysisError(message)
            return shapes.decimal(precision, scale).by(
                lambda value: shapes.exact(int.from_bytes(_bytes(_unwrapped(value)), "big", signed=True), scale)
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
        picks = [_pick(self._schema.at(branch)) for branch in some]
        members = [Field(f"member{number}", self.of(branch, within)) for number, branch in enumerate(some)]
        return Struct(members, lambda value, name: value if picks[int(name[6:])](value) else None)


class _Unwrapping(Shape):
    """Values of a named type, which in unions come with its name."""

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self.spark, self.arrow = shape.spark, shape.arrow

    def parts(self) -> Sequence[Field]:
        return self._shape.parts()

    def array(self, values: Sequence[Any]) -> Any:
        return self._shape.array([_unwrapped(value) for value in values])


def _unwrapped(value: Any) -> Any:
    return value[1] if type(value) is tuple else value


def _bytes(value: Any) -> bytes:
    return value.encode("latin-1") if isinstance(value, str) else value


def _kind(part: Any) -> str:
    found = part.get("type") if isinstance(part, dict) else part
    return found if isinstance(found, str) else "null" if found is None else "union"


_PYTHON: Mapping[str, tuple[type, ...]] = {
    "boolean": (bool,),
    "int": (int,),
    "long": (int,),
    "float": (float,),
    "double": (float,),
    "bytes": (bytes,),
    "string": (str,),
    "array": (list,),
    "map": (dict,),
}


def _pick(branch: Any) -> Callable[[Any], bool]:
    """Whether a value is one of a branch of a union."""
    kind = _kind(branch)
    if kind not in _NAMED:
        kinds = _PYTHON[kind]
        return lambda value: type(value) in kinds
    name = branch["name"].rpartition(".")[2]
    fields = {each["name"] for each in branch.get("fields", ())}

    def named(value: Any) -> bool:
        if type(value) is tuple:
            return bool(value[0].rpartition(".")[2] == name)
        # The writer had no union here, so nothing says which record it is but its fields.
        return isinstance(value, dict) and value.keys() == fields

    return named


def differences(writer: Schema, reader: Schema) -> Iterator[str]:
    """Where numbers of a writer mean something else than a reader takes them for: no error would tell."""
    yield from _differences(writer, writer.root, reader, reader.root, "value")


def _differences(writer: Schema, wrote: Any, reader: Schema, reads: Any, where: str) -> Iterator[str]:
    wrote, reads = writer.at(wrote), reader.at(reads)
    if isinstance(wrote, list) or isinstance(reads, list):
        pairs = product(wrote if isinstance(wrote, list) else [wrote], reads if isinstance(reads, list) else [reads])
        for branch, other in pairs:
            if _alike(writer.at(branch), reader.at(other)):
                yield from _differences(writer, branch, reader, other, where)
        return
    if _meaning(wrote) != _meaning(reads):
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


def _alike(branch: Any, other: Any) -> bool:
    names = [each.get("name") if isinstance(each, dict) else None for each in (branch, other)]
    return _kind(branch) == _kind(other) and names[0] == names[1]


def _meaning(part: Any) -> str | None:
    """What the numbers of a type mean; None if they are plain ones, or no numbers."""
    if not isinstance(part, dict):
        return None
    logical = part.get("logicalType")
    if logical == "decimal":
        return f"a decimal with {part.get('scale', 0)} digits behind the point"
    # These are texts and bytes in any case.
    return logical if logical not in {None, "uuid", "duration"} else semantics.connect_name(part)


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
