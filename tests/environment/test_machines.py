"""Faults of a whole machine, or changes to it since a crash: clocks, disks, handles, settings, Spark itself."""

from __future__ import annotations

import itertools
import os
import resource
import shutil
import struct
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from scripts.sparks import LINES, PLACE
from sparkjet import EpochPhase
from tests.crash.drivers import ROOT, Driver, Query, Victim
from tests.crash.farm import Crash, calm
from tests.crash.feeds import write_skewed
from tests.crash.invariants import check
from tests.crash.readers import newest_record
from tests.faults.processes import executors
from tests.mounts import SmallDisk, small_disk

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]

SEED, FILES = 31, 4
JOBS = ("sums", "state")
"""Windows; and first rows, rolling sums and functions with timers."""
SOURCE = Path(__file__).with_name("machine_clock.c")
DAY, HOUR = 86_400, 3_600
CLUSTER = "local-cluster[1,2,1024]"
OF_PROCESSES = {
    "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
    "spark.io.compression.codec": "zstd",
    "spark.io.encryption.enabled": "true",
    "spark.rdd.compress": "true",
    "spark.shuffle.compress": "false",
    "spark.shuffle.sort.bypassMergeThreshold": "0",
    "spark.memory.fraction": "0.2",
    "spark.default.parallelism": "5",
    "spark.python.worker.reuse": "false",
    "spark.python.worker.faulthandler.enabled": "true",
    "spark.hadoop.parquet.block.size": "1024",
    "spark.hadoop.parquet.enable.dictionary": "false",
    "spark.hadoop.mapreduce.fileoutputcommitter.algorithm.version": "2",
    "spark.hadoop.fs.permissions.umask-mode": "077",
}
"""Settings that only a new process has, and that could change what is written or read."""


@dataclass(frozen=True)
class Clocks:
    """By how many seconds clocks are off: from the start on, and from the third epoch's decision on.

    A driver's executors are on machines whose clocks may be right.
    """

    driver: int = 0
    executors: int = 0
    driver_later: int = 0
    executors_later: int = 0

    def __str__(self) -> str:
        return ", ".join(f"{name} {value}" for name, value in vars(self).items() if value)


CELLS = [
    Clocks(driver=DAY, driver_later=DAY),
    Clocks(driver=-DAY, driver_later=-DAY),
    Clocks(executors=DAY, executors_later=DAY),
    Clocks(executors=-DAY, executors_later=-DAY),
    Clocks(driver_later=HOUR),
    Clocks(driver_later=-HOUR),
    Clocks(executors_later=HOUR),
    Clocks(driver_later=HOUR, executors_later=-HOUR),
]


def queries(root: Path) -> list[Query]:
    """One of each job, which waits at the decision of the third epoch."""
    write_skewed(root / "feed", SEED, 0, FILES)
    return [Crash(EpochPhase.DECIDE, "both", job).query(root) for job in JOBS]


def whole(found: list[Query]) -> None:
    """Assert that nothing is lost or repeated."""
    for query in found:
        check(query.place, query.rules, batches=FILES, closings=[FILES])


def set_off(file: Path, seconds: int) -> None:
    """Set the clocks that this file is for; those that run see it at once."""
    with file.open("r+b" if file.exists() else "wb") as opened:
        opened.write(struct.pack("q", seconds))


def with_clocks(root: Path) -> Mapping[str, str]:
    """The environment of processes whose clocks two files set."""
    library = root / "machine_clock.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-O1", "-o", str(library), str(SOURCE)], check=True)
    executors_see = f"--conf spark.executorEnv.MACHINE_CLOCK={root / 'executors'}"
    return {
        "LD_PRELOAD": str(library),
        "MACHINE_CLOCK": str(root / "driver"),
        "PYSPARK_SUBMIT_ARGS": f"{executors_see} pyspark-shell",
    }


@pytest.mark.skipif(shutil.which("gcc") is None, reason="the library that sets a process's clock is compiled")
@pytest.mark.parametrize("clocks", CELLS, ids=str)
def test_clocks_that_are_off_change_no_result(tmp_path: Path, clocks: Clocks) -> None:
    found = queries(tmp_path)
    set_off(tmp_path / "driver", clocks.driver)
    set_off(tmp_path / "executors", clocks.executors)
    with Driver(tmp_path / "first.log", CLUSTER, with_clocks(tmp_path)) as driver:
        driver.bring(found, "reached")
        assert all(abs(_ahead(query) - clocks.driver) < HOUR / 2 for query in found)
        for process in executors(driver.jvm):
            maps = Path(f"/proc/{process.pid}/maps").read_text()
            assert str(tmp_path / "executors") in maps
            assert str(tmp_path / "driver") not in maps
        set_off(tmp_path / "driver", clocks.driver_later)
        set_off(tmp_path / "executors", clocks.executors_later)
        driver.release()
        driver.see(found)
        assert driver.end() == 0
    whole(found)
    # The clock of a query stands still where it was set back.
    assert all(abs(_ahead(query) - max(clocks.driver, clocks.driver_later)) < HOUR / 2 for query in found)
    # The next start is on a machine that is right.
    write_skewed(tmp_path / "feed", SEED, FILES, FILES + 1)
    with Driver(tmp_path / "second.log") as driver:
        driver.bring(calm(found))
        assert driver.end() == 0
    for query in found:
        check(query.place, query.rules, batches=FILES + 1, closings=[FILES, FILES + 1])


def _ahead(query: Query) -> float:
    """By how many seconds the clock in the newest record is ahead of this machine's."""
    return newest_record(query.place).clock / 1_000_000 - time.time()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with small_disk(tmp_path / "local", 64) as found:
        yield found


def test_a_full_disk_below_sparks_own_files_loses_and_repeats_nothing(tmp_path: Path, disk: SmallDisk) -> None:
    """``spark.local.dir``: shuffle files and blocks; what cannot be written there is tried again by the next start."""
    found = queries(tmp_path)
    with Driver(tmp_path / "first.log", more={"SPARK_LOCAL_DIRS": str(disk.directory)}) as driver:
        driver.bring(found, "reached")
        assert any(disk.directory.glob("blockmgr-*"))
        disk.fill()
        driver.release()
        errors = driver.results(found)
        disk.free()
        driver.end()
    assert any(errors.values())
    told = [error for error in errors.values() if error is not None]
    assert all("No space left on device" in error for error in told), told
    with Driver(tmp_path / "second.log") as driver:
        driver.bring(calm(found))
        assert driver.end() == 0
    whole(found)


def test_a_jvm_without_file_handles_loses_and_repeats_nothing(tmp_path: Path) -> None:
    found = queries(tmp_path)
    with Driver(tmp_path / "first.log") as driver:
        driver.bring(found, "reached")
        before = resource.prlimit(driver.jvm, resource.RLIMIT_NOFILE)
        taken = {int(each.name) for each in Path(f"/proc/{driver.jvm}/fd").iterdir()}
        # Every number below is taken.
        lowest = next(number for number in itertools.count() if number not in taken)
        resource.prlimit(driver.jvm, resource.RLIMIT_NOFILE, (lowest, before[1]))
        driver.release()
        errors = driver.results(found)
        resource.prlimit(driver.jvm, resource.RLIMIT_NOFILE, before)
        driver.kill(Victim.BOTH)
        driver.gone()
    assert all(errors.values()), errors
    with Driver(tmp_path / "second.log") as driver:
        driver.bring(calm(found))
        assert driver.end() == 0
    whole(found)


def test_settings_of_the_process_may_be_others_after_a_crash(tmp_path: Path) -> None:
    found = queries(tmp_path)
    _crash(found, tmp_path / "first.log")
    settings = " ".join(f"--conf {name}={value}" for name, value in OF_PROCESSES.items())
    with Driver(tmp_path / "second.log", more={"PYSPARK_SUBMIT_ARGS": f"{settings} pyspark-shell"}) as driver:
        assert b"KryoSerializer" in Path(f"/proc/{driver.jvm}/cmdline").read_bytes()
        driver.bring(calm(found))
        assert driver.end() == 0
    whole(found)


@pytest.mark.parametrize("version", [LINES[name] for name in ("4.0", "4.1", "4.2")])
def test_spark_may_be_of_another_line_after_a_crash(tmp_path: Path, version: str) -> None:
    """On the older line, then on the newest, and back."""
    place = PLACE / version
    if not place.is_dir():
        pytest.skip(f"scripts/sparks.py --install has not put Spark {version} there")
    found = queries(tmp_path)
    older = {"PYTHONPATH": os.pathsep.join(map(str, [place, ROOT / "src", ROOT]))}
    _crash(found, tmp_path / "first.log", older)
    _crash([replace(query, epoch=query.epoch + 1) for query in found if query.epoch], tmp_path / "second.log")
    with Driver(tmp_path / "third.log", more=older) as driver:
        driver.bring(calm(found))
        assert driver.end() == 0
    whole(found)


def _crash(found: list[Query], log: Path, more: Mapping[str, str] | None = None) -> None:
    """Run queries until each is where it blocks, and kill them."""
    with Driver(log, more=more) as driver:
        driver.bring(found, "reached")
        driver.kill(Victim.BOTH)
        driver.gone()
