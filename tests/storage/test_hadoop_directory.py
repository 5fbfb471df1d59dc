"""Directories on HDFS and S3 keep the contract of directories, and no error decides who has won."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest

from sparkjet.errors import AnalysisError, StorageError
from sparkjet.storage import sharing
from sparkjet.storage.hadoop_file_system import JAVA_ERRORS, open_file_system
from sparkjet.storage.hadoop_ways import FEW_BYTES, UNTESTED, WAYS, Way, by_create, by_rename, write
from sparkjet.testing.directory_contract import DirectoryContract, DirectoryUnderTest
from tests.servers.s3 import BUCKET
from tests.servers.s3_proxy import Fault, S3Proxy
from tests.storage.hadoop_target import counting, hadoop_directory, hadoop_target, losing, through

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparkjet.storage.hadoop_file_system import HadoopFileSystem
    from tests.servers.hdfs import HdfsServer
    from tests.servers.s3 import S3Server

pytestmark = pytest.mark.crash
"""HDFS takes 20 seconds to start."""

RACES = 5
"""Each takes these stores seconds."""


class TestHdfs(DirectoryContract):
    RACES = RACES

    @pytest.fixture
    def target(self, spark: SparkSession, hdfs: HdfsServer) -> DirectoryUnderTest:
        return hadoop_target(spark, f"{hdfs.uri}/{uuid4().hex}/place")


class TestS3(DirectoryContract):
    RACES = RACES

    @pytest.fixture
    def target(self, s3_spark: SparkSession, s3: S3Server) -> DirectoryUnderTest:
        return hadoop_target(s3_spark, f"s3a://{BUCKET}/{uuid4().hex}/place")


@pytest.mark.parametrize(
    "faults",
    [
        [Fault.LOST],
        # In CI in a row with others.
        pytest.param([Fault.ERROR_AFTER], marks=pytest.mark.long),
        pytest.param([Fault.CONFLICT], marks=pytest.mark.long),
        [Fault.BUSY, Fault.LOST],
        [Fault.CONFLICT, Fault.ERROR_AFTER, Fault.LOST],
    ],
    ids=lambda faults: "-".join(fault.name.lower() for fault in faults),
)
def test_s3_tells_who_has_won_although_it_does_not_answer(
    s3_spark: SparkSession, s3: S3Server, faults: list[Fault]
) -> None:
    place = f"s3a://{BUCKET}/{uuid4().hex}"
    with S3Proxy(s3.port) as proxy, through(s3_spark, proxy):
        disturbed = hadoop_directory(s3_spark, place)
        proxy.planned.extend(faults)
        assert disturbed.put("ours", b"ours")
        assert proxy.met == faults
        assert not hadoop_directory(s3_spark, place).put("ours", b"theirs")
    undisturbed = hadoop_directory(s3_spark, place)
    assert undisturbed.read("ours") == b"ours"
    assert undisturbed.put("theirs", b"theirs")
    with S3Proxy(s3.port) as proxy, through(s3_spark, proxy):
        disturbed = hadoop_directory(s3_spark, place)
        proxy.planned.extend(faults)
        assert not disturbed.put("theirs", b"ours")
        assert proxy.met
    assert undisturbed.read("theirs") == b"theirs"


def test_s3_that_denies_is_asked_once(s3_spark: SparkSession, s3: S3Server) -> None:
    with S3Proxy(s3.port) as proxy, through(s3_spark, proxy):
        directory = hadoop_directory(s3_spark, f"s3a://{BUCKET}/{uuid4().hex}")
        proxy.planned.extend([Fault.DENIED] * 5)
        with pytest.raises(PermissionError):
            directory.put("slot", b"record")
        assert len(proxy.met) == 1
        assert directory.names() == []


def test_to_read_a_file_that_is_not_there_is_one_request(s3_spark: SparkSession, s3: S3Server) -> None:
    """A driver that looks for its successor does so every second."""
    location = f"s3a://{s3.bucket()}"
    with S3Proxy(s3.port) as proxy, through(s3_spark, proxy):
        directory = hadoop_directory(s3_spark, location)
        for _ in range(2):
            proxy.requests.clear()
            with pytest.raises(FileNotFoundError):
                directory.read("slot")
        assert [request.partition(" ")[0] for request in proxy.requests] == ["HEAD"]


def test_a_small_file_is_published_by_the_driver(s3_spark: SparkSession, s3: S3Server) -> None:
    location = f"s3a://{s3.bucket()}"
    with S3Proxy(s3.port) as proxy, through(s3_spark, proxy):
        directory = hadoop_directory(s3_spark, location)
        directory.write("staged/a", b"rows")
        proxy.requests.clear()
        assert directory.publish("staged/a", "part=1/a")
        asked = [request.partition(" ")[0] for request in proxy.requests]
        assert asked == ["HEAD", "GET", "PUT"]
        # As after a crash behind it.
        assert not directory.publish("staged/a", "part=1/a")
        assert directory.files() == {"part=1/a": 4}
        assert directory.read("part=1/a") == b"rows"
        with pytest.raises(FileNotFoundError):
            directory.publish("staged/a", "part=1/a")
        directory.write("staged/a", b"else")
        with pytest.raises(FileExistsError):
            directory.publish("staged/a", "part=1/a")
        assert directory.read("part=1/a") == b"rows"
        directory.discard("staged", ["a"])
        assert directory.files() == {"part=1/a": 4}


def test_a_large_file_is_published_by_the_store(s3_spark: SparkSession, s3: S3Server) -> None:
    directory, content = hadoop_directory(s3_spark, f"s3a://{s3.bucket()}"), b"r" * (FEW_BYTES + 1)
    directory.write("staged/a", content)
    assert not directory.publish("staged/a", "a")
    assert directory.files() == {"a": len(content)}
    assert directory.read("a") == content


@pytest.mark.parametrize(
    ("fault", "attempts"),
    [(Fault.BUSY_KEYS, 2), pytest.param(Fault.DENIED_KEYS, 1, marks=pytest.mark.long)],
    ids=["busy", "denied"],
)
def test_files_that_stay_although_the_store_answers_are_removed_again_unless_nobody_may(
    s3_spark: SparkSession, s3: S3Server, fault: Fault, attempts: int
) -> None:
    location = f"s3a://{s3.bucket()}"
    with S3Proxy(s3.port, "POST") as proxy, through(s3_spark, proxy):
        directory = hadoop_directory(s3_spark, location)
        for name in ("a", "b"):
            directory.write(name, b"rows")
        proxy.planned.extend([fault] * attempts)
        if fault is Fault.DENIED_KEYS:
            with pytest.raises(PermissionError, match="AccessDenied"):
                directory.remove_files(["a", "b"])
        else:
            directory.remove_files(["a", "b"])
            assert directory.files() == {}
        assert proxy.met == [fault] * attempts


def test_a_store_that_the_executors_may_not_write_to_is_refused_before_the_start(
    s3_spark: SparkSession, s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sharing, "is_local", lambda _: False)
    location = f"s3a://{s3.bucket()}"
    with S3Proxy(s3.port) as proxy, through(s3_spark, proxy):
        directory = hadoop_directory(s3_spark, location)
        # The client of the tasks is opened now; it is not that of the driver's directory.
        sharing.check_reached(s3_spark, {directory: "path"})
        assert any(request.startswith("PUT") and "/part-00007" in request for request in proxy.requests)
        proxy.planned.extend([Fault.DENIED] * 50)
        with pytest.raises(AnalysisError, match=f'path: The driver can use "{location}", but the executors cannot'):
            sharing.check_reached(s3_spark, {directory: "path"})
        proxy.planned.clear()
        assert directory.files() == {}


@pytest.fixture
def place(hdfs: HdfsServer) -> str:
    return f"{hdfs.uri}/{uuid4().hex}"


def test_while_nobody_has_written_the_same_content_is_put_again(spark: SparkSession, place: str) -> None:
    contents: list[bytes] = []
    way = losing(counting(WAYS["hdfs"], contents.append), 3, before=True)
    assert hadoop_directory(spark, place, way).put("slot", b"record")
    assert hadoop_directory(spark, place).read("slot") == b"record"
    # Only the last of four requests has arrived.
    assert contents == [b"record"]


def test_an_outcome_that_cannot_be_found_out_in_time_is_an_error(spark: SparkSession, place: str) -> None:
    mute = hadoop_directory(spark, place, losing(WAYS["hdfs"], 1_000_000, before=True), patience=0.3)
    with pytest.raises(StorageError, match=r"unknown whether .*/slot was written, .*: the answer is lost"):
        mute.put("slot", b"record")
    assert hadoop_directory(spark, place).names() == []


def test_a_user_who_may_not_write_is_told_at_once(spark: SparkSession, place: str) -> None:
    asked: list[bytes] = []

    def denied(system: HadoopFileSystem, path: Any, content: bytes) -> None:
        asked.append(content)
        raise PermissionError(13, "denied", str(path))

    with pytest.raises(PermissionError, match="denied"):
        hadoop_directory(spark, place, WAYS["hdfs"]._replace(put=denied)).put("slot", b"record")
    assert asked == [b"record"]


def test_what_a_crash_left_of_a_put_is_removed_and_nothing_else(spark: SparkSession, place: str) -> None:
    directory = hadoop_directory(spark, place)
    directory.create()
    kept = ["slot", ".snapshot-like", ".hidden.0123"]
    for name in [*kept, f".slot.{uuid4().hex}"]:
        directory.write(name, b"x")
    directory.sweep()
    assert sorted(directory.names()) == sorted(kept)


def test_a_put_whose_hidden_file_is_taken_for_a_leftover_is_done_over(spark: SparkSession, place: str) -> None:
    directory, puts = hadoop_directory(spark, place), list[bytes]()

    def robbed(system: HadoopFileSystem, path: Any, content: bytes) -> None:
        puts.append(content)
        if len(puts) == 1:
            # As if another driver's start had swept between the write and the rename.
            system.context.rename(system.path(f"{place}/.slot.gone"), path, system.not_overwriting)
        by_rename(system, path, content)

    directory.create()
    assert hadoop_directory(spark, place, Way(robbed)).put("slot", b"record")
    assert directory.files() == {"slot": 6}
    assert len(puts) == 2


def _looking_first(system: HadoopFileSystem, path: Any, content: bytes) -> None:
    """Overwrites, as a store does that ignores the condition."""
    stream = system.java.create(path, True)
    stream.write(content)
    stream.close()


def test_a_store_that_ignores_the_condition_is_refused(spark: SparkSession, place: str) -> None:
    with pytest.raises(AnalysisError, match=r"checkpointLocation: .* of 4 writers of one new file, [234] were told"):
        hadoop_directory(spark, place, Way(_looking_first)).check("checkpointLocation")
    assert hadoop_directory(spark, place).files() == {}


def test_a_scheme_that_was_never_tested_is_refused_although_it_passes(spark: SparkSession, place: str) -> None:
    with pytest.raises(AnalysisError, match=r'checkpointLocation: .* has the scheme "hdfs:", whose put-if-absent'):
        hadoop_directory(spark, place, UNTESTED).check("checkpointLocation")
    assert hadoop_directory(spark, place).files() == {}


def test_s3_without_its_condition_has_two_winners_and_is_refused(s3_spark: SparkSession, s3: S3Server) -> None:
    place = f"s3a://{BUCKET}/{uuid4().hex}"
    with pytest.raises(AnalysisError, match="cannot hold decisions: of 4 writers"):
        hadoop_directory(s3_spark, place, WAYS["s3a"]._replace(put=by_create)).check("checkpointLocation")


def test_a_capability_that_is_missing_is_a_refusal(s3_spark: SparkSession, s3: S3Server) -> None:
    place = f"s3a://{BUCKET}/{uuid4().hex}"
    with pytest.raises(AnalysisError, match=r'path: .*"s3a:" cannot put a file .* \(fs.option.none\)'):
        hadoop_directory(s3_spark, place, WAYS["s3a"]._replace(capability="fs.option.none")).check("path")


def test_a_parent_is_tested_and_nothing_stays(spark: SparkSession, place: str) -> None:
    directory = hadoop_directory(spark, f"{place}/not/yet")
    directory.check("checkpointLocation", create=False)
    assert not directory.exists()
    assert not hadoop_directory(spark, place).exists()


def test_a_copy_that_was_interrupted_is_finished(spark: SparkSession, place: str) -> None:
    directory = hadoop_directory(spark, place)
    directory.create()
    for name, content in (("staged", b"rows"), ("final", b"rows"), ("other", b"sows")):
        directory.write(name, content)
    with pytest.raises(OSError, match="cannot be renamed"):
        directory.rename("staged", "other")
    directory.rename("staged", "final")
    assert directory.files() == {"final": 4, "other": 4}


class Breaking:
    """A stream that breaks when half of the content is written."""

    def __init__(self, stream: Any, jvm: Any) -> None:
        self._stream, self._jvm = stream, jvm

    def write(self, content: bytes) -> None:
        self._stream.write(content[: len(content) // 2])
        # One of those that PySpark turns into its own.
        self._jvm.java.lang.Integer.parseInt("an error of Java's")

    def abort(self) -> None:
        self._stream.abort()

    def close(self) -> None:
        self._stream.close()


def test_a_stream_that_broke_publishes_nothing(s3_spark: SparkSession, s3: S3Server) -> None:
    place = f"s3a://{BUCKET}/{uuid4().hex}"
    system = open_file_system(s3_spark, place, "checkpointLocation")
    stream = Breaking(system.java.create(system.path(f"{place}/slot"), True), system.jvm)
    with pytest.raises(JAVA_ERRORS, match="an error of Java's"):
        write(stream, b"whole record")
    assert hadoop_directory(s3_spark, place).names() == []


def test_what_hadoop_does_not_support_is_an_error_of_the_store(spark: SparkSession, place: str) -> None:
    system = open_file_system(spark, place, "checkpointLocation")
    with pytest.raises(OSError, match=place) as raised:
        system.run(lambda: system.jvm.java.util.Collections.emptyList().add("x"), place)
    assert not isinstance(raised.value, FileNotFoundError)
