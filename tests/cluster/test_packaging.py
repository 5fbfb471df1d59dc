"""``spark-submit --py-files sparkjet.whl,sparkjet_grid.whl`` to a cluster whose Pythons have nothing else of ours."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from sparkjet_grid.access import create_token
from tests.cluster.runs import ROOT, SETTINGS
from tests.grid.processes import MemberProcess
from tests.servers.spark import SPARK_HOME
from tests.wheels import GRID, built

if TYPE_CHECKING:
    from tests.servers.kafka import KafkaServer
    from tests.servers.spark import SparkCluster

# In CI wheels are installed into their own environments (`test_wheels.py`).
pytestmark = [pytest.mark.long, pytest.mark.timeout(900)]
SITE = Path(SPARK_HOME).parent
CLIENTS = ("confluent_kafka", "confluent_kafka.libs", "pyarrow", "pyarrow.libs")
"""Packages that contain C libraries, and are sent in an archive."""
IN_GRIDS = ("pyarrow", "pyarrow.libs", "msgspec", "tenacity", "typing_extensions.py", "xxhash")
"""Packages that tasks need which write to a grid."""
DRIVERS = (*CLIENTS, "msgspec", "tenacity", "typing_extensions.py")
"""Packages that the driver has as well: sparkjet's dependencies, not sparkjet."""
GRID_DRIVERS = (*DRIVERS, "xxhash", "pandas", "pandas.libs", "numpy", "numpy.libs", "dateutil", "pytz", "six.py")
"""PySpark needs pandas wherever it sends functions that take Arrow."""
RECORDS = 40


def python(place: Path, packages: tuple[str, ...]) -> str:
    """A Python with some of this environment's packages, and no others."""
    site = place / "site"
    site.mkdir(parents=True)
    for name in packages:
        if (SITE / name).exists():
            (site / name).symlink_to(SITE / name)
    program = place / "python3"
    # Its own name for itself, which errors show, is that of the program behind it.
    program.write_text(f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{site}" exec "{sys._base_executable}" -S "$@"\n')
    program.chmod(0o755)
    return str(program)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> str:
    """All that a job without a grid needs."""
    return str(built(ROOT, tmp_path_factory.mktemp("wheel")))


@pytest.fixture(scope="module")
def both(wheel: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The packages that one with a grid needs."""
    return f"{wheel},{built(GRID, tmp_path_factory.mktemp('grid-wheel'))}"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("packaging")


@pytest.fixture(scope="module")
def topic(kafka: KafkaServer) -> str:
    """A topic with two partitions and records of four minutes."""
    name = f"t{uuid4().hex}"
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    admin.create_topics([NewTopic(name, 2)])[name].result()
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "enable.idempotence": True})
    for number in range(RECORDS):
        time = 1_700_000_040_000 + number * 6000
        producer.produce(name, f"k{number % 2}".encode(), partition=number % 2, timestamp=time)
    producer.flush()
    return name


def submit(
    cluster: SparkCluster,
    wheels: str,
    place: Path,
    workers: str,
    job: dict[str, Any],
    drivers: tuple[str, ...] = DRIVERS,
) -> dict[str, Any]:
    """Run the job of this folder with the wheels as its only libraries of ours; returns what it reports."""
    driver = place / f"driver-{uuid4().hex}"
    report = driver / "report.json"
    program = python(driver, drivers)
    # One executor is enough.
    settings = [f"{name}={value}" for name, value in {**SETTINGS, "spark.cores.max": "1"}.items()]
    command = [str(SPARK_HOME / "bin" / "spark-submit"), "--master", cluster.url, "--py-files", wheels]
    command += [word for setting in settings for word in ("--conf", setting)]
    command += ["--conf", f"spark.pyspark.driver.python={program}", "--conf", f"spark.pyspark.python={workers}"]
    command += [str(ROOT / "tests" / "cluster" / "packaged.py"), json.dumps({**job, "report": str(report)})]
    hidden = {"PYTHONPATH", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"}
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    environment |= {"SPARK_HOME": str(SPARK_HOME), "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(command, cwd=driver, env=environment, check=False, capture_output=True, text=True)
    assert report.exists(), done.stderr[-8000:]
    found: dict[str, Any] = json.loads(report.read_text())
    return found


def test_windows_files_and_kafka_need_nothing_but_the_clients(
    cluster: SparkCluster, kafka: KafkaServer, wheel: str, place: Path, topic: str
) -> None:
    job = {"home": str(place / "full"), "topic": topic, "servers": kafka.bootstrap}
    (place / "full").mkdir()
    found = submit(cluster, wheel, place, python(place / "clients", CLIENTS), job)
    assert Path(wheel).name in found["sparkjet"]
    assert found["workers"] == {"sparkjet": False, "msgspec": False, "confluent_kafka": True}
    assert sum(found["files"]) == RECORDS
    assert sum(found["kafka"]) == RECORDS
    assert sum(found["python"]) == RECORDS


@pytest.fixture
def in_grid(place: Path) -> Iterator[dict[str, Any]]:
    """A job with its home in its own grid."""
    folder = place / uuid4().hex
    folder.mkdir()
    create_token(folder / "token")
    with MemberProcess(folder, folder / "token") as member:
        yield {"home": str(folder), "grid": f"grid://{member.address}", "token": str(folder / "token")}


@pytest.mark.long
def test_a_home_in_a_grid_needs_no_sparkjet_on_the_executors(
    cluster: SparkCluster, both: str, place: Path, in_grid: dict[str, Any]
) -> None:
    found = submit(cluster, both, place, python(place / "in-grids", IN_GRIDS), in_grid, GRID_DRIVERS)
    assert found["workers"] == {"sparkjet": False, "sparkjet_grid": False, "msgspec": True}
    assert Path(both.rpartition(",")[2]).name in found["grid"]
    # The last minute is open after the first run, and is counted on by the second one.
    assert found["first"] == [5] * 6, found["first"]
    assert sorted(found["second"]) == [5] * 8, found["second"]


@pytest.mark.long
def test_what_a_home_in_a_grid_needs_is_named(
    cluster: SparkCluster, both: str, place: Path, in_grid: dict[str, Any]
) -> None:
    found = submit(cluster, both, place, python(place / "no-msgspec", IN_GRIDS[:2]), in_grid, GRID_DRIVERS)
    assert "AnalysisError: [SPARKJET_ANALYSIS] start: the executors'" in found["first"]
    assert "has no msgspec" in found["first"]


@pytest.mark.long
def test_packages_that_a_bare_python_lacks_are_named_in_one_line(
    cluster: SparkCluster, kafka: KafkaServer, wheel: str, place: Path, topic: str
) -> None:
    job = {"home": str(place / "bare"), "topic": topic, "servers": kafka.bootstrap}
    (place / "bare").mkdir()
    found = submit(cluster, wheel, place, python(place / "nothing", ()), job)
    assert sum(found["files"]) == RECORDS
    assert "AnalysisError: [SPARKJET_ANALYSIS] start: the executors'" in found["python"]
    assert "has no pyarrow. Install pyarrow there" in found["python"]
    assert "\n" not in found["python"]
    # Spark says it, of the process that plans batches on the driver.
    assert "has no confluent_kafka" in found["kafka"]
