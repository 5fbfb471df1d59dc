"""A struct whose fields have one name is written and read back as any other."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from sparkjet.storage.field_names import numbered, unnumbered
from sparkjet.storage.file_reader import read
from sparkjet.storage.file_writer import FileWriter
from sparkjet.storage.posix_directory import PosixDirectory
from sparkjet.testing import StreamDriver

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

SQL = """
    SELECT struct(id, id) AS twice, array(struct(id, 'x' AS id)) AS listed, map('k', struct(id, id)) AS mapped,
        struct(struct(id, id) AS inner) AS nested, struct(id AS a, id AS A) AS cased, id AS plain,
        named_struct('0:a', id, '1:b', id) AS numbers, named_struct('0:a', id, 'b', id) AS one_number
    FROM range(2)
"""


def test_structs_with_equal_names_come_back_as_they_were(spark: SparkSession, tmp_path: Path) -> None:
    rows, directory = spark.sql(SQL), PosixDirectory(tmp_path / "rows")
    files = [*FileWriter(directory, read_back=True).save(rows).files]
    found = read(spark, directory, files)
    assert found.schema.simpleString() == rows.schema.simpleString()
    assert sorted(map(repr, found.collect())) == sorted(map(repr, rows.collect()))


def test_other_rows_are_left_alone(spark: SparkSession) -> None:
    rows = spark.sql("SELECT struct(1 AS a, 2 AS b) AS pair, array(1) AS list")
    assert numbered(rows) is rows
    assert unnumbered(rows) is rows


def test_state_that_holds_such_structs_survives_a_restart(spark: SparkSession) -> None:
    driver = StreamDriver(
        spark,
        lambda rows: rows.groupBy(F.struct("n", "n").alias("k")).agg(F.max_by("n", F.struct("n", "n")).alias("most")),
        "n long",
        outputMode="update",
    )
    driver.process([(1,), (2,)])
    driver.restart()
    driver.process([(2,)])
    assert [row.most for row in driver.results()][2:] == [2]
