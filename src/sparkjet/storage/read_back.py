"""Files that are read back: their rows come back as they were, whatever the settings of the user's session."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, SparkSession

from sparkjet.java import java_class, static_method

if TYPE_CHECKING:
    from collections.abc import Hashable

_READERS_AND_WRITERS = (
    "spark.sql.files.",
    "spark.sql.legacy.parquet.",
    "spark.sql.parquet.",
    "spark.sql.sources.",
    "spark.sql.variant.",
)
"""Prefixes of the settings that Spark's Parquet reader and writer take from a session, also in later versions."""
_OWN = {
    # Columns of user rows may differ only in this.
    "spark.sql.caseSensitive": "true",
    # Spark's default, INT96, is nanoseconds to readers other than Spark: they end in the year 2262.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # Since 4.2 Spark shreds variants, for which a Delta table would have to have a feature.
    "spark.sql.variant.writeShredding.enabled": "false",
}
_VECTORIZED = "spark.sql.parquet.enableVectorizedReader"
"""Affects speed, not what is read. Spark asks the reading session how rows come and the user's how to take them."""
_SESSIONS: dict[Hashable, tuple[SparkSession, str | None]] = {}
"""Sessions that are kept, each with the last value of ``_VECTORIZED``."""
_MOST = 8
_OF_THREADS = "org.apache.spark.sql.classic.SparkSession"


def for_read_back(session: SparkSession) -> SparkSession:
    """A copy of a session in which Spark reads and writes files by its own defaults; made once.

    Settings that a user makes there are for the user's files: ``TIMESTAMP_MILLIS`` would truncate times in the state,
    ``ignoreCorruptFiles`` would silently lose rows.
    """
    jsession: Any = session._jsparkSession
    # Not the session: each batch has another Python object for it.
    key = session.sparkContext._gateway, jsession.sessionUUID()
    found, before = _SESSIONS.get(key, (None, None))
    if found is None:
        if len(_SESSIONS) >= _MOST:
            # Another thread may be here, too: what it has found is not affected.
            _SESSIONS.clear()
        found = SparkSession(session.sparkContext, _with_defaults(session, jsession.cloneSession()))
    vectorized = str(session.conf.get(_VECTORIZED))
    if vectorized != before:
        found.conf.set(_VECTORIZED, vectorized)
        _SESSIONS[key] = found, vectorized
    return found


def in_session(session: SparkSession, rows: DataFrame) -> DataFrame:
    """The same rows in the session that continues with them; how their files are read stays the same."""
    of_rows = static_method(session, "org.apache.spark.sql.classic.Dataset.ofRows")
    return DataFrame(of_rows(session._jsparkSession, rows._jdf.logicalPlan()), session)


@contextmanager
def active(session: SparkSession) -> Iterator[None]:
    """Make Spark look up settings in this session when it was handed none, as when it lists files."""
    before = static_method(session, f"{_OF_THREADS}.getActiveSession")()
    static_method(session, f"{_OF_THREADS}.setActiveSession")(session._jsparkSession)
    try:
        yield
    finally:
        if before.isDefined():
            static_method(session, f"{_OF_THREADS}.setActiveSession")(before.get())
        else:
            deactivate(session)


def activated(session: SparkSession) -> bool:
    """Make a session the active one of this thread if it has none; returns whether it had none."""
    if static_method(session, f"{_OF_THREADS}.getActiveSession")().isDefined():
        return False
    static_method(session, f"{_OF_THREADS}.setActiveSession")(session._jsparkSession)
    return True


def deactivate(session: SparkSession) -> None:
    """Leave this thread without an active session."""
    static_method(session, f"{_OF_THREADS}.clearActiveSession")()


def _with_defaults(session: SparkSession, jsession: Any) -> Any:
    settings = jsession.sessionState().conf()
    entries = getattr(java_class(session, "org.apache.spark.sql.internal.SQLConf$"), "MODULE$")
    # As one text: Java's iterators end by an error, whose kind takes PySpark longer to find than all names.
    for name in str(settings.getAllConfs().keySet().mkString("\n")).split("\n"):
        known = entries.getConfigEntry(name) if name.startswith(_READERS_AND_WRITERS) else None
        if known is not None:
            default = known.defaultValueString()
            if default.startswith("<"):
                # "<undefined>", "<value of …>"
                settings.unsetConf(name)
            else:
                # Set explicitly, as an unset one would not replace the user's value in tasks.
                settings.setConfString(name, default)
    for name, value in _OWN.items():
        settings.setConfString(name, value)
    return jsession
