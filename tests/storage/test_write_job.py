"""Write jobs: Spark's own, with the numbers that its tasks report and the settings that they are given."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import unquote, urlparse

import pytest
from pyspark.errors import SparkRuntimeException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from sparkjet.storage import write_job
from sparkjet.storage.paths import WRITING
from sparkjet.storage.write_job import WriteJob

pytestmark = pytest.mark.spark

FORMATS = {"csv": {"header": "true"}, "json": {}, "orc": {"compression": "zlib"}, "parquet": {"compression": "gzip"}}


@pytest.mark.parametrize("name", FORMATS)
def test_what_is_written_is_what_spark_reads(spark: SparkSession, tmp_path: Path, name: str) -> None:
    rows = spark.range(0, 30, 1, 3).selectExpr("id", "id / 8 AS part")
    job = WriteJob(rows, (tmp_path / "out").as_uri(), name, FORMATS[name], [])
    statistics = job.renaming(WRITING)
    assert (statistics.rows, statistics.files) == (30, 3)
    read = spark.read.schema(rows.schema).options(**FORMATS[name]).format(name).load(str(tmp_path / "out"))
    assert sorted(map(tuple, read.collect())) == sorted(map(tuple, rows.collect()))
    assert not list((tmp_path / "out").glob("**/_temporary"))


def test_options_and_directories_are_those_of_the_writer(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.range(0, 12, 1, 2).select((F.col("id") % 2).alias("odd"), F.col("id").cast("string").alias("text"))
    job = WriteJob(rows, (tmp_path / "out").as_uri(), "text", {"maxRecordsPerFile": "2", "lineSep": ";"}, ["odd"])
    statistics = job.renaming(WRITING)
    assert {path.parent.name for path in (tmp_path / "out").glob("*/part-*")} == {"odd=0", "odd=1"}
    assert statistics.files == len(list((tmp_path / "out").glob("*/part-*"))) >= 6
    for file in (tmp_path / "out").glob("*/part-*"):
        assert file.read_text().count(";") <= 2


def test_listed_files_are_those_that_count(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.range(0, 20, 1, 2).selectExpr("id", "concat('a b%', id % 2) AS k")
    statistics, found = WriteJob(rows, (tmp_path / "out").as_uri(), "json", {}, ["k"]).listing()
    paths = [Path(unquote(urlparse(each).path)) for each in found]
    assert statistics.rows == 20
    assert statistics.files == len(paths) == 4
    assert sum(len(path.read_text().splitlines()) for path in paths) == 20
    # A list beside them, as Spark's file sink writes it, would be most of the requests to a store.
    assert {path for path in (tmp_path / "out").rglob("part-*") if path.is_file()} == set(paths)
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"k=a b%250", "k=a b%251"}


def test_a_task_that_fails_fails_the_job_with_its_own_error(spark: SparkSession, tmp_path: Path) -> None:
    rows = spark.range(0, 4, 1, 2).selectExpr("CASE WHEN id = 3 THEN raise_error('bad row') ELSE id END AS n")
    with pytest.raises(SparkRuntimeException, match="bad row"):
        WriteJob(rows, (tmp_path / "out").as_uri(), "json", {}, []).renaming(WRITING)
    assert not (tmp_path / "out" / "_SUCCESS").exists()


def test_the_settings_of_the_session_hold(spark: SparkSession, tmp_path: Path) -> None:
    session = spark.newSession()
    session.conf.set("spark.sql.session.timeZone", "Asia/Tokyo")
    rows = session.range(0, 1, 1, 1).selectExpr("timestamp_seconds(id) AS t")
    WriteJob(rows, (tmp_path / "out").as_uri(), "json", {}, []).renaming(WRITING)
    (file,) = (tmp_path / "out").glob("part-*")
    assert "1970-01-01T09:00:00.000+09:00" in file.read_text()


def test_hadoops_settings_are_those_of_the_session_but_for_the_defaults(spark: SparkSession) -> None:
    session = spark.newSession()
    session.conf.set("fs.s3a.secret.key", "shown as redacted")
    configuration = spark.sparkContext._jsc.hadoopConfiguration()
    configuration.set("fs.own.password", "redacted, too")
    try:
        found = write_job._own_settings(session, (("mapreduce.own", "1"),))
        whole = session._jsparkSession.sessionState().newHadoopConf()
    finally:
        configuration.unset("fs.own.password")
    assert found.get("mapreduce.own") == "1"
    assert found.size() < whole.size() - 1000
    for name in ("fs.s3a.secret.key", "fs.own.password", "spark.sql.warehouse.dir"):
        assert found.get(name) == whole.get(name) is not None


def test_the_job_is_one_execution_of_spark(spark: SparkSession, tmp_path: Path) -> None:
    def newest() -> int:
        # By number: Spark keeps a thousand of them.
        spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
        found: int = spark._jsparkSession.sharedState().statusStore().executionsList().last().executionId()
        return found

    spark.range(1).count()
    before = newest()
    WriteJob(spark.range(3), (tmp_path / "out").as_uri(), "json", {}, []).renaming(WRITING)
    assert newest() == before + 1
