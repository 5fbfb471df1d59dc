"""Java libraries that the user adds to the session, and their errors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sparkjet.errors import AnalysisError
from sparkjet.storage.hadoop_file_system import JAVA_ERRORS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def enter(session: SparkSession, needed: Sequence[str], lacking: str) -> None:
    """Make a library's classes visible to this JVM thread, even if they were added by SQL's ADD JAR."""
    jvm: Any = session._jvm
    loader = session._jsparkSession.sharedState().jarClassLoader()
    jvm.java.lang.Thread.currentThread().setContextClassLoader(loader)
    try:
        for each in needed:
            jvm.java.lang.Class.forName(each, False, loader)
    except JAVA_ERRORS as error:
        raise AnalysisError(lacking) from error


def is_a(error: Exception, *names: str) -> bool:
    """Whether an error is an exception of one of these Java classes."""
    return hasattr(error, "java_exception") and error.java_exception.getClass().getName() in names


def said(error: Exception) -> str:
    """The first line of an exception's message."""
    java = getattr(error, "java_exception", None)
    return str(error) if java is None else str(java.getMessage() or java.toString()).splitlines()[0]
