"""Progress events: an epoch's event for Spark's ``StreamingQueryListener``, in addition to Spark's own events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sparkjet.api.spark_progress import as_json
from sparkjet.query_log import logger

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery as SparkQuery

    from sparkjet.engine.progress_report import ProgressReport


@dataclass
class ListenerEvents:
    """Posts an event to the listeners of a session for each epoch of a query; on the driver.

    Spark's own event of a batch knows neither the watermark nor the late rows. This one has the late rows where Spark's
    own windows report them, the watermark next to them (``stateOperators``), and the whole report in ``sink.metrics``.

    Attributes:
        session: The session in which the query runs.
        query: Spark's query, None until it has started.
    """

    session: SparkSession
    query: SparkQuery | None = None

    def post(self, report: ProgressReport) -> None:
        """Post the event of an epoch; nothing is done while there are no listeners.

        The epoch has ended: an event that cannot be posted is logged, as Spark's listener bus does with failures.
        """
        try:
            self._post(report)
        except Exception as error:  # noqa: BLE001 - whatever it is
            logger.warning("epoch %d: Spark's listeners do not hear of it: %s", report.epoch.number, error)

    def _post(self, report: ProgressReport) -> None:
        # Python's manager hides these; each costs one call to the JVM.
        manager: Any = self.session.streams._jsqm  # noqa: SLF001
        if self.query is None or not len(manager.listListeners()):
            return
        streaming: Any = self.session._jvm.org.apache.spark.sql.streaming  # type: ignore[union-attr]
        companion = getattr(getattr(streaming, "StreamingQueryProgress$"), "MODULE$")
        progress = companion.fromJson(as_json(report, self.query))
        manager.postListenerEvent(getattr(streaming, "StreamingQueryListener$QueryProgressEvent")(progress))
