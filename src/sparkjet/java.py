"""Java classes and static methods, looked up once, and Scala collections."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from py4j.clientserver import ClientServer
from py4j.java_gateway import JavaClass
from py4j.protocol import Py4JError, Py4JJavaError

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

GONE = Py4JError, OSError
"""Errors of a call that cannot fail in the JVM itself, raised if the JVM is gone."""


def java_class(session: SparkSession, name: str) -> Any:
    """A class of the session's JVM by its full name.

    ``jvm.org.apache…`` asks the JVM at each dot whether there is a class of that name so far, which looks through all
    jars: several milliseconds per class, in every epoch.
    """
    return _class(session.sparkContext._gateway, name)


def static_method(session: SparkSession, name: str) -> Any:
    """A static method of a class, or a method of a Scala object, by its fully qualified name."""
    return _method(session.sparkContext._gateway, name)


def keep_classes(session: SparkSession) -> None:
    """Let PySpark find at once what it looks up for each column: once in an application; a second call does nothing.

    It asks the JVM for a class like ``PythonUtils`` whenever it builds a column or a list of them, and the JVM looks
    for it under each package that PySpark imports, through all jars.
    """
    _keep_classes(session.sparkContext._gateway)


def has_member(context: SparkContext, member: str) -> bool:
    """Whether there is a class (``package.Class``), a constructor (``package.Class(2)``) or a method (``….run(2|3)``).

    The numbers are parameter counts. Some parameters are added by maintenance releases, so the Spark line does not
    tell.
    """
    found = _MEMBER.fullmatch(member)
    if found is None:
        raise ValueError(f"{member!r} is not a member of a class.")
    owner, method, counts = found.groups()
    signatures = _signatures(context._gateway, owner)
    if signatures is None or counts is None:
        return signatures is not None
    wanted = re.compile(rf"(?<![\w$]){re.escape(method or owner)}\(([^)]*)\)")
    numbers = {len(each.split(",")) if each else 0 for each in wanted.findall(signatures)}
    return not numbers.isdisjoint(map(int, counts.split("|")))


def scala_context(session: SparkSession) -> Any:
    """Scala's ``SparkContext``."""
    return _context(session.sparkContext)


def is_stopped(context: SparkContext) -> bool:
    """Whether Spark has been stopped, or is being stopped, by this process or in the JVM, or the JVM has died."""
    try:
        return context._jsc is None or bool(context._jsc.sc().isStopped())
    except GONE:
        return True


def connection_to_python(session: SparkSession) -> Any:
    """The connection on which the JVM's thread calls back into Python, which waits for it; None if it does not.

    Python's end of it is served by a separate thread. The JVM keeps it when its thread has ended; ``shutdown()`` closes
    both ends.
    """
    gateway: Any = session.sparkContext._gateway
    # Without pinned threads, connections are pooled.
    return gateway.java_gateway_server.getCallbackClient().getPerThreadConnection() if _is_pinned(gateway) else None


def end_callback(session: SparkSession) -> None:
    """End a callback: call it last in a function that the JVM calls while the same thread waits for the JVM.

    py4j keeps a list of the connections that threads have to the JVM. Connections in use are not on it, but after a
    call inside such a function this one is. At the end of the outer call it would be there twice: one entry would be
    removed with the thread, and the other would keep the connection open for good.
    """
    gateway: Any = session.sparkContext._gateway
    client: Any = gateway._gateway_client  # noqa: SLF001 - all that knows of it
    if _is_pinned(gateway):
        with contextlib.suppress(ValueError):
            client.deque.remove(client.get_thread_connection())


def as_seq(session: SparkSession, values: list[Any]) -> Any:
    """A list as a Scala ``Seq``."""
    gateway = session.sparkContext._gateway
    return static_method(session, _SEQ)(values) if values else _no_values(gateway, _SEQ)


def as_map(session: SparkSession, pairs: Iterable[tuple[Any, Any]]) -> Any:
    """Keys and values as a Scala ``Map``; not from a dictionary, which would ask the JVM for the hash of each key."""
    values = java_class(session, "java.util.HashMap")()
    for key, value in pairs:
        values.put(key, value)
    return static_method(session, "org.apache.spark.api.python.PythonUtils.toScalaMap")(values)


def nothing(session: SparkSession) -> Any:
    """Scala's ``None``."""
    return _no_values(session.sparkContext._gateway, "scala.Option.empty")


def _is_pinned(gateway: Any) -> bool:
    """Whether each Python thread has its own JVM thread, as by default (``PYSPARK_PIN_THREAD``)."""
    return isinstance(gateway, ClientServer)


_MEMBER = re.compile(r"([\w.$]*?[A-Z][\w$]*)(?:\.([\w$]+))?(?:\((\d+(?:\|\d+)*)\))?")
_OFTEN = (
    *("PythonUtils", "functions", "PythonRDD", "SerDeUtil", "PythonSQLUtils", "SimplePythonFunction"),
    *("org.apache.spark.sql.functions", "org.apache.spark.sql.classic.SparkSession"),
    *("org.apache.spark.sql.catalyst.trees.PySparkCurrentOrigin", "org.apache.spark.sql.classic.SparkSession$"),
)
_SEQ = "org.apache.spark.api.python.PythonUtils.toSeq"


@lru_cache(256)
def _class(gateway: Any, name: str) -> Any:
    return getattr(gateway.jvm, name)


@lru_cache(16)
def _keep_classes(gateway: Any) -> None:
    view = gateway.jvm
    for name in _OFTEN:
        # A package is what py4j takes for a class that another line of Spark does not have.
        if isinstance(found := getattr(view, name), JavaClass):
            setattr(view, name, found)
    # PySpark asks for the kind of an error one by one, each time through these packages.
    view.py4j = package = view.py4j
    package.reflection = package.reflection
    package.reflection.TypeUtil = package.reflection.TypeUtil


@lru_cache(256)
def _method(gateway: Any, name: str) -> Any:
    owner, _, method = name.rpartition(".")
    return getattr(_class(gateway, owner), method)


@lru_cache(256)
def _signatures(gateway: Any, name: str) -> str | None:
    """The constructors and methods of a class in Java's notation, None if there is no such class."""
    try:
        found = gateway.jvm.java.lang.Class.forName(name)
    except Py4JJavaError:
        return None
    shown = gateway.jvm.scala.runtime.ScalaRunTime.stringOf
    return "".join(str(shown(each)) for each in (found.getConstructors(), found.getMethods()))


@lru_cache(4)
def _context(context: SparkContext) -> Any:
    return context._jsc.sc()


@lru_cache(16)
def _no_values(gateway: Any, name: str) -> Any:
    return _method(gateway, name)(*([[]] if name == _SEQ else []))
