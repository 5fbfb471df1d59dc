"""Gauges in Spark's own metrics system, for those who already collect Spark's metrics; no jar is needed.

Spark has no gauges for users' code, but exposes accumulators as gauges. Their values are integers, and they stay
registered until the driver ends.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from sparkjet.java import java_class, scala_context

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    from sparkjet.monitoring.runs import Run


SWITCH = "spark.sql.streaming.metricsEnabled"
"""Spark's own setting, read when a query starts."""
_REGISTERED: WeakKeyDictionary[SparkContext, dict[str, Any]] = WeakKeyDictionary()
"""The accumulators of a driver: a name can be registered only once."""
_registering = threading.Lock()


@dataclass
class SparkGauges:
    """The gauges of one query; called by the thread that ends epochs.

    Attributes:
        session: The session that the query was started in.
        run: The run, whose label is part of the gauges' names.
    """

    session: SparkSession
    run: Run
    _gauges: dict[str, Any] = field(default_factory=dict)

    def set(self, now: int) -> None:
        """Set them to the values reported by the newest epoch; does nothing if Spark's setting is off."""
        report = self.run.history.newest
        if report is None or not _is_on(self.session):
            return
        least = report.watermark
        values = {
            "epoch": report.epoch.number,
            "watermarkLagMs": None if least is None else (now - least) // 1000,
            "lateRows": report.late_rows.total,
            "nullTimestampRows": report.null_timestamps.total,
            "rowsIn": self.run.history.totals.rows_in,
            "rowsOut": self.run.history.totals.rows_out.total(),
            "stateEntries": report.snapshot.entries,
            "epochMs": sum(report.epoch.duration_ms.values()),
        }
        for name, value in values.items():
            if value is not None:
                self._gauge(f"sparkjet.{self.run.label}.{name}").setValue(value)

    def _gauge(self, name: str) -> Any:
        if name not in self._gauges:
            context = self.session.sparkContext
            with _registering:
                known = _REGISTERED.setdefault(context, {})
                if name not in known:
                    known[name] = _registered(self.session, name)
                self._gauges[name] = known[name]
        return self._gauges[name]


def _is_on(session: SparkSession) -> bool:
    # As Spark reads it.
    return (session.conf.get(SWITCH, "false") or "").strip().lower() == "true"


def _registered(session: SparkSession, name: str) -> Any:
    context = scala_context(session)
    gauge = context.longAccumulator(name)
    package = java_class(session, "scala.collection.immutable.Map$")
    gauges = getattr(package, "MODULE$").empty().updated(name, gauge)
    source = java_class(session, "org.apache.spark.metrics.source.LongAccumulatorSource$")
    getattr(source, "MODULE$").register(context, gauges)
    return gauge
