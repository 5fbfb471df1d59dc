"""Formats: what a source or a sink is called, its options, what is known of it, and how it is made."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from sparkjet.errors import AnalysisError
from sparkjet.options import upsert_keys

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSource

    from sparkjet.clock import Clock
    from sparkjet.options import Option, Options
    from sparkjet.sinks.protocol import Sink
    from sparkjet.time import Heard


@dataclass(frozen=True)
class Target:
    """The settings of a writer for its sink.

    Attributes:
        options: Of the output.
        session: In which its rows are computed.
        clock: For what expires.
        partition_by: The columns of ``partitionBy``.
        table: The name given to ``toTable``; empty without.
        file_format: Of the files, where the format named it.
        function: Of ``foreach`` and ``foreachBatch``.
        query: Name of the query; empty without.
        complete: Whether the rows of an epoch are all there are, even if there are none.
    """

    options: Options
    session: SparkSession
    clock: Clock
    partition_by: tuple[str, ...] = ()
    table: str = ""
    file_format: str | None = None
    function: Any = None
    query: str = ""
    complete: bool = False


def always(_: Options) -> bool:
    """Rows stay with any options."""
    return True


def unless_upserting(options: Options) -> bool:
    """Rows stay unless ``mode=upsert`` has newer ones replace them."""
    return not upsert_keys(options)


def never(_: Options) -> bool:
    """Rows do not stay: newer ones may replace them, or the destination decides."""
    return False


@dataclass(frozen=True)
class SinkFormat:
    """A format of ``writeStream``.

    Attributes:
        name: As ``format(…)`` takes it.
        create: Makes the sink; raises an AnalysisError where an option is missing or wrong.
        options: Its own.
        is_durable: Whether the output outlives the session, so that the query's state must as well; otherwise a query
            without a ``checkpointLocation`` has a home in a temporary directory, and begins again with each start.
        method: The writer's method that chooses it, where more than its name is needed.
        has_directories: Whether it takes ``partitionBy``.
        takes_table: Whether ``toTable`` takes it.
        only_adds: Whether rows that are there stay, whatever comes after them, with some options.
        key_option: The option that names the columns by which rows replace older ones.
        reads_once: Whether it reads all rows of an epoch when it prepares them, and not again: what is counted while it
            reads is then known, and no batch need be held for it.
        names_columns: Whether it finds rows by the names of their columns, so that no two may be alike; those that
            keep an outbox and files do in any case.
        cleaner: The command of others that removes files which no version names, where there is one.
    """

    name: str
    create: Callable[[Target], Sink]
    options: Sequence[Option[Any]] = ()
    is_durable: bool = True
    method: str | None = None
    has_directories: bool = False
    takes_table: bool = False
    only_adds: Callable[[Options], bool] = never
    key_option: str = "keyColumns"
    reads_once: bool = False
    names_columns: bool = False
    cleaner: str | None = None


@dataclass(frozen=True)
class Followed:
    """A table that a connector of others reads as a stream.

    Attributes:
        session: The session.
        place: Its directory, for sources of API version 1.
        options: Those of the source, by their names in lower case, likewise.
        table: Spark's table in the JVM, for sources of version 2.
    """

    session: SparkSession
    place: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    table: Any = None


class Hearing(Protocol):
    """Hears what the writers of a table tell, for a stream of others whose offsets have no place for it."""

    def heard(self, offset: Any, before: Heard | None) -> Heard | None:
        """The progress that they announced up to the end of a batch; None if nothing counts yet.

        Args:
            offset: The end, from its JSON.
            before: What they had told up to an earlier one.
        """
        ...


@dataclass(frozen=True)
class KnownSource:
    """Facts that are known of a source by its name.

    Attributes:
        keeps: Whether it keeps a batch until the record has it, whatever Spark commits, and then returns the same rows
            for it. False if it delivers each row once; None if that is judged by other signs.
        partitions: The columns that name its partitions, outermost first, where its offsets name them all, also those
            without rows.
        packages: Those that executors need to read it: the name to install, by the name that is imported.
        takes: Whether each row goes to one of its readers, so that another query would take rows away from this one.
        begins: Options of which one says where a new query begins, if without any it reads only rows that come later.
        hearing: Hears what the writers of a table that it reads tell; None where its offsets have the watermark, or
            nobody tells any.
        ends: Whether it knows of ``trigger(availableNow=True)``. Of sources that do not, Spark runs one batch.
    """

    keeps: bool | None = True
    partitions: tuple[str, ...] = ()
    packages: Mapping[str, str] = field(default_factory=dict)
    takes: bool = False
    begins: tuple[str, ...] = ()
    hearing: Callable[[Followed], Hearing] | None = None
    ends: bool = True


@dataclass(frozen=True)
class SourceFormat:
    """A format of ``readStream`` or ``read`` that sparkjet registers.

    Attributes:
        name: As ``format(…)`` takes it.
        load: Imports its class.
        options: Its own.
        packages: Those that the driver needs: the name to install, by the name that is imported.
        known: What is known of it as a stream; None if it is none.
    """

    name: str
    load: Callable[[], type[DataSource]]
    options: Sequence[Option[Any]]
    packages: Mapping[str, str]
    known: KnownSource | None


@contextmanager
def extra(name: str) -> Iterator[None]:
    """Name the extra of sparkjet that installs what an import misses."""
    try:
        yield
    except ImportError as error:
        raise AnalysisError(f'format("{name}") needs {error.name}: pip install "sparkjet[{name}]".') from error
