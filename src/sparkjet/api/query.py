"""The handle of a running query, with the methods of Spark's ``StreamingQuery``."""

from __future__ import annotations

import time
from threading import TIMEOUT_MAX
from typing import TYPE_CHECKING, Any

from sparkjet.api.guided import Guided
from sparkjet.api.notebook import table
from sparkjet.api.spark_progress import progress_of
from sparkjet.catalyst.spark_ui import link
from sparkjet.engine.progress import spark_progress
from sparkjet.errors import AnalysisError
from sparkjet.monitoring import DRIVER, open_page
from sparkjet.monitoring.view import details, shown

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql.streaming.listener import StreamingQueryProgress
    from pyspark.sql.streaming.query import StreamingQuery as SparkQuery

    from sparkjet.engine.ending import Ending
    from sparkjet.engine.engine import Engine
    from sparkjet.engine.progress_report import ProgressReport
    from sparkjet.engine.supervisor import Supervisor
    from sparkjet.monitoring.page import Page
    from sparkjet.snapshots.pins import Pin


_SHOWN = {
    "state": "state",
    "epoch": "epoch",
    "rows in, this run": "rowsIn",
    "late rows": "lateRows",
    "rows without event time": "nullTimestamps",
    "windows open": "openWindows",
    "transactions not settled": "unsettled",
}
_SUBSTREAMS = 5
"""Maximum number of substreams shown in a notebook."""


class StreamingQuery(Guided):
    """A started query. Thread-safe; every method runs on the driver.

    Functions that the query itself calls (those of ``foreachBatch`` and ``onEpochPhase``, sinks, policies, clocks) may
    call its methods too. Methods that would wait for the query, and so for their caller, are refused there, and
    :meth:`stop` returns at once. If such a function starts a thread and waits for it, the query does not know.
    """

    def __init__(
        self,
        engine: Engine,
        supervisor: Supervisor,
        ending: Ending,
        spark: SparkQuery,
        reports: Sequence[ProgressReport],
        guarantees: Mapping[str, str],
    ) -> None:
        self._engine = engine
        self._supervisor = supervisor
        self._ending = ending
        self._spark = spark
        self._reports = reports
        self._guarantees = dict(guarantees)

    def __repr__(self) -> str:
        state = "active" if self.isActive else "ended" if self._ending.failure is None else "failed"
        return f"StreamingQuery[name: {self.name}, id: {self.id}, runId: {self.runId}, {state}]"

    def _repr_html_(self) -> str:
        """The state of the query, in a small table for notebooks; :meth:`page` shows everything."""
        run = DRIVER.get(self.runId)
        if run is None:
            return table(repr(self), [])
        told = details(run, time.time_ns() // 1000)
        rows = [(name, told[key]) for name, key in _SHOWN.items() if told.get(key) is not None]
        behind = [
            (each["name"], "–" if each["watermark"] is None else shown(told["now"] - each["watermark"]))
            for each in told.get("substreams", [])[:_SUBSTREAMS]
        ]
        return table(f"{run.label}: {told['sentence']}", [*rows, *((f"{name} is behind", by) for name, by in behind)])

    @property
    def id(self) -> str:
        """The query's identity, the same in every run."""
        return self._engine.record.query

    @property
    def runId(self) -> str:
        """Identity of this run, by which Spark's UI and logs refer to it."""
        return str(self._spark.runId)

    @property
    def name(self) -> str | None:
        """Name given with ``queryName``."""
        return self._spark.name

    @property
    def isActive(self) -> bool:
        """Whether the query is still working, including the closing epoch."""
        return not self._ending.finished

    @property
    def status(self) -> dict[str, Any]:
        """The current activity of Spark's query."""
        return dict(self._spark.status)

    @property
    def guarantees(self) -> dict[str, str]:
        """The processing guarantee that each sink really gives."""
        return dict(self._guarantees)

    @property
    def lastProgress(self) -> StreamingQueryProgress | None:
        """Progress of the last epoch, with further keys (docs/reference/progress.md); None before the first."""
        return next(reversed(self.recentProgress), None)

    @property
    def recentProgress(self) -> list[StreamingQueryProgress]:
        """Progress of the last epochs, oldest first."""
        return progress_of(self._spark, spark_progress(self._spark), list(self._reports))

    def awaitTermination(self, timeout: float | None = None) -> bool | None:
        """Wait for the end; with a timeout in seconds, return whether the query has ended.

        Raises:
            SparkjetError, StreamingQueryException: The error with which the query failed. Errors of the user's own code
                on the driver are raised as they are, and Spark's errors with their cause as ``__cause__``.
            AnalysisError: The query itself calls the caller.
        """
        self._check_waiting("awaitTermination")
        _check_timeout("awaitTermination", timeout)
        ended = self._ending.wait(timeout)
        if ended:
            self._ending.raise_failure()
        return None if timeout is None else ended

    def exception(self) -> BaseException | None:
        """The error with which the query failed, None if it did not fail."""
        return self._ending.exception

    def processAllAvailable(self) -> None:
        """For tests: wait until all available input has been committed, and let the clock tick once.

        Raises:
            SparkjetError, StreamingQueryException: The error with which the query failed.
            AnalysisError: The query itself calls the caller.
        """
        self._check_waiting("processAllAvailable")
        self._supervisor.drain()

    def retireSubstream(self, substream: str) -> None:
        """Stop waiting for a substream that will have no more data, e.g. that of a removed partition.

        Windows that waited only for it are emitted at once; if it comes back, it is a new substream.

        Raises:
            AnalysisError: There is no such substream; the message names the nearest. Or the query itself calls the
                caller.
        """
        self._check_waiting("retireSubstream")
        self._supervisor.retire(substream)

    def page(self, host: str = "127.0.0.1", port: int = 0, token: str | None = None) -> Page:
        """Serve the page of this driver's queries; a second call returns the existing page.

        The page shows which substream holds the stream back and by how much, event time by substream, the time that
        epochs take, rows, late rows, state and transactions. It changes nothing, and needs ``pip install
        "sparkjet[page]"``. Spark's UI links to it at ``/sparkjet/``, without the token: anyone who reaches that UI
        could read it there.

        Args:
            host: The address to listen on.
            port: Its port; 0 for any free one.
            token: The token that readers must know; by default the variable ``SPARKJET_PAGE_TOKEN``, or a generated
            one.

        Returns:
            The page; printing it shows the address to open, with the generated token, and ``stop()`` ends it.

        Raises:
            AnalysisError: The address cannot be used, or a package is missing.
        """
        page = open_page(host, port, token)
        link(self._engine.session, page.address)
        return page

    def explain(self, extended: bool = False) -> None:
        """Print Spark's plan of the last batch's source."""
        self._spark.explain(extended)

    def stop(self, timeout: float | None = None) -> None:
        """End the query once the current epoch has committed, and wait for that; another call waits again.

        If the query itself calls the caller, e.g. a function of ``foreachBatch``, this returns at once.

        Raises:
            TimeoutError: If it has not ended within ``timeout`` seconds; it will then end by itself, as soon as it can.
        """
        _check_timeout("stop", timeout)
        self._supervisor.stop()
        if self._supervisor.is_called_by_query:
            # The epoch ends only when the caller has returned.
            return
        if not self._ending.wait(timeout):
            message = (
                f"The query has not stopped within {timeout} seconds. It stops by itself when the current epoch has "
                f"ended (the last one recorded is {self._engine.record.epoch}); to wait for it, call stop again."
            )
            raise TimeoutError(message)

    def snapshot(self, name: str) -> Pin:
        """Keep the newest record under a name, with everything that it names and every record from there on.

        Writes one small file now. While the pin exists, the query keeps everything that this record names, and the
        record of each epoch: where its batch ended, the clock reading, and the names of its state (some 2 to 20 KB). A
        pinned record can be forked (:func:`sparkjet.fork`), and the pin is removed with ``python -m sparkjet snapshots
        rm`` or by the option ``pinRetention``. May be called while the query runs, and afterwards; never waits for it.

        Args:
            name: Different from the names of the query's other pins: letters, digits, dots, hyphens and underscores.

        Raises:
            AnalysisError: The name is not valid, or is taken.
        """
        return self._engine.pin(name)

    def _check_waiting(self, method: str) -> None:
        """Refuse a method that would wait for the query if the query itself calls the caller."""
        if self._supervisor.is_called_by_query:
            message = (
                f"{method}: the query itself calls the function that calls this, and both would wait for each other "
                "forever. Call it from another thread, which that function does not wait for. Only stop() can be "
                "called here; it takes effect when the epoch has ended."
            )
            raise AnalysisError(message)


def _check_timeout(method: str, timeout: object) -> None:
    # Python's locks cannot wait longer than this, and would raise their own errors.
    if timeout is not None and not (isinstance(timeout, int | float) and 0 <= timeout <= TIMEOUT_MAX):
        raise AnalysisError(f"{method}: timeout={timeout!r} is not a number of seconds. Give one, or leave it out.")
