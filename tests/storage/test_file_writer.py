"""Files in stores: those of the task attempts that count, under names that no other attempt has."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F

from sparkjet.errors import SinkError
from sparkjet.storage import patience
from sparkjet.storage.file_writer import FileWriter
from sparkjet.storage.written import write
from tests.servers.s3 import BUCKET
from tests.servers.s3_proxy import Fault, S3Proxy
from tests.storage.hadoop_target import hadoop_directory, through

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sparkjet.storage.hadoop_directory import HadoopDirectory
    from tests.servers.hdfs import HdfsServer
    from tests.servers.s3 import S3Server

VALUES = ["a b", "c:d/%e", "ü", None]


@pytest.fixture(params=["hdfs", "s3"])
def place(spark: SparkSession, request: pytest.FixtureRequest) -> HadoopDirectory:
    if request.param == "hdfs":
        server: HdfsServer = request.getfixturevalue("hdfs")
        return hadoop_directory(spark, f"{server.uri}/{uuid4().hex}/a b")
    request.getfixturevalue("s3_spark")
    return hadoop_directory(spark, f"s3a://{BUCKET}/{uuid4().hex}/a b")


@pytest.fixture
def rows(spark: SparkSession) -> DataFrame:
    found = [(value, f"{number}") for number, value in enumerate(VALUES * 5)]
    return spark.createDataFrame(found, "k string, v string").repartition(3)


FORMATS = {
    "parquet": {"compression": "gzip"},
    "orc": {},
    "json": {"maxRecordsPerFile": "2"},
    "csv": {"header": "true"},
    "text": {},
}
OFTEN = {("hdfs", "parquet"), ("s3", "parquet"), ("s3", "orc"), ("hdfs", "json"), ("s3", "csv"), ("hdfs", "text")}
"""Each format once in CI, and one in both stores: a store does not know what is in a file."""


@pytest.mark.crash
@pytest.mark.parametrize(
    ("place", "file_format", "options"),
    [
        pytest.param(store, *each, id=f"{store}-{each[0]}", marks=() if (store, each[0]) in OFTEN else pytest.mark.long)
        for store in ("hdfs", "s3")
        for each in FORMATS.items()
    ],
    indirect=["place"],
)
def test_what_is_written_is_what_a_reader_of_these_files_finds(
    spark: SparkSession, place: HadoopDirectory, rows: DataFrame, file_format: str, options: dict[str, str]
) -> None:
    found = write(rows, FileWriter(place, file_format, options, ["k"]), SinkError)
    assert found.rows == 20
    files = place.files()
    # An attempt that does not count leaves files like these.
    assert found.files == {name: size for name, size in files.items() if "part-" in name}
    place.write(f"{next(iter(found.files)).rpartition('/')[0]}/part-00000-late", b"half a file")
    reader = spark.read.format(file_format).options(**options).option("basePath", place.uri())
    read = reader.schema("v string, k string").load([*map(place.uri, found.files)])
    assert sorted(map(tuple, read.select("k", "v").collect()), key=repr) == sorted(map(tuple, rows.collect()), key=repr)


@pytest.mark.crash
def test_no_rows_are_no_rows(place: HadoopDirectory, rows: DataFrame) -> None:
    assert write(rows.where("v > 'x'"), FileWriter(place), SinkError).rows == 0


@pytest.mark.crash
def test_the_settings_of_the_session_reach_the_tasks(spark: SparkSession, place: HadoopDirectory) -> None:
    twice = F.map_from_entries(F.array(*[F.struct(F.lit("k"), (F.col("id") + n)) for n in (0, 1)]))
    with pytest.raises(PySparkException, match="DUPLICATED_MAP_KEY"):
        write(spark.range(3).select(twice.alias("m")), FileWriter(place.below("refused")), SinkError)
    spark.conf.set("spark.sql.mapKeyDedupPolicy", "LAST_WIN")
    try:
        # Another DataFrame: one that has run keeps the plan that it ran with.
        taken = write(spark.range(3).select(twice.alias("m")), FileWriter(place.below("taken")), SinkError)
        assert taken.rows == 3
    finally:
        spark.conf.unset("spark.sql.mapKeyDedupPolicy")


@pytest.mark.crash
def test_no_two_attempts_of_a_task_use_one_name(spark: SparkSession) -> None:
    jvm: Any = spark._jvm
    hadoop = jvm.org.apache.hadoop.mapreduce
    protocol = jvm.org.apache.spark.sql.execution.streaming.ManifestFileCommitProtocol("0", "/out")
    named = jvm.org.apache.spark.internal.io.FileNameSpec("", ".parquet")
    names = set()
    for attempt in range(3):
        of = hadoop.TaskAttemptID("0", 0, hadoop.TaskType.MAP, 5, attempt)
        context = hadoop.task.TaskAttemptContextImpl(jvm.org.apache.hadoop.conf.Configuration(), of)
        protocol.setupTask(context)
        names.add(protocol.newTaskTempFile(context, jvm.scala.Option.empty(), named))
    assert len(names) == 3
    assert all(name.startswith("/out/part-00005-") for name in names)


@pytest.mark.crash
def test_a_store_that_does_not_answer_at_first_is_waited_for(
    s3_spark: SparkSession,
    s3: S3Server,
    rows: DataFrame,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # As if its last answer were longer ago: a store that has just answered is not asked.
    monkeypatch.setattr(patience, "JUST_NOW", 0.0)
    with S3Proxy(s3.port, "HEAD") as proxy, through(s3_spark, proxy):
        place = hadoop_directory(s3_spark, f"s3a://{s3.bucket()}/place")
        # It has answered before.
        place.exists()
        # More than Hadoop's client repeats a request.
        proxy.planned.extend([Fault.LOST] * 20)
        assert write(rows, FileWriter(place, "json"), SinkError).rows == 20
    assert f"{place}: " in caplog.text
    assert "It is tried again" in caplog.text
    assert not proxy.planned
