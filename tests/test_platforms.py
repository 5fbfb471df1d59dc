"""Where a driver runs: what settings and environment tell of it, and what is refused, warned of or only said there."""

from __future__ import annotations

import pytest

from sparkjet.platforms import Manager, Note, Platform, Weight, locked_jvm

# As a driver's pod has it in cluster mode.
K8S = {
    "spark.master": "k8s://https://api:6443",
    "spark.submit.deployMode": "client",
    "spark.kubernetes.submitInDriver": "true",
}
YARN = {"spark.master": "yarn"}
DATABRICKS = {"DATABRICKS_RUNTIME_VERSION": "17.3"}
DRIVER, EXECUTOR = "spark.kubernetes.driver.volumes.", "spark.kubernetes.executor.volumes."
CLAIM = "persistentVolumeClaim.homes"


def noted(
    settings: dict[str, str], environment: dict[str, str] | None = None, home: str | None = None, release: str = "4.3.0"
) -> list[Note]:
    """The messages of a start."""
    notes = Platform(settings, environment or {}, release).notes(home)
    return [each for each in notes if each.weight is not Weight.SAID]


@pytest.mark.parametrize(
    ("settings", "environment", "release", "manager", "vendor"),
    [
        ({"spark.master": "local[2]"}, {}, "4.3.0", Manager.LOCAL, None),
        ({"spark.master": "local"}, {}, "4.3.0.dev0", Manager.LOCAL, None),
        ({"spark.master": "local-cluster[2,1,1024]"}, {}, "4.0.0-preview1", Manager.LOCAL_CLUSTER, None),
        ({"spark.master": "spark://a:7077,b:7077"}, {}, "4.3.0-SNAPSHOT", Manager.STANDALONE, None),
        (YARN, {}, "4.0.2-amzn-0", Manager.YARN, "Amazon EMR"),
        (YARN, {}, "4.0.2+amzn.0", Manager.YARN, "Amazon EMR"),
        ({"spark.master": "x", "spark.emr-serverless.driver.disk": "20G"}, {}, "", Manager.OTHER, "Amazon EMR"),
        (K8S, {}, "4.1.1.7.3", Manager.KUBERNETES, "another vendor"),
        # Its version may be that of a release which was tried, and its classes others.
        ({"spark.master": "local[*, 4]"}, DATABRICKS, "4.1.1", Manager.LOCAL, "Databricks"),
        ({"spark.databricks.clusterUsageTags.clusterId": "0"}, {}, "4.0.0", Manager.LOCAL, "Databricks"),
        ({"spark.remote": "sc://host"}, {}, "4.3.0", Manager.CONNECT, None),
        ({"spark.api.mode": "connect"}, {}, "4.3.0", Manager.CONNECT, None),
        ({}, {"SPARK_API_MODE": "CONNECT"}, "4.3.0", Manager.CONNECT, None),
        ({}, {"SPARK_REMOTE": "sc://host"}, "4.3.0", Manager.CONNECT, None),
        ({"spark.master": "local[1]"}, {"SPARK_REMOTE": "sc://host"}, "4.3.0", Manager.LOCAL, None),
        ({}, {}, "", Manager.LOCAL, None),
    ],
)
def test_what_it_is(
    settings: dict[str, str], environment: dict[str, str], release: str, manager: Manager, vendor: str | None
) -> None:
    platform = Platform(settings, environment, release)
    assert (platform.manager, platform.vendor) == (manager, vendor)
    assert manager.value in platform.name


def test_where_tests_run_there_is_nothing_to_say() -> None:
    for master in ("local[2]", "local-cluster[2,1,1024]", "spark://a:7077"):
        platform = Platform({"spark.master": master}, {"LOCAL_DIRS": "/data", "SPARK_LOCAL_DIRS": "/data"}, "4.3.0")
        assert (platform.is_tried, platform.notes("/data/home")) == (True, ())


def test_platforms_that_were_never_tried_are_reported() -> None:
    for settings in (YARN, K8S, {"spark.master": "mesos://x"}):
        platform = Platform(settings, {}, "4.3.0")
        assert not platform.is_tried
        (said,) = [each for each in platform.notes() if each.weight is Weight.SAID]
        assert f"never been tried on {platform.manager.value}" in said.told


def test_a_client_of_connect_is_refused_with_the_way_out_of_its_platform() -> None:
    (refused,) = noted({"spark.remote": "sc://host"})
    assert (refused.weight, "SparkSession.builder.master(…)" in refused.remedy) == (Weight.REFUSED, True)
    refused = noted({"spark.remote": "sc://host"}, DATABRICKS)[0]
    assert (refused.weight, "dedicated access mode" in refused.remedy) == (Weight.REFUSED, True)


def test_a_vendors_spark_is_warned_of() -> None:
    (warned,) = noted(YARN, release="4.0.2-amzn-0")
    assert (warned.weight, "by Amazon EMR" in warned.told) == (Weight.WARNED, True)


def test_plugins_that_run_plans_themselves_are_warned_of() -> None:
    (warned,) = noted({"spark.master": "local[2]", "spark.plugins": "a.B,org.apache.gluten.GlutenPlugin"})
    assert (warned.weight, warned.told.split()[0]) == (Weight.WARNED, "org.apache.gluten.GlutenPlugin")
    assert noted({"spark.master": "local[2]", "spark.plugins": "org.apache.spark.sql.connect.SparkConnectPlugin"}) == []


def test_executors_that_go_with_their_state_are_warned_of() -> None:
    dynamic = {"spark.master": "spark://a:7077", "spark.dynamicAllocation.enabled": "true"}
    limited = {**dynamic, "spark.dynamicAllocation.maxExecutors": "8"}
    idle = "spark.dynamicAllocation.cachedExecutorIdleTimeout"
    assert [each.weight for each in Platform(dynamic, {}, "4.3.0").notes()] == [Weight.SAID]
    assert Platform(limited, {}, "4.3.0").notes() == ()
    assert Platform({**limited, idle: "infinity"}, {}, "4.3.0").notes() == ()
    (warned,) = noted({**limited, idle: "60s"})
    assert "released after 60s without rows" in warned.told
    assert noted({**limited, idle: "60s", "spark.dynamicAllocation.enabled": "false"}) == []


@pytest.mark.parametrize(
    ("settings", "environment", "weight", "told"),
    [
        pytest.param(YARN, {"LOCAL_DIRS": "/y/a,/y/b"}, None, "", id="YARN, elsewhere"),
        pytest.param(YARN, {"LOCAL_DIRS": "/y,/homes"}, Weight.REFUSED, "YARN's directory", id="YARN's own"),
        pytest.param(
            {"spark.master": "k8s://x", f"{DRIVER}emptyDir.a.mount.path": "/homes"},
            {"SPARK_LOCAL_DIRS": "/homes"},
            None,
            "",
            id="Kubernetes, client mode: nothing is known",
        ),
        pytest.param(K8S, {}, Weight.WARNED, "in the driver's pod", id="no volume"),
        pytest.param(K8S, {"SPARK_LOCAL_DIRS": "/homes"}, Weight.REFUSED, "removed with it", id="scratch space"),
        pytest.param(
            K8S | {f"{DRIVER}emptyDir.a.mount.path": "/homes"}, {}, Weight.REFUSED, "removed with it", id="emptyDir"
        ),
        pytest.param(
            K8S | {f"{DRIVER}{CLAIM}.mount.path": "/homes", f"{DRIVER}{CLAIM}.options.claimName": "OnDemand"},
            {},
            Weight.REFUSED,
            "removed with it",
            id="its own claim",
        ),
        pytest.param(
            K8S | {f"{DRIVER}hostPath.a.mount.path": "/homes"}, {}, Weight.WARNED, "on the node", id="hostPath"
        ),
        pytest.param(
            K8S | {f"{DRIVER}{CLAIM}.mount.path": "/homes", f"{DRIVER}{CLAIM}.options.claimName": "c"},
            {},
            Weight.WARNED,
            "only the driver's settings mount",
            id="a claim of the driver's",
        ),
        pytest.param(
            K8S
            | {f"{DRIVER}{CLAIM}.mount.path": "/homes", f"{EXECUTOR}{CLAIM}2.mount.path": "/homes/"}
            | {f"{DRIVER}{CLAIM}.options.claimName": "c", f"{EXECUTOR}{CLAIM}2.options.claimName": "c"}
            | {f"{DRIVER}emptyDir.a.mount.path": "/"},
            {},
            None,
            "",
            id="a claim that all share",
        ),
        pytest.param(
            K8S
            | {f"{DRIVER}{CLAIM}.mount.path": "/homes/", f"{DRIVER}{CLAIM}.options.claimName": "c"}
            | {f"{EXECUTOR}{CLAIM}2.mount.path": "/homes", f"{EXECUTOR}{CLAIM}2.options.claimName": "c"},
            {"SPARK_LOCAL_DIRS": "/,/homes"},
            None,
            "",
            id="a claim that all share, by other names, which is scratch space too",
        ),
        pytest.param(
            K8S
            | {f"{role}nfs.n.mount.path": "/homes" for role in (DRIVER, EXECUTOR)}
            | {f"{DRIVER}nfs.n.options.server": "a", f"{EXECUTOR}nfs.n.options.server": "b"},
            {},
            Weight.WARNED,
            "only the driver's settings mount",
            id="NFS of two servers",
        ),
        pytest.param(
            K8S | {f"{DRIVER}{CLAIM}.mount.path": "/", f"{DRIVER}{CLAIM}.options.claimName": "c"},
            {"SPARK_LOCAL_DIRS": "/homes"},
            Weight.REFUSED,
            "removed with it",
            id="scratch space within a claim",
        ),
        pytest.param(
            {"spark.master": "spark://10.0.0.1:7077"}, DATABRICKS, Weight.WARNED, "disks go with the cluster", id="DBFS"
        ),
        pytest.param({"spark.master": "local[*]"}, DATABRICKS, None, "", id="one machine"),
    ],
)
def test_a_home_that_will_be_gone(
    settings: dict[str, str], environment: dict[str, str], weight: Weight | None, told: str
) -> None:
    before = noted(settings, environment)
    found = [each for each in noted(settings, environment, "/homes/q") if each not in before]
    assert [each.weight for each in found] == ([] if weight is None else [weight])
    assert all(told in each.told and "checkpointLocation" in each.remedy for each in found)


def test_the_weightiest_note_comes_first() -> None:
    notes = Platform(YARN | {"spark.plugins": "gluten"}, {"LOCAL_DIRS": "/y"}, "4.3.0").notes("/y/home")
    assert [each.weight for each in notes] == [Weight.REFUSED, Weight.WARNED, Weight.SAID]


def test_a_jvm_with_a_list_of_what_python_may_call() -> None:
    told = locked_jvm("py4j.security.Py4JSecurityException: Method a.B.c() is not whitelisted on class a.B")
    assert told is not None
    assert "dedicated access mode" in told
    assert locked_jvm("py4j.Py4JException: Method c() does not exist") is None
