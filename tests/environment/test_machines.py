"""What is wrong with a whole machine, from the start of its processes: its clock, and the disk of Spark's own files."""

from __future__ import annotations

import shutil
import struct
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from sparkjet import EpochPhase
from tests.crash.drivers import Driver, Query
from tests.crash.farm import Crash, calm
from tests.crash.feeds import write_skewed
from tests.crash.invariants import check
from tests.crash.readers import newest_record
from tests.faults.processes import executors
from tests.mounts import SmallDisk, small_disk

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]

SEED, FILES = 31, 5
JOBS = ("sums", "stacks", "visits", "state", "joins", "rows")
SOURCE = Path(__file__).with_name("machine_clock.c")
DAY, HOUR = 86_400, 3_600
CLUSTER = "local-cluster[2,1,1024]"


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
