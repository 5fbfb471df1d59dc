"""How many partitions the state gets: what the settings promise, else the executors that come."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from sparkjet.executors import configured_cores, settled, state_partitions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STANDALONE, YARN, KUBERNETES = "spark://host:7077", "yarn", "k8s://https://host:443"
DYNAMIC = {"spark.dynamicAllocation.enabled": "true", "spark.executor.cores": "4"}
INSTANCES = {"spark.executor.instances": "5", "spark.executor.cores": "3"}


@pytest.mark.parametrize(
    ("master", "settings", "cores"),
    [
        ("local-cluster[3, 2, 1024]", {}, 6),
        (YARN, INSTANCES, 15),
        (KUBERNETES, {"spark.executor.instances": "5"}, 5),
        (KUBERNETES, {}, 2),
        (STANDALONE, INSTANCES, None),
        (STANDALONE, {"spark.cores.max": "12"}, 12),
        (YARN, {**INSTANCES, "spark.cores.max": "12"}, 15),
        (YARN, {**DYNAMIC, "spark.dynamicAllocation.maxExecutors": "10"}, 40),
        (YARN, {**DYNAMIC, "spark.dynamicAllocation.minExecutors": "2"}, 8),
        (YARN, {**DYNAMIC, "spark.dynamicAllocation.initialExecutors": "3", "spark.executor.instances": "2"}, 12),
        (YARN, DYNAMIC, None),
        (STANDALONE, {**DYNAMIC, "spark.dynamicAllocation.maxExecutors": "10", "spark.cores.max": "12"}, 12),
        (STANDALONE, {"spark.dynamicAllocation.enabled": "true", "spark.dynamicAllocation.maxExecutors": "10"}, None),
    ],
)
def test_the_cores_that_the_settings_ask_for(master: str, settings: dict[str, str], cores: int | None) -> None:
    assert configured_cores(settings, master) == cores


def test_executors_are_waited_for_until_no_more_come() -> None:
    looks = itertools.chain([0, 0, 2, 4], itertools.repeat(6))
    assert settled(lambda: next(looks), patience=60, quiet=0.3) == 6


def test_executors_that_never_come_are_not_waited_for_forever() -> None:
    assert settled(lambda: 0, patience=0.2, quiet=0.1) == 0


def test_a_local_master_has_its_cores(spark: SparkSession) -> None:
    assert state_partitions(spark) == spark.sparkContext.defaultParallelism
