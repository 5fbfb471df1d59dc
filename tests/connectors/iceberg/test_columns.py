"""Columns of rows and of an Iceberg table: what fits, what is refused, and files of before a change."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql.types import ArrayType, DecimalType, LongType, ShortType, StringType, StructType

from sparkjet.connectors.iceberg.columns import NAMES, mapped, types_of, unfit
from sparkjet.connectors.iceberg.schema import new_schema, spark_schema
from sparkjet.connectors.iceberg.version import Version
from sparkjet.errors import AnalysisError

NUMBER, TEXT = LongType(), StringType()
ROWS = StructType().add("k", TEXT).add("n", NUMBER)


def column(number: int, name: str, kind: Any, **more: Any) -> dict[str, Any]:
    return {"id": number, "name": name, "required": False, "type": kind, **more}


def table(
    *columns: dict[str, Any], spec: Any = (), spec_id: int = 0, specs: tuple[int, ...] = (0,), **properties: str
) -> Version:
    schema = {"type": "struct", "fields": [*columns]}
    return Version(schema, {"spec-id": spec_id, "fields": [*spec]}, specs, properties, "/t/data", None, None, None)


K, N = column(1, "k", "string"), column(2, "n", "long")
LIST = {"type": "list", "element-id": 4, "element": "int", "element-required": False}


def test_columns_are_found_in_any_order_and_case_and_small_integers_are_widened() -> None:
    there = table(column(1, "Key", "string"), column(2, "n", "int", required=True), column(3, "more", "long"))
    found = mapped(there, StructType().add("N", ShortType()).add("key", TEXT), "/t")
    assert [(own, field.name) for own, field in found.columns.items()] == [("N", "n"), ("key", "Key")]
    assert (found.required, found.by_names) == (("n",), False)


def test_a_new_schema_is_read_back_as_it_was() -> None:
    inner = StructType().add("x", NUMBER).add("a", ArrayType(StructType().add("y", TEXT)))
    schema = StructType().add("s", inner).add("n", NUMBER)
    assert spark_schema(new_schema(schema)).simpleString() == schema.simpleString()


REFUSED = [
    (table(K), "has no column 'n'"),
    (table(K, column(2, "n", "int")), "'n' is bigint, and in /t it is int. Cast it"),
    (table(column(1, "k", "uuid"), N), "column 'k' of /t is \"uuid\", which Spark does not have"),
    (table(K, N, column(3, "x", "long", required=True)), "needs a value of column 'x'"),
    (table(K, N, column(3, "x", "long", **{"write-default": 7})), "needs a value of column 'x'"),
    (table(K, N, column(3, "x", "long", **{"initial-default": 7})), "needs a value of column 'x'"),
    (table(K, N, **{"encryption.key-id": "1"}), "is encrypted"),
    (replace(table(K, N), format=4), "is written in version 4 of Iceberg's format, which was not tried here: 3 is"),
    (table(K, N, column(3, "K", "string")), "/t has columns 'k' and 'K', which Spark takes for one"),
    (
        table(K, N, spec=[{"name": "k_year", "transform": "year", "source-id": 1, "field-id": 1000}]),
        r"is partitioned by 'k_year' \(year\), which sparkjet does not write",
    ),
    (
        table(K, N, column(3, "d", "date"), spec=[{"name": "d", "transform": "day", "source-id": 3, "field-id": 1000}]),
        "is partitioned by column 'd', and the result has no such column",
    ),
]


@pytest.mark.parametrize(("there", "message"), REFUSED)
def test_what_a_table_demands_is_refused_by_name(there: Version, message: str) -> None:
    with pytest.raises(AnalysisError, match=message):
        mapped(there, ROWS, "/t")


def test_a_mapping_of_names_that_leaves_out_elements_is_refused() -> None:
    rows = StructType().add("a", ArrayType(ShortType()))
    whole = [{"field-id": 3, "names": ["a"], "fields": [{"field-id": 4, "names": ["element"]}]}]
    there = table(column(3, "a", LIST), **{NAMES: json.dumps(whole)})
    assert mapped(there, rows, "/t").by_names
    part = table(column(3, "a", LIST), **{NAMES: json.dumps([{"field-id": 3, "names": ["a"]}])})
    with pytest.raises(AnalysisError, match="leaves out 'a', which readers would find null"):
        mapped(part, rows, "/t")


CHANGES: list[tuple[Version, bool, str | None]] = [
    (table(K, N), False, None),
    (table(column(1, "renamed", "string"), N, column(3, "x", "long")), False, None),
    (table(column(1, "renamed", "string"), N), True, "column 'k' is called 'renamed' there"),
    (
        table(
            column(1, "renamed", "string"),
            N,
            **{NAMES: json.dumps([{"field-id": 1, "names": ["k", "renamed"]}, {"field-id": 2, "names": ["n"]}])},
        ),
        True,
        None,
    ),
    # Nothing brings a column back, and older files have lost theirs too.
    (table(K), False, None),
    (table(K), True, "no longer has a column 'n'"),
    (table(K, spec_id=1, specs=(0, 1)), False, "no longer has a column 'n'"),
    (table(K, column(2, "n", "string")), False, "column 'n' is \"string\" there"),
    (table(K, column(2, "n", "long", required=True)), False, "column 'n' is required there"),
    (table(K, N, column(3, "x", "long", required=True)), False, "column 'x' is required there, and the files lack it"),
    (table(K, N, specs=(1,)), False, "no longer knows the partitions"),
]


@pytest.mark.parametrize(("now", "by_names", "why"), CHANGES)
def test_files_of_before_a_change(now: Version, by_names: bool, why: str | None) -> None:
    before = table(K, N)
    found = mapped(before, ROWS, "/t")
    handle = {"columns": types_of(before, found.columns), "required": [], "by_names": by_names, "spec": 0}
    told = unfit(now, handle, "/t")
    assert told is None if why is None else why in str(told)
    # Before the decision, a column that nobody would read is refused.
    early = unfit(now, handle, "/t", is_decided=False)
    assert (early is None) == (why is None and len(now.schema["fields"]) > 1)


@pytest.mark.parametrize("is_required", [False, True])
@pytest.mark.parametrize("nullable", [False, True])
def test_files_without_nulls_fit_a_column_that_is_required(is_required: bool, nullable: bool) -> None:
    before, now = table(column(2, "n", "long", required=is_required)), table(column(2, "n", "long", required=True))
    found = mapped(before, StructType().add("n", NUMBER, nullable), "/t")
    handle = {"columns": types_of(before, found.columns), "required": [*found.whole], "by_names": False, "spec": 0}
    assert found.required == (("n",) if is_required and nullable else ())
    assert (unfit(now, handle, "/t") is None) == (is_required or not nullable)


@pytest.mark.parametrize(
    ("before", "now", "fits"),
    [
        ("int", "long", True),
        ("float", "double", True),
        ("long", "int", False),
        ("decimal(9, 2)", "decimal(11, 2)", True),
        ("decimal(9, 2)", "decimal(11, 3)", False),
    ],
)
def test_types_that_a_column_may_become(before: str, now: str, fits: bool) -> None:
    handle = {"columns": {"n": [2, before]}, "required": [], "by_names": False, "spec": 0}
    assert (unfit(table(column(2, "n", now)), handle, "/t") is None) == fits


def struct(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "struct", "fields": [*fields]}


X = column(4, "x", "int")
LISTED = {"type": "list", "element-id": 5, "element": struct(X), "element-required": False}


@pytest.mark.parametrize(
    ("before", "now", "fits"),
    [
        # A comment, what readers take for it, and one that the files lack.
        (struct(X), struct({**X, "doc": "of the day", "type": "long"}, column(9, "y", "int")), (True, True)),
        (struct(X), struct({**X, "name": "renamed"}), (True, False)),
        # Dropped, and added again: in older files, too, readers find nothing.
        (struct(X), struct(column(9, "x", "int")), (True, False)),
        (struct(X), struct({**X, "required": True}), (False, False)),
        (struct(X), struct(X, column(9, "y", "int", required=True)), (False, False)),
        (struct(X), struct(column(4, "x", "string")), (False, False)),
        (LISTED, {**LISTED, "element": struct({**X, "doc": "of the day"})}, (True, True)),
        (LISTED, {**LISTED, "element-required": True}, (False, False)),
        (LISTED, struct(X), (False, False)),
    ],
)
def test_what_may_be_changed_within_a_column(before: Any, now: Any, fits: tuple[bool, bool]) -> None:
    for by_names, expected in zip((False, True), fits, strict=True):
        handle = {"columns": {"n": [2, before]}, "required": [], "by_names": by_names, "spec": 0}
        assert (unfit(table(column(2, "n", now)), handle, "/t") is None) == expected


def test_the_longest_decimals_are_cut_only_where_spark_keeps_their_last_digit() -> None:
    def cut(kind: str) -> Version:
        spec = [{"name": "d_trunc", "transform": "truncate[3]", "source-id": 1, "field-id": 1000}]
        return table(column(1, "d", kind), spec=spec)

    for fits in (DecimalType(37, 10), DecimalType(38, 6)):
        assert (
            len(mapped(cut(f"decimal({fits.precision}, {fits.scale})"), StructType().add("d", fits), "/t").parts) == 1
        )
    with pytest.raises(AnalysisError, match=r"is partitioned by 'd_trunc' \(truncate\[3\]\), which sparkjet does not"):
        mapped(cut("decimal(38, 10)"), StructType().add("d", DecimalType(38, 10)), "/t")


def test_snapshots_without_a_summary_tell_nothing() -> None:
    """As the first format lets writers leave it out."""

    class Snapshot:
        def summary(self) -> None:
            return None

        def parentId(self) -> None:
            return None

    class Base:
        def currentSnapshot(self) -> Snapshot:
            return Snapshot()

    assert list(replace(table(K), base=Base()).ancestors()) == []
