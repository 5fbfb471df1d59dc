"""Java's classes and static methods: found by their whole names, once."""

from __future__ import annotations

from typing import Any

import pytest
from py4j.java_gateway import JavaPackage, JVMView
from py4j.protocol import Py4JError
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from sparkjet.java import java_class, keep_classes, static_method

pytestmark = pytest.mark.spark


def test_a_class_is_looked_up_once(spark: SparkSession) -> None:
    strings = java_class(spark, "java.lang.StringBuilder")
    assert strings("a").append("b").toString() == "ab"
    assert java_class(spark, "java.lang.StringBuilder") is strings


def test_a_static_method_and_that_of_a_scala_object(spark: SparkSession) -> None:
    assert static_method(spark, "java.lang.Math.max")(2, 3) == 3
    assert static_method(spark, "scala.Option.empty")().isEmpty()
    assert static_method(spark, "java.lang.Math.max") is static_method(spark, "java.lang.Math.max")


def test_what_java_does_not_have_is_an_error_when_it_is_used(spark: SparkSession) -> None:
    with pytest.raises((Py4JError, TypeError)):
        java_class(spark, "org.apache.spark.NoSuchClass")(1)


def test_columns_are_built_without_a_search_through_all_jars(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_classes(spark)
    asked: list[str] = []
    for of in (JVMView, JavaPackage):
        found_by = of.__getattr__

        def counted(self: Any, name: str, found_by: Any = found_by) -> Any:
            asked.append(name)
            return found_by(self, name)

        monkeypatch.setattr(of, "__getattr__", counted)
    rows = spark.range(3).withColumn("half", F.col("id") / 2).groupBy((F.col("id") % 2).alias("odd"))
    found = rows.agg(F.collect_list(F.struct("id", ~F.col("half").isNull()))).toDF("odd", "of")
    assert found.columns == ["odd", "of"]
    assert asked == []
    with pytest.raises(AnalysisException, match="UNRESOLVED_COLUMN"):
        found.select("even")
    assert "py4j" not in asked
