from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import sparkjet as sj

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def start(spark: SparkSession, source: str, output: Path, *, recursive: bool = False, names: str = "*") -> None:
    reader = spark.readStream.schema("id long").option("recursiveFileLookup", recursive).option("pathGlobFilter", names)
    rows = sj.stream(reader.parquet(source))
    writer = rows.writeStream.format("files").option("path", output).option("checkpointLocation", output / "../home")
    writer.trigger(availableNow=True).start().awaitTermination()


@pytest.mark.parametrize(
    ("source", "output", "recursive"),
    [
        ("data", "data", False),
        ("file:{place}/data/", "data", False),
        ("link", "data", False),
        ("data", "data/day=1", False),
        ("data/day=1", "data", False),
        ("data", "data/out", True),
        ("*", "data", False),
        ("d*/*.parquet", "data", False),
        ("*/*", "data/out", False),
        ("d[^b]ta/*", "data", False),
    ],
)
def test_an_output_that_the_query_would_read_is_refused(
    spark: SparkSession, tmp_path: Path, source: str, output: str, recursive: bool
) -> None:
    (tmp_path / "data" / "day=1").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "data")
    given = source.format(place=tmp_path) if "{place}" in source else f"{tmp_path}/{source}"
    with pytest.raises(sj.AnalysisError, match=rf'path: ".*/{output}" is among what the query reads, ".*": .* another'):
        start(spark, given, tmp_path / output, recursive=recursive)
    assert not (tmp_path / output / "_sparkjet").exists()


@pytest.mark.parametrize(
    ("source", "output", "recursive", "names"),
    [
        ("data", "data/out", False, "*"),
        ("data/in-*.parquet", "data", False, "*"),
        ("data", "date", False, "*"),
        ("data/[^_o]*", "data/out", False, "*"),
        ("data", "data", False, "in-*"),
        ("data", "data/_out/all", True, "*"),
        ("data", "data/.out/day=1", True, "*"),
    ],
)
def test_an_output_beside_what_the_query_reads_is_not(
    spark: SparkSession, tmp_path: Path, source: str, output: str, recursive: bool, names: str
) -> None:
    spark.range(3).write.parquet(str(tmp_path / "data"))
    for file in (tmp_path / "data").glob("part-*"):
        file.rename(file.with_name(file.name.replace("part-", "in-", 1)))
    start(spark, f"{tmp_path}/{source}", tmp_path / output, recursive=recursive, names=names)
    assert sj.read_files(tmp_path / output).count() == 3
