"""Columns of rows and of a Delta table: what fits, and what is refused before the start."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
from pyspark.sql.types import ArrayType, BinaryType, LongType, StringType, StructType

from sparkjet.connectors.delta.columns import check_new, check_unmapped, check_upserts, mapped
from sparkjet.connectors.delta.kernel import Version
from sparkjet.connectors.delta.sink import DeltaSink
from sparkjet.errors import AnalysisError
from sparkjet.storage.posix_directory import PosixDirectory

NUMBER, TEXT = LongType(), StringType()


def table(schema: StructType, *partition_by: str) -> Version:
    return Version(0, schema, partition_by, {}, (), None, None)


def test_columns_are_found_in_any_order_and_case() -> None:
    there = table(StructType().add("Key", TEXT).add("n", NUMBER, nullable=False).add("more", NUMBER), "Key")
    found = mapped(there, StructType().add("N", NUMBER).add("key", TEXT), ["KEY"], "/t")
    assert list(found.names.items()) == [("N", "n"), ("key", "Key")]
    assert found.required == ("n",)


@pytest.mark.parametrize("wrap", [lambda kind: kind, ArrayType])
def test_fields_whose_names_differ_by_case_are_refused(wrap: type[ArrayType]) -> None:
    there, rows = (StructType().add("s", wrap(StructType().add(name, NUMBER))) for name in ("x", "X"))
    # Others than Spark would read nulls.
    with pytest.raises(AnalysisError, match=r"'s' is .*struct<X:bigint>.*, and in /t it is .*struct<x:bigint>.* Cast"):
        mapped(table(there), rows, (), "/t")


def test_partitions_that_are_not_written_are_refused() -> None:
    for name, kind in {"b": BinaryType(), "a:b": TEXT}.items():
        there = table(StructType().add(name, kind).add("n", NUMBER), name)
        with pytest.raises(AnalysisError, match=f"/t is partitioned by '{name}'"):
            mapped(there, there.schema, (), "/t")
        with pytest.raises(AnalysisError, match=f"partitionBy: .*'{name}'"):
            check_new(there.schema, [name])


DEMANDS = [
    ({"delta.generationExpression": "n + 1"}, {}, (), "column 'n' of /t is generated from other columns"),
    ({"delta.identity.start": 1}, {}, (), "column 'n' of /t is an identity column"),
    ({"delta.invariants": "{}"}, {}, (), "column 'n' of /t has an invariant"),
    ({"__CHAR_VARCHAR_TYPE_STRING": "char(3)"}, {}, (), r"column 'n' of /t has a length \(char, varchar\)"),
    ({}, {"delta.constraints.positive": "n > 0"}, (), "/t has the constraint delta.constraints.positive"),
    ({"delta.columnMapping.physicalName": "c"}, {}, (), r"column 'n' of /t has a name for files .* that maps none"),
    ({}, {"delta.enableIcebergCompatV2": "true"}, (), r"/t is to be read as Iceberg's too \(delta.enableIcebergCompat"),
    (
        {},
        {"delta.setTransactionRetentionDuration": "interval 1 day"},
        (),
        "/t forgets transactions after interval 1 day",
    ),
    ({}, {}, ("catalogManaged",), "/t is committed by its catalog"),
]


@pytest.mark.parametrize(("column", "properties", "features", "message"), DEMANDS)
def test_what_a_table_demands_and_is_not_done_is_refused_by_name(
    column: dict[str, Any], properties: dict[str, str], features: tuple[str, ...], message: str
) -> None:
    schema = StructType().add("k", TEXT).add("n", NUMBER, metadata=column)
    there = Version(0, schema, (), properties, features, None, None)
    with pytest.raises(AnalysisError, match=message):
        mapped(there, StructType().add("k", TEXT).add("n", NUMBER), (), "/t")


def test_partition_columns_that_are_to_be_in_the_files_are_refused() -> None:
    rows = StructType().add("k", TEXT).add("n", NUMBER)
    features = ("materializePartitionColumns",)
    assert mapped(Version(0, rows, (), {}, features, None, None), rows, (), "/t").required == ()
    with pytest.raises(AnalysisError, match="/t wants its partition columns in the files too"):
        mapped(Version(0, rows, ("k",), {}, features, None, None), rows, (), "/t")


def test_what_mapped_columns_are_refused_for() -> None:
    there = Version(0, StructType().add("n", NUMBER), (), {"delta.columnMapping.mode": "id"}, (), None, None)
    for check, option in {check_upserts: "mode=upsert", check_unmapped: "mergeSchema"}.items():
        with pytest.raises(AnalysisError, match=rf"{option}: /t maps its columns by id \(delta.columnMapping.mode\)"):
            check(there, "/t")


def test_a_column_with_a_default_must_be_in_the_rows() -> None:
    schema = StructType().add("k", TEXT).add("n", NUMBER, metadata={"CURRENT_DEFAULT": "7"})
    assert mapped(table(schema), StructType().add("k", TEXT).add("n", NUMBER), (), "/t").names == {"k": "k", "n": "n"}
    with pytest.raises(AnalysisError, match="/t needs a value of column 'n'"):
        mapped(table(schema), StructType().add("k", TEXT), (), "/t")


def test_rows_that_leave_nothing_in_the_files_are_refused() -> None:
    there = table(StructType().add("k", TEXT).add("n", NUMBER), "k")
    with pytest.raises(AnalysisError, match="/t has columns in its files beside k"):
        mapped(there, StructType().add("k", TEXT), (), "/t")


def test_a_text_that_must_not_be_null_is_looked_at_in_paths() -> None:
    there = table(StructType().add("k", TEXT, nullable=False).add("n", NUMBER, nullable=False), "k")
    assert mapped(there, there.schema, (), "/t").required == ("k",)


def test_a_new_table_has_nothing_of_the_table_that_its_columns_are_read_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[StructType] = []

    class Table:
        log = PosixDirectory(tmp_path / "t" / "_delta_log")

        def version(self) -> None:
            return None

        def try_to_create(self, schema: StructType, _: str) -> None:
            made.append(schema)

    sink = DeltaSink(PosixDirectory(tmp_path / "t"), cast("Any", None))
    monkeypatch.setattr(sink, "_table", lambda _: Table())
    asked = {"__CHAR_VARCHAR_TYPE_STRING": "varchar(9)", "CURRENT_DEFAULT": "'x'", "delta.invariants": "{}"}
    own = {"comment": "a key", "nullable": False}
    sink.check(StructType().add("k", TEXT, nullable=False, metadata={**asked, **own}).add("n", NUMBER))
    assert made == [StructType().add("k", TEXT, metadata=own).add("n", NUMBER)]
    # What it is created with, the start then finds fit for its rows.
    assert mapped(table(made[0]), made[0], (), "/t").names == {"k": "k", "n": "n"}
