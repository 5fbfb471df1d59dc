"""Platforms: where a driver runs, judged by its settings and environment alone, and what does not work there.

Nothing here asks Spark or the machine: knowledge about a platform is tested without it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import PurePosixPath


class Manager(Enum):
    """The cluster managers that give a driver its executors."""

    LOCAL = "a local master"
    LOCAL_CLUSTER = "a local cluster"
    STANDALONE = "a standalone cluster"
    YARN = "YARN"
    KUBERNETES = "Kubernetes"
    CONNECT = "Spark Connect"
    OTHER = "another cluster manager"


TRIED = frozenset({Manager.LOCAL, Manager.LOCAL_CLUSTER, Manager.STANDALONE})
"""Managers on which sparkjet's tests run queries, and kill drivers and executors; others are only read about."""


class Weight(Enum):
    """The weight of a note.

    Attributes:
        SAID: ``sparkjet doctor`` shows it.
        WARNED: A start logs it too.
        REFUSED: It makes a start fail.
    """

    SAID = 1
    WARNED = 2
    REFUSED = 3


@dataclass(frozen=True)
class Note:
    """A fact about queries on a platform, and the way out."""

    weight: Weight
    told: str
    remedy: str


@dataclass(frozen=True)
class Platform:
    """A platform.

    Attributes:
        settings: Settings of the application, as in Spark's ``SparkConf``.
        environment: Environment of the driver's process.
        release: The version that Spark reports.

    >>> Platform({"spark.master": "k8s://https://api:6443"}, {}, "4.0.2-amzn-0").name
    'Amazon EMR on Kubernetes, Spark 4.0.2-amzn-0'
    """

    settings: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    release: str = ""

    @property
    def manager(self) -> Manager:
        """The cluster manager; a session that has a master is no Spark Connect client, whatever else is set."""
        master = self.settings.get("spark.master")
        if master is None:
            return Manager.CONNECT if self._asks_for_connect else Manager.LOCAL
        return next((manager for start, manager in _MASTERS.items() if master.startswith(start)), Manager.OTHER)

    @property
    def vendor(self) -> str | None:
        """The vendor of a Spark build that is not Apache's; its classes and results may differ anywhere."""
        if "DATABRICKS_RUNTIME_VERSION" in self.environment or any(
            name.startswith("spark.databricks.clusterUsageTags.") for name in self.settings
        ):
            return "Databricks"
        if "amzn" in self.release or any(name.startswith("spark.emr-serverless.") for name in self.settings):
            return "Amazon EMR"
        return None if _APACHES.fullmatch(self.release) else "another vendor"

    @property
    def name(self) -> str:
        """A short description of the platform."""
        where = self.manager.value if self.vendor is None else f"{self.vendor} on {self.manager.value}"
        return f"{where}, Spark {self.release}" if self.release else where

    @property
    def is_tried(self) -> bool:
        """Whether sparkjet's tests run on one like it."""
        return self.vendor is None and self.manager in TRIED

    def notes(self, home: str | None = None) -> tuple[Note, ...]:
        """The notes about this platform, the weightiest first.

        Args:
            home: The absolute path of a query's home; None if it is in a store or a grid, or not known.
        """
        found = [*self._of_spark(), *self._of_executors()]
        if home is not None and self.manager is not Manager.LOCAL:
            found += _homes(self, PurePosixPath(home))
        return tuple(sorted(found, key=lambda note: -note.weight.value))

    @property
    def _asks_for_connect(self) -> bool:
        return (
            "spark.remote" in self.settings
            or "SPARK_REMOTE" in self.environment
            or self.settings.get("spark.api.mode", self.environment.get("SPARK_API_MODE", "")).lower() == "connect"
        )

    def _of_spark(self) -> Iterator[Note]:
        if self.manager is Manager.CONNECT:
            told = "The session would be a client of Spark Connect, which has no access to the driver sparkjet runs in."
            yield Note(Weight.REFUSED, told, classic_session(self.environment))
        if self.vendor is not None:
            told = f"This is a build of Spark by {self.vendor}, which sparkjet has never been tried on."
            remedy = "sj.stream looks for every part of Spark that sparkjet uses; compare results with a batch first."
            yield Note(Weight.WARNED, told, remedy)
        if self.manager not in TRIED | {Manager.CONNECT}:
            told = f"sparkjet has never been tried on {self.manager.value}; its needs there are taken from its manual."
            yield Note(Weight.SAID, told, 'The page "Platforms" says what is known.')
        columnar = [each for each in self.settings.get("spark.plugins", "").split(",") if _COLUMNAR.search(each)]
        if columnar:
            told = f"{', '.join(columnar)} runs Spark's plans in its own way, which sparkjet has never been tried with."
            yield Note(Weight.WARNED, told, "Start the driver without it: spark.plugins.")

    def _of_executors(self) -> Iterator[Note]:
        if self.settings.get("spark.dynamicAllocation.enabled", "false").lower() != "true":
            return
        idle = self.settings.get("spark.dynamicAllocation.cachedExecutorIdleTimeout", "infinity")
        if idle.lower() != "infinity":
            told = f"Executors that hold state are released after {idle} without rows; all state is read again then."
            remedy = "Leave spark.dynamicAllocation.cachedExecutorIdleTimeout unset, or set minExecutors."
            yield Note(Weight.WARNED, told, remedy)
        if "spark.dynamicAllocation.maxExecutors" not in self.settings:
            told = "Dynamic allocation has no limit, so statePartitions follows the executors that it begins with."
            yield Note(Weight.SAID, told, "Set spark.dynamicAllocation.maxExecutors, or the option statePartitions.")


def classic_session(environment: Mapping[str, str]) -> str:
    """How to get a session that is not a Spark Connect client.

    >>> classic_session({"DATABRICKS_RUNTIME_VERSION": "17.3"})[:53]
    'Use compute with dedicated access mode: on Databricks'
    """
    if "DATABRICKS_RUNTIME_VERSION" in environment:
        return (
            "Use compute with dedicated access mode: on Databricks, serverless compute and standard (shared) access "
            "mode have sessions of Spark Connect only."
        )
    return (
        "Use a classic session: SparkSession.builder.master(…), without remote(…) and SPARK_REMOTE, spark.api.mode "
        '"classic".'
    )


def locked_jvm(error: str) -> str | None:
    """The way out of an error of a JVM that lets Python call only what it allows; None for other errors."""
    if "Py4JSecurityException" not in error:
        return None
    return (
        "this cluster lets Python call only some methods of Spark's (py4j.security), and sparkjet needs others. Use "
        "compute with dedicated access mode, or start it with spark.databricks.pyspark.enablePy4JSecurity false."
    )


def _homes(platform: Platform, home: PurePosixPath) -> Iterator[Note]:
    if platform.manager is Manager.YARN:
        yield from _on_yarn(platform, home)
    elif platform.manager is Manager.KUBERNETES:
        yield from _on_kubernetes(platform, home)
    elif platform.vendor == "Databricks":
        told = f"{home} is a path of the driver's machine: disks go with the cluster, mounts have never been tried."
        yield Note(Weight.WARNED, told, _STORES)


def _on_yarn(platform: Platform, home: PurePosixPath) -> Iterator[Note]:
    for place in filter(None, platform.environment.get("LOCAL_DIRS", "").split(",")):
        if home.is_relative_to(place):
            told = f"{home} is in YARN's directory of this application, and is removed with it."
            yield Note(Weight.REFUSED, told, _STORES)


def _on_kubernetes(platform: Platform, home: PurePosixPath) -> Iterator[Note]:
    # The mark of cluster mode, whose deployMode is "client" in the pod. Elsewhere Spark does not mount the driver's
    # volumes.
    if platform.settings.get("spark.kubernetes.submitInDriver", "false").lower() != "true":
        return
    local = [each for each in platform.environment.get("SPARK_LOCAL_DIRS", "").split(",") if each]
    scratch = [_Volume("emptyDir", PurePosixPath(each), {}) for each in local]
    # What a setting mounts at exactly this place is there, and is not Spark's scratch space.
    mounts = [each for each in (*_volumes(platform.settings, "driver"), *scratch) if home.is_relative_to(each.path)]
    # The innermost mount that contains the path decides.
    mount = max(mounts, key=lambda each: len(each.path.parts), default=None)
    if mount is None:
        # Templates and webhooks mount what no setting shows: no reason to refuse. Executors try before the start.
        told = f"{home} is in the driver's pod, and is removed with it, unless a template or an operator mounts it."
        yield Note(Weight.WARNED, told, _CLAIM)
    elif mount.goes_with_its_pod:
        told = f"{home} is in a volume of the driver's pod, and is removed with it."
        yield Note(Weight.REFUSED, told, _CLAIM)
    elif mount.kind == "hostPath":
        told = f"{home} is on the node that the driver's pod runs on; a pod on another node has another one."
        yield Note(Weight.WARNED, told, _CLAIM)
    elif not any(map(mount.is_seen_as, _volumes(platform.settings, "executor"))):
        yield Note(Weight.WARNED, f"{home} is in a volume that only the driver's settings mount.", _CLAIM)


@dataclass(frozen=True)
class _Volume:
    """A mount that Spark makes in a pod."""

    kind: str
    path: PurePosixPath
    options: Mapping[str, str]

    @property
    def goes_with_its_pod(self) -> bool:
        return self.kind == "emptyDir" or self.options.get("claimName") == "OnDemand"

    def is_seen_as(self, other: _Volume) -> bool:
        """Whether another pod has the same files there; volumes may have different names in each."""
        if (self.kind, self.path) != (other.kind, other.path):
            return False
        if self.kind == "persistentVolumeClaim":
            return self.options.get("claimName") == other.options.get("claimName")
        return self.options == other.options


def _volumes(settings: Mapping[str, str], role: str) -> list[_Volume]:
    pattern = re.compile(rf"(spark\.kubernetes\.{role}\.volumes\.(\w+)\.[^.]+)\.mount\.path")
    found = []
    for match, path in ((pattern.fullmatch(name), path) for name, path in settings.items()):
        if match is not None:
            start = f"{match[1]}.options."
            options = {name.removeprefix(start): value for name, value in settings.items() if name.startswith(start)}
            found.append(_Volume(match[2], PurePosixPath(path), options))
    return found


_STORES = "Give checkpointLocation a place that outlives the application: hdfs://, s3a://, abfss://, gs:// or a grid."
_CLAIM = (
    "Give checkpointLocation a store or a grid; or mount one persistentVolumeClaim (ReadWriteMany) at the same path in "
    "the driver and the executors: spark.kubernetes.{driver,executor}.volumes.persistentVolumeClaim.NAME.…"
)
_APACHES = re.compile(r"(\d+\.\d+\.\d+([.-]?(dev|rc|preview|SNAPSHOT)\d*)?)?")
"""Apache's version format; nothing is known of an empty version."""
_COLUMNAR = re.compile(r"gluten|comet|rapids|com\.nvidia", re.IGNORECASE)
# The longer one first.
_MASTERS = {
    "local-cluster": Manager.LOCAL_CLUSTER,
    "local": Manager.LOCAL,
    "spark://": Manager.STANDALONE,
    "yarn": Manager.YARN,
    "k8s://": Manager.KUBERNETES,
}
