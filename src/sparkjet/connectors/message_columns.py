"""Message columns: which columns of a result make a broker's message, and of which types."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from pyspark.sql import types as T

from sparkjet.catalyst.columns import MARKS
from sparkjet.errors import AnalysisError

TEXT_TYPES = (T.StringType, T.VarcharType, T.CharType)


class Kind(NamedTuple):
    """The type that a column must have: its name in messages, and whether another type is one."""

    name: str
    fits: Callable[[T.DataType], bool]

    @staticmethod
    def of(name: str, *types: type[T.DataType]) -> Kind:
        """One of some types."""
        return Kind(name, lambda kind: isinstance(kind, types))


def _maps_texts(kind: T.DataType) -> bool:
    return isinstance(kind, T.MapType) and all(isinstance(each, TEXT_TYPES) for each in (kind.keyType, kind.valueType))


TEXT = Kind.of("string", *TEXT_TYPES)
BYTES = Kind.of("string or binary", *TEXT_TYPES, T.BinaryType)
TEXTS = Kind("map<string,string>", _maps_texts)
_MARK = Kind.of("boolean", T.BooleanType)


@dataclass(frozen=True)
class MessageColumns:
    """The columns of one format.

    Attributes:
        format: Its name.
        message: What a message is called.
        body: The column that each message needs.
        kinds: The types of all columns.
        example: Makes a message of a result.
        beside: Where else a column may be put.
    """

    format: str
    message: str
    body: str
    kinds: Mapping[str, Kind]
    example: str
    beside: str = ""

    def check(self, schema: T.StructType) -> None:
        """Refuse rows that are not messages."""
        names, known = schema.fieldNames(), {**self.kinds, **dict.fromkeys(MARKS, _MARK)}
        if self.body not in names:
            message = (
                f"{self.format}: the result needs a column {self.body}, e.g. {self.example}. Columns: "
                f"{', '.join(names)}"
            )
            raise AnalysisError(message)
        for field in schema.fields:
            if field.name not in known or names.count(field.name) > 1:
                message = (
                    f"{self.format}: column {field.name!r} would be dropped; a {self.message} has "
                    f"{', '.join(self.kinds)}, each once. Put it into the {self.body}, e.g. {self.example}"
                    f"{self.beside}."
                )
                raise AnalysisError(message)
            kind = known[field.name]
            if not kind.fits(field.dataType):
                message = (
                    f"{self.format}: column {field.name!r} has type {field.dataType.simpleString()}, but must have "
                    f"{kind.name}. Cast it, or make it text with F.to_json."
                )
                raise AnalysisError(message)
