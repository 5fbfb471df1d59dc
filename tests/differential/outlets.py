"""Where the results of a real stream go, and what a reader finds there."""

from __future__ import annotations

import atexit
import shutil
import tempfile
import uuid
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.rows import dict_row
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType, LongType

import sparkjet as sj
from sparkjet.catalyst.columns import quoted
from sparkjet.testing import CollectingSink
from sparkjet_grid.access import create_token
from sparkjet_grid.journal_reader import Journal
from tests.connectors.delta.reading import rows_of
from tests.differential.texts import BOUNDS, texts
from tests.grid.processes import MemberProcess
from tests.servers.postgres import PostgresServer

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from sparkjet.sinks.protocol import Handle, TransactionId


@dataclass(frozen=True)
class Found:
    """The outcome of one result."""

    schema: StructType | None
    epochs: Sequence[Sequence[Any]]


@dataclass
class TextSink(CollectingSink):
    """Collects rows as texts, and in microseconds when the window of each ends."""

    schema: StructType | None = field(default=None)

    def prepare(self, rows: DataFrame, transaction: TransactionId) -> Handle | None:
        """Remembers the schema too."""
        self.schema = rows.schema
        return super().prepare(texts(rows, _end(rows.schema)), transaction)

    def found(self) -> Found:
        """Its rows, epoch by epoch."""
        return Found(self.schema, [[row[:-1] for row in rows] for _, rows in sorted(self.committed.items())])

    def ends(self) -> list[int | None]:
        """When the windows of all rows so far end, None of rows without a window."""
        return [row[-1] for row in self.rows()]


def _end(schema: StructType) -> Column:
    """The end of a row's window, or of what a state function calls one."""
    for name in schema.names:
        if name in ("window", "session_window") and schema[name].dataType == BOUNDS:
            return F.unix_micros(f"{name}.end")
        if name == "end" and isinstance(schema[name].dataType, LongType):
            return F.col(name)
    return F.lit(None).cast("long")


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
        """The rows of all runs; None if nothing can be read."""
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
    """A view in memory, which each run begins from scratch."""

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


class Texts(Collected):
    """Rows whose columns become texts, ``c0``, ``c1`` …, where there are not all of Spark's types."""

    def __init__(self, home: Path) -> None:
        """Nothing has come."""
        self._place = home / f"out-{uuid.uuid4().hex}"
        self._name = f"t{uuid.uuid4().hex}"
        self._names: list[str] = []

    def writer(self, result: Any) -> Any:
        """See :class:`Collected`."""
        values = [(F.col(quoted(field.name)), field.dataType) for field in result.schema]
        shown = [F.hex(value) if isinstance(kind, BinaryType) else value.cast("string") for value, kind in values]
        self._names = [f"c{number}" for number in range(len(shown))]
        named = [value.alias(name) for name, value in zip(self._names, shown, strict=True)]
        return self.to(result.select(*named).writeStream)

    @abstractmethod
    def to(self, writer: Any) -> Any:
        """A writer with its sink."""

    @abstractmethod
    def rows(self) -> Sequence[Mapping[str, Any]]:
        """All rows, by the names of columns."""

    def found(self) -> Found | None:
        """See :class:`Collected`."""
        return Found(None, [[tuple(row[name] for name in self._names) for row in self.rows()]])


class Table(Texts):
    """A table of PostgreSQL."""

    def to(self, writer: Any) -> Any:
        """See :class:`Texts`."""
        return writer.format("postgres").options(dsn=self._dsn, dbtable="found")

    def rows(self) -> Sequence[Mapping[str, Any]]:
        """See :class:`Texts`."""
        with psycopg.connect(self._dsn, row_factory=dict_row) as connection:
            return connection.execute("SELECT * FROM found").fetchall()

    @cached_property
    def _dsn(self) -> str:
        return _postgres().database(self._name)


class GridJournal(Texts):
    """A journal of a grid."""

    def to(self, writer: Any) -> Any:
        """See :class:`Texts`."""
        return writer.format("grid-journal").option("path", f"grid://{grid().address}/{self._name}")

    def rows(self) -> Sequence[Mapping[str, Any]]:
        """See :class:`Texts`."""
        journal = Journal(f"grid://{grid().address}", self._name, token_file=str(grid().token))
        try:
            ends = journal.latest().ends
            found = [journal.read(number, start, ends[number]) for number, start in journal.earliest().items()]
            return [row for batches in found for batch in batches for row in batch.to_pylist()]
        except sj.AnalysisError as error:
            # As of files: none has been published without rows.
            if "has no journal" not in str(error):
                raise
            return []
        finally:
            journal.close()


class DeltaTable(Texts):
    """A table of Delta Lake, read by delta-rs."""

    def to(self, writer: Any) -> Any:
        """See :class:`Texts`."""
        return writer.format("delta").option("path", str(self._place))

    def rows(self) -> Sequence[Mapping[str, Any]]:
        """See :class:`Texts`."""
        return rows_of(self._place)


@cache
def grid() -> MemberProcess:
    """A grid of one member, in its own process, until this one ends."""
    place = Path(tempfile.mkdtemp(prefix="sparkjet-differential-grid-"))
    atexit.register(shutil.rmtree, place, ignore_errors=True)
    create_token(place / "token")
    member = MemberProcess(place, place / "token")
    atexit.register(member.kill)
    return member.__enter__()


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
    "delta": DeltaTable,
    "grid journal": GridJournal,
}
ANY_MODE = ("collected", "collected", "foreachBatch", "noop")
"""Those that know the epoch of a row, or need not."""
