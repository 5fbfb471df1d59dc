"""Java's classes and static methods: found by their whole names, once."""

from __future__ import annotations

import pytest
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from sparkjet.java import java_class, static_method

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
