"""``read_state``: the state of an operator of a query, as a DataFrame."""

from __future__ import annotations

from pathlib import Path
from types import NoneType

from pyspark.sql import DataFrame, SparkSession

from sparkjet.engine.state_reader import StateReader
from sparkjet.errors import AnalysisError, refuse_connect
from sparkjet.storage.schemes import directory_at, session_for


def read_state(
    home: str | Path,
    operatorId: str | None = None,
    *,
    pin: str | None = None,
    epoch: int | None = None,
    joinSide: str | None = None,
    session: SparkSession | None = None,
) -> DataFrame:
    """The state of an operator of a query, under the names and types of its user; the query may be running.

    Nothing is written to the home. The rows are those of one record, and are persisted in the executors when this
    function returns, so that they stay whatever the query does; if the query replaces the newest record while it is
    being read, the next one is read instead. The query's own code is not needed.

    The columns are: for windows and sessions, those of the results, with the values that they would have if they closed
    now, and ``watermark``; for aggregates without windows, those of the results; for ``dropDuplicates``, the key, and
    when it ``expires``; for a join, ``side``, ``event_time`` and the row in ``left`` or ``right``; for a function with
    state, the key, its variables and ``timers``, or its ``state`` and ``timeout``.

    Args:
        home: The home of the query, as its ``checkpointLocation``; or ``grid://host:port,…/name``.
        operatorId: Name of the operator, as listed by ``sparkjet state``; the only one by default.
        pin: Name of the pinned record to read (:meth:`StreamingQuery.snapshot`); by default the newest is read.
        epoch: The epoch to read: the newest one, or a pinned one.
        joinSide: ``left`` or ``right``: only these rows of a join, with their own columns.
        session: The session; the active one by default.

    Raises:
        AnalysisError: There is no such operator, pin or epoch, or the query has several operators and none is named.
        RecoveryError: There is no record, or something that it names is missing.

    >>> import tempfile, sparkjet as sj
    >>> home, orders = tempfile.mkdtemp(), tempfile.mkdtemp()
    >>> spark.createDataFrame([("n", 5), ("n", 2)], "shop string, px long").write.mode("append").parquet(orders)
    >>> rows = spark.readStream.schema("shop string, px long").parquet(orders)
    >>> totals = sj.stream(rows).groupBy("shop").sum("px").writeStream.outputMode("update").format("noop")
    >>> totals.option("checkpointLocation", home).trigger(availableNow=True).start().awaitTermination()
    >>> read_state(home).collect()
    [Row(shop='n', sum(px)=7)]
    """
    _check("home", home, str, Path)
    for argument, given in (("operatorId", operatorId), ("pin", pin), ("joinSide", joinSide)):
        _check(argument, given, str, NoneType)
    _check("epoch", epoch, int, NoneType)
    chosen = session_for("read_state", session)
    refuse_connect("read_state", chosen)
    reader = StateReader(directory_at(str(home), "home", lambda: chosen), pin, epoch)
    return reader.rows(chosen, operatorId, joinSide)


def _check(argument: str, given: object, *kinds: type) -> None:
    if not isinstance(given, kinds) or type(given) is bool:
        message = (
            f"{argument}: {given!r} is not {'a number' if argument == 'epoch' else 'text'}. See help(sj.read_state)."
        )
        raise AnalysisError(message)
