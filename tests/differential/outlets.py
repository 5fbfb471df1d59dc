"""Where the results of a real stream go, and what a reader finds there."""

from __future__ import annotations

import atexit
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType

import sparkjet as sj
from sparkjet.catalyst.columns import quoted
from sparkjet.testing import CollectingSink
from tests.differential.texts import texts
from tests.servers.postgres import PostgresServer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from sparkjet.sinks.protocol import Handle, TransactionId


@dataclass(frozen=True)
class Found:
    """What came of one result."""

    schema: StructType | None
    epochs: Sequence[Sequence[Any]]


@dataclass
class TextSink(CollectingSink):
    """Collects rows as texts."""

    schema: StructType | None = field(default=None)

    def prepare(self, rows: DataFrame, transaction: TransactionId) -> Handle | None:
        """Remembers the schema too."""
        self.schema = rows.schema
        return super().prepare(texts(rows), transaction)

    def found(self) -> Found:
        """What it has, epoch by epoch."""
        return Found(self.schema, [rows for _, rows in sorted(self.committed.items())])


class Collected:
    """A sink of our own."""

    def __init__(self, home: Path) -> None:
        """Nothing has come."""
        self.sink = TextSink()

    def writer(self, result: Any) -> Any:
        """A writer of the result, for the next run."""
        return result.writeStream.format(self.sink)

    def ended(self, session: SparkSession) -> None:
        """A run has ended."""

    def found(self) -> Found | None:
        """What has come in all runs; None where nothing can be read."""
        return self.sink.found()


class Noop(Collected):
    """Nowhere; the query must run."""

    def writer(self, result: Any) -> Any:
        """See :class:`Collected`."""
        return result.writeStream.format("noop")

    def found(self) -> Found | None:
        """See :class:`Collected`."""
        return None


class Function(Collected):
    """A function of foreachBatch, which may be called again for an epoch."""

    def __init__(self, home: Path) -> None:
        """Nothing has come."""
        self._epochs: dict[int, list[Any]] = {}
        self._schema: StructType | None = None

    def writer(self, result: Any) -> Any:
        """See :class:`Collected`."""
        return result.writeStream.foreachBatch(self._take)

    def _take(self, rows: DataFrame, epoch: int) -> None:
        self._schema = rows.schema
        self._epochs[epoch] = texts(rows).collect()

    def found(self) -> Found | None:
        """See :class:`Collected`."""
        return Found(self._schema, [rows for _, rows in sorted(self._epochs.items())])


class View(Collected):
    """A view in memory, which each run begins anew."""

    def __init__(self, home: Path) -> None:
        """Nothing has come."""
        self._name = f"v{uuid.uuid4().hex}"
        self._schema: StructType | None = None
        self._runs: list[list[Any]] = []

    def writer(self, result: Any) -> Any:
        """See :class:`Collected`."""
        return result.writeStream.format("memory").queryName(self._name)

    def ended(self, session: SparkSession) -> None:
        """See :class:`Collected`."""
        table = session.table(self._name)
        self._schema = table.schema
        self._runs.append(texts(table).collect())
        session.catalog.dropTempView(self._name)

    def found(self) -> Found | None:
        """See :class:`Collected`."""
        return Found(self._schema, self._runs)


class Files(Collected):
    """Files, read by their manifest, where every column may be null."""

    format = "parquet"

    def __init__(self, home: Path) -> None:
        """Nothing has come."""
        self._place = str(home / f"out-{uuid.uuid4().hex}")

    def writer(self, result: Any) -> Any:
        """See :class:`Collected`."""
        return result.writeStream.format(self.format).option("path", self._place)

    def found(self) -> Found | None:
        """See :class:`Collected`."""
        try:
            rows = sj.read_files(self._place)
        except sj.AnalysisError as error:
            # A query that has had no rows has published none.
            if "has no manifest" not in str(error):
                raise
            return Found(None, [])
        return Found(None, [texts(rows).collect()])


class OrcFiles(Files):
    """The same in another format."""

    format = "orc"


class Table(Collected):
    """A table of PostgreSQL with columns of texts."""

    def __init__(self, home: Path) -> None:
        """Nothing has come."""
        self._dsn = _postgres().database(f"t{uuid.uuid4().hex}")
        self._columns = 0

    def writer(self, result: Any) -> Any:
        """See :class:`Collected`."""
        values = [(F.col(quoted(field.name)), field.dataType) for field in result.schema]
        shown = [F.hex(value) if isinstance(kind, BinaryType) else value.cast("string") for value, kind in values]
        self._columns = len(shown)
        names = [value.alias(f"c{number}") for number, value in enumerate(shown)]
        return result.select(*names).writeStream.format("postgres").options(dsn=self._dsn, dbtable="found")

    def found(self) -> Found | None:
        """See :class:`Collected`."""
        names = ", ".join(f"c{number}" for number in range(self._columns))
        with psycopg.connect(self._dsn) as connection:
            return Found(None, [connection.execute(f"SELECT {names} FROM found".encode()).fetchall()])


@cache
def _postgres() -> PostgresServer:
    server = PostgresServer()
    atexit.register(server.__exit__)
    server.start()
    return server


OUTLETS: dict[str, Callable[[Path], Collected]] = {
    "collected": Collected,
    "foreachBatch": Function,
    "noop": Noop,
    "memory": View,
    "parquet": Files,
    "orc": OrcFiles,
    "postgres": Table,
}
ANY_MODE = ("collected", "collected", "foreachBatch", "noop")
"""Those that know the epoch of a row, or need not."""
