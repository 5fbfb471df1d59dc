"""The outbox: sinks that cannot prepare publish after the decision, from rows kept with the snapshot."""

from __future__ import annotations

import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import Observation
from pyspark.sql import functions as F

from sparkjet.paths import CHECKING, WRITING, spark_uri, sync_directory, sync_file
from sparkjet.sinks.protocol import Guarantee, Handle, TransactionId

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType


class OutboxSink(ABC):
    """Base of sinks for which publishing is a call that may happen more than once.

    The rows of an epoch are stored before the decision and handed over after it, until that succeeds: a call that is
    repeated after a crash has the same epoch and the same rows. (Publishing before the decision would not: a re-run
    at a later clock may close more windows.)
    """

    guarantee = Guarantee.AT_LEAST_ONCE

    def __init__(self) -> None:
        self._directory: Path | None = None
        self._session: SparkSession | None = None

    def attach(self, directory: Path, session: SparkSession) -> None:
        """Called once by the engine before the query starts, with the place for the outbox."""
        self._directory, self._session = directory, session

    @abstractmethod
    def publish(self, rows: DataFrame, epoch: int) -> None:
        """Hand over the rows of an epoch, on the driver; may be called again with the same epoch and rows."""

    def deliver(self, box: Path, handle: Handle) -> None:
        """Hand over the files of an epoch; a sink that does not want a DataFrame of them overrides this."""
        assert self._session is not None  # noqa: S101 - attach() comes first
        self.publish(self._session.read.options(**CHECKING).parquet(spark_uri(box)), handle["epoch"])

    def check(self, schema: StructType) -> None:  # noqa: B027 - most have nothing to check
        """See :meth:`Sink.check`."""

    def prepare(self, rows: DataFrame, transaction: TransactionId) -> Handle | None:
        """See :meth:`Sink.prepare`."""
        box = self._box(transaction.sink, str(transaction))
        counted = Observation()
        rows.observe(counted, F.count(F.lit(1)).alias("rows")).write.options(**WRITING).parquet(spark_uri(box))
        if not counted.get.get("rows"):
            shutil.rmtree(box)
            return None
        for path in box.glob("part-*"):
            sync_file(path)
        sync_directory(box)
        sync_directory(box.parent)
        return {"sink": transaction.sink, "box": box.name, "epoch": transaction.epoch}

    def commit(self, handle: Handle, between: Callable[[], None]) -> None:
        """See :meth:`Sink.commit`; the rows are removed once they have been handed over."""
        box = self._box(handle["sink"], handle["box"])
        if not box.is_dir():
            return
        self.deliver(box, handle)
        between()
        # Renamed first: half of the rows must not be handed over again if the removal is cut short.
        done = box.with_name(f"done-{box.name}")
        box.rename(done)
        shutil.rmtree(done)

    def roll_back_strays(self, query: str, takeover: int, keep: Sequence[Handle]) -> None:
        """See :meth:`Sink.roll_back_strays`."""
        del query  # the outbox lies in the query's own directory
        decided = {handle.get("box") for handle in keep}
        assert self._directory is not None  # noqa: S101 - attach() comes first
        for box in self._directory.glob("*/*"):
            if box.name in decided:
                continue
            if box.name.startswith("done-") or int(box.name.partition("-")[0]) < takeover:
                shutil.rmtree(box, ignore_errors=True)

    def _box(self, sink: str, name: str) -> Path:
        assert self._directory is not None  # noqa: S101 - attach() comes first
        return self._directory / sink / name
