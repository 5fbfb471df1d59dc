"""What the two engines on Spark have in common: waiting for epochs, and the rate of those after warm-up."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Protocol

from benchmarks.work import Work


class Query(Protocol):
    """What both queries have."""

    @property
    def lastProgress(self) -> Any:
        """The newest epoch's progress."""

    @property
    def recentProgress(self) -> Sequence[Any]:
        """Progress of the last epochs."""

    def exception(self) -> BaseException | None:
        """What the query failed with."""

    def stop(self) -> None:
        """End it."""


def run_epochs(query: Query, work: Work) -> tuple[int, float]:
    """Let a query run for so many epochs with input, stop it, and return rows and seconds of those after warm-up.

    The time is from the start of the first measured epoch to the start of the last, so that whatever a query does
    between two epochs counts too. With two inputs the rows of one count.
    """
    started: dict[int, datetime] = {}
    while len(started) <= work.warm_up + work.measured:
        if (failure := query.exception()) is not None:
            raise failure
        # Asking takes processor time that belongs to the query.
        time.sleep(1.0)
        for progress in query.recentProgress:
            if progress.get("numInputRows"):
                started[progress["batchId"]] = datetime.fromisoformat(progress["timestamp"].replace("Z", "+00:00"))
    query.stop()
    times = [started[number] for number in sorted(started)][work.warm_up :]
    return work.batch * (len(times) - 1), (times[-1] - times[0]).total_seconds()
