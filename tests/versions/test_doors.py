"""Each door into Spark is open on the line that runs the tests, and a Spark that has closed one is told at once."""

from __future__ import annotations

import ast
import re
import warnings
from dataclasses import replace
from pathlib import Path

import pytest
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

import sparkjet
from sparkjet.catalyst.doors import (
    DOORS,
    KEPT_PLANS,
    Door,
    check_doors,
    check_one_release,
    is_open,
    lacking,
    named_if_locked,
)
from sparkjet.errors import AnalysisError
from sparkjet.spark_line import RELEASE

SOURCE = Path(sparkjet.__file__).parent
PRIVATE = re.compile(r"_j(vm|df|c|cols|sc|sq|sqm|schema|write|reader|sparkSession)|_gateway")
"""Names of what PySpark's objects have in the JVM."""
NEWER = "9.9.1"
CLOSED = Door("tests", ("tests",), ("org.apache.spark.sql.classic.Dataset.ofRows(2)", "org.apache.spark.Nothing(1)"))


@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.purpose)
def test_each_door_is_open(door: Door, spark: SparkSession) -> None:
    assert lacking(spark, [door]) == {}


def test_missing_members_are_found(spark: SparkSession) -> None:
    members = (
        "org.apache.spark.sql.classic.Dataset",
        "org.apache.spark.sql.classic.Dataset.ofRows(2)",
        "org.apache.spark.sql.classic.Dataset.ofRows(9)",
        "org.apache.spark.sql.classic.Dataset.ofRow(2)",
        "org.apache.spark.sql.catalyst.plans.logical.Project(2)",
        "org.apache.spark.sql.catalyst.plans.logical.Project(7)",
        "org.apache.spark.sql.Nowhere.method(0)",
        "org.apache.spark.sql.classic.Dataset.ofRows(2|9)",
    )
    assert lacking(spark, [replace(CLOSED, members=members)]) == {
        replace(CLOSED, members=members): (members[2], members[3], members[5], members[6])
    }


def test_a_newer_spark_is_warned_of_once_and_refused_for_what_it_lacks(spark: SparkSession) -> None:
    with pytest.warns(UserWarning, match=r"has not been tried with Spark 9\.9\.1, only up to 4\.3\."):
        check_doors(spark, [], NEWER)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_doors(spark, DOORS, NEWER)
        check_doors(spark, [replace(CLOSED, without="it goes on more slowly")], NEWER)
        with pytest.raises(
            AnalysisError, match=r"on Spark 9\.9\.1, which lacks org\.apache\.spark\.Nothing\(1\) \(tests\)"
        ):
            check_doors(spark, [CLOSED], NEWER)


def test_an_older_release_that_was_not_tried_is_looked_through_without_a_warning(spark: SparkSession) -> None:
    check_doors(spark, DOORS, "4.0.3")
    with pytest.raises(AnalysisError, match=r"on Spark 4\.0\.3, .*\(tests\)\. Use one that was tried: 4\.0\.1, "):
        check_doors(spark, [CLOSED], "4.0.3")


def test_on_a_release_that_was_tried_nothing_is_looked_up(spark: SparkSession) -> None:
    assert is_open(spark, CLOSED)
    assert not is_open(spark, CLOSED, NEWER)
    assert is_open(spark, KEPT_PLANS, NEWER)


def test_a_vendors_build_is_looked_through_whatever_its_version(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_doors(spark, [CLOSED])
    with pytest.raises(AnalysisError, match=rf"on Spark {RELEASE}, the build by Databricks, which lacks .*Nothing"):
        check_doors(spark, [CLOSED], vendor="Databricks")
    monkeypatch.setenv("DATABRICKS_RUNTIME_VERSION", "17.3")
    with pytest.raises(AnalysisError, match="the build by Databricks"):
        check_doors(spark, [CLOSED])
    assert not is_open(spark, CLOSED)
    assert is_open(spark, KEPT_PLANS)


def test_a_pyspark_that_has_started_another_spark_is_refused() -> None:
    check_one_release("4.0.5", "4.0.1-amzn-0")
    with pytest.raises(
        AnalysisError, match=r"PySpark is 4\.3\.0, .* is 4\.0\.5: SPARK_HOME .* install pyspark 4\.0\.5"
    ):
        check_one_release("4.3.0", "4.0.5")


def test_a_jvm_that_does_not_let_python_in_is_named() -> None:
    locked, other = Py4JError("py4j.security.Py4JSecurityException: Method a.B.c()"), Py4JError("no such method")
    with pytest.raises(AnalysisError, match="stream: this cluster lets Python call only"), named_if_locked():
        raise locked
    with pytest.raises(Py4JError, match="no such method"), named_if_locked():
        raise other


def test_every_module_that_goes_into_spark_has_a_door() -> None:
    # What only wraps: `java` has the classes' names from its callers.
    found = {path.relative_to(SOURCE).with_suffix("").as_posix() for path in SOURCE.rglob("*.py") if _goes_inside(path)}
    listed = {module for door in DOORS for module in door.modules}
    assert found - listed == set(), "name what they use in sparkjet.catalyst.doors"
    assert {module for module in listed if not (SOURCE / f"{module}.py").is_file()} == set()


def _goes_inside(path: Path) -> bool:
    """Whether a module names something of PySpark's private side, or a class in Spark's JVM."""
    return any(
        (isinstance(node, ast.Attribute) and PRIVATE.fullmatch(node.attr) is not None)
        or (isinstance(node, ast.Constant) and str(node.value).startswith("org.apache.spark.sql."))
        for node in ast.walk(ast.parse(path.read_bytes()))
        if path.stem != "doors"
    )
