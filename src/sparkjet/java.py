"""Java's classes and static methods, looked up once, and Scala's collections."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def java_class(session: SparkSession, name: str) -> Any:
    """A class of the session's JVM by its whole name.

    ``jvm.org.apache…`` asks the JVM at each dot whether there is a class of that name so far, which looks through
    all jars: several milliseconds a class, in every epoch.
    """
    return _class(session.sparkContext._gateway, name)


def static_method(session: SparkSession, name: str) -> Any:
    """A static method of a class, or a method of a Scala object, by the whole names of both."""
    return _method(session.sparkContext._gateway, name)


def as_seq(session: SparkSession, values: list[Any]) -> Any:
    """A list as Scala's ``Seq``."""
    return static_method(session, "org.apache.spark.api.python.PythonUtils.toSeq")(values)


def as_map(session: SparkSession, values: dict[Any, Any]) -> Any:
    """A dictionary as Scala's ``Map``."""
    return static_method(session, "org.apache.spark.api.python.PythonUtils.toScalaMap")(values)


def nothing(session: SparkSession) -> Any:
    """Scala's ``None``."""
    return static_method(session, "scala.Option.empty")()


@lru_cache(64)
def _class(gateway: Any, name: str) -> Any:
    return getattr(gateway.jvm, name)


@lru_cache(64)
def _method(gateway: Any, name: str) -> Any:
    owner, _, method = name.rpartition(".")
    return getattr(_class(gateway, owner), method)
