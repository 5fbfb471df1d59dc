"""Types of columns, and texts of values that the source has and the query casts: every type, and its corners."""

from __future__ import annotations

from dataclasses import dataclass

NUMBERS = frozenset({"key", "order", "number"})
EXACT = NUMBERS | {"exact"}
KEY = frozenset({"key", "order"})


@dataclass(frozen=True)
class Type:
    """A type of Spark's, with values that are worth trying.

    Attributes:
        ddl: Its name in SQL.
        texts: Values as the source has them.
        traits: What can be done with it: be a ``key``, have an ``order``, be a ``number``, add up ``exact``, …
        read: The value of a text, in SQL.
        alike: Texts of values that are equal though they are not the same.
    """

    ddl: str
    texts: tuple[str, ...]
    traits: frozenset[str] = frozenset()
    read: str = "CAST({} AS {ddl})"
    alike: tuple[str, ...] = ()

    def of(self, column: str) -> str:
        """The value of a column of texts, in SQL."""
        return self.read.format(column, ddl=self.ddl)


def _json(ddl: str, *texts: str, traits: frozenset[str] = frozenset(), alike: tuple[str, ...] = ()) -> Type:
    return Type(ddl, texts, traits, "from_json({}, '{ddl}')", alike)


# Fractions of two add up to the same sum in every order.
_FLOATS = ("0", "-0.0", "1.5", "-2.25", "NaN", "0.5", "1024", "-1")
_ZEROS = ("0", "-0.0")
TYPES = (
    Type("boolean", ("true", "false"), KEY | {"boolean"}),
    Type("tinyint", ("-128", "127", "0", "1"), EXACT | {"integral"}),
    Type("smallint", ("-32768", "32767", "0", "3"), EXACT | {"integral"}),
    Type("int", ("-2147483648", "2147483647", "0", "7"), EXACT | {"integral"}),
    Type("bigint", ("-4611686018427387", "4611686018427387", "0", "-5", "12"), EXACT | {"integral"}),
    Type("float", _FLOATS, NUMBERS, alike=_ZEROS),
    Type("double", _FLOATS, NUMBERS, alike=_ZEROS),
    Type("decimal(5,2)", ("999.99", "-999.99", "0.00", "0.01", "1.50"), EXACT),
    Type("decimal(20,4)", ("9999999999999999.9999", "-0.0001", "0", "12.5"), EXACT),
    Type("decimal(38,10)", ("1234567890123456789012345.0000000001", "-1.5", "0"), EXACT - {"exact"}),
    Type("string", ("", "a", "A", "b ", "ä", "\u00df", "\U0001f600", "null", "long " * 40), KEY | {"text"}),
    Type("string collate UTF8_LCASE", ("a", "A", "b", "B", "", "Ä", "ä"), KEY | {"collated"}, alike=("a", "A")),
    Type("string collate UNICODE_CI", ("a", "A", "b", "", "Ä", "ä"), KEY | {"collated"}, alike=("Ä", "ä")),
    Type("binary", ("", "00", "00ff", "ff"), KEY, "unhex({})"),
    Type("date", ("0001-01-01", "9999-12-31", "1969-12-31", "2026-03-29"), KEY),
    Type("timestamp", ("0001-01-02 00:00:00", "9999-12-30 23:59:59.999999", "1969-12-31 23:59:59.999999"), KEY),
    Type("timestamp_ntz", ("0001-01-01 00:00:00", "9999-12-31 23:59:59.999999", "2026-03-29 02:30:00"), KEY),
    Type("interval day to second", ("1 02:03:04.5", "-0 00:00:00.000001", "0 00:00:00"), KEY | {"interval"}),
    Type("interval year to month", ("1-2", "-0-1", "0-0"), KEY | {"interval"}),
    _json("array<int>", "[]", "[1]", "[1,null]", "[2,1]", traits=KEY),
    _json("array<double>", "[0.5]", "[-0.0]", "[0.0]", "[null]", traits=KEY, alike=("[0.0]", "[-0.0]")),
    _json("array<array<string>>", '[["a",null],[]]', '[["a"]]', "[null]", traits=KEY),
    _json("struct<a:int,b:string>", '{"a":1,"b":"x"}', '{"a":1}', "{}", '{"b":""}', traits=KEY),
    _json("struct<a:double,b:array<struct<c:date>>>", '{"a":-0.0}', '{"b":[{"c":"2026-01-01"},null]}', traits=KEY),
    _json("map<string,int>", "{}", '{"a":1}', '{"b":null}'),
    Type("variant", ('{"a":1}', "[1,null]", '"x"', "null", "1.5"), frozenset(), "parse_json({})"),
)
TYPE = {each.ddl: each for each in TYPES}
