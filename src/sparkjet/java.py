"""Java's classes and static methods, looked up once, and Scala's collections."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark import SparkContext
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


def scala_context(session: SparkSession) -> Any:
    """Scala's ``SparkContext``."""
    return _context(session.sparkContext)


def as_seq(session: SparkSession, values: list[Any]) -> Any:
    """A list as Scala's ``Seq``."""
    gateway = session.sparkContext._gateway
    return static_method(session, _SEQ)(values) if values else _no_values(gateway, _SEQ)


def as_map(session: SparkSession, pairs: Iterable[tuple[Any, Any]]) -> Any:
    """Keys and values as Scala's ``Map``; not from a dictionary, which would ask the JVM for the hash of each key."""
    values = java_class(session, "java.util.HashMap")()
    for key, value in pairs:
        values.put(key, value)
    return static_method(session, "org.apache.spark.api.python.PythonUtils.toScalaMap")(values)


def nothing(session: SparkSession) -> Any:
    """Scala's ``None``."""
    return _no_values(session.sparkContext._gateway, "scala.Option.empty")


_SEQ = "org.apache.spark.api.python.PythonUtils.toSeq"


@lru_cache(64)
def _class(gateway: Any, name: str) -> Any:
    return getattr(gateway.jvm, name)


@lru_cache(64)
def _method(gateway: Any, name: str) -> Any:
    owner, _, method = name.rpartition(".")
    return getattr(_class(gateway, owner), method)


@lru_cache(4)
def _context(context: SparkContext) -> Any:
    return context._jsc.sc()


@lru_cache(16)
def _no_values(gateway: Any, name: str) -> Any:
    return _method(gateway, name)(*([[]] if name == _SEQ else []))
