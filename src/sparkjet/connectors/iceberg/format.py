"""The format ``iceberg``."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from sparkjet.connectors.format import KnownSource, SinkFormat, Target, extra, unless_upserting
from sparkjet.errors import AnalysisError
from sparkjet.options import (
    COMPRESSION,
    MAX_RECORDS_PER_FILE,
    MERGE_SCHEMA,
    PROGRESS_INTERVAL,
    UPSERT_OPTIONS,
    text,
    upsert_keys,
)
from sparkjet.sinks.commit_every import COMMIT_EVERY, CommitEvery
from sparkjet.sinks.pace import Pace
from sparkjet.storage.schemes import directory_at

if TYPE_CHECKING:
    from sparkjet.connectors.format import Followed, Hearing
    from sparkjet.sinks.protocol import Sink


_PATH = text(
    "path", "The table, by its directory: a path or a URI; it is created if there is none. Or give toTable a name."
)
_BRANCH = text("branch", "The branch of the table that is given the rows, as in Iceberg's writer for Spark.", "main")
_WRITERS = (COMPRESSION, MAX_RECORDS_PER_FILE)


def _sink(target: Target) -> Sink:
    options, session, table = target.options, target.session, target.table
    path = options[_PATH]
    if (path is None) == (not table):
        message = (
            'start: format("iceberg") needs one table: start("…") or option("path", "…") for its directory, or '
            'toTable("lake.db.events") for its name in a catalog.'
        )
        raise AnalysisError(message)
    with extra("iceberg"):
        from sparkjet.connectors.iceberg.library import CatalogTable, PathTable, table_at  # noqa: PLC0415 - the extra is optional
        from sparkjet.connectors.iceberg.sink import IcebergSink  # noqa: PLC0415 - as above
    by_name = CatalogTable(session, table)
    found = by_name if path is None else PathTable(session, directory_at(path, "path", lambda: session))
    option, at = "toTable" if path is None else "path", partial(table_at, session=session)
    return IcebergSink(
        found,
        session,
        target.partition_by,
        options.among(_WRITERS),
        option,
        at,
        upsert_keys(options),
        CommitEvery.of(options),
        branch=options[_BRANCH] or _BRANCH.otherwise,
        merge_schema=options[MERGE_SCHEMA],
        pace=Pace.of(options),
    )


TABLE = "org.apache.iceberg.spark.source.SparkTable"
"""The class of what Iceberg's connector reads."""


def _hearing(followed: Followed) -> Hearing:
    from sparkjet.connectors.iceberg.heard import IcebergWriters, java_snapshots  # noqa: PLC0415 - most queries read no such table

    return IcebergWriters(partial(java_snapshots, followed.table.table()))


SOURCE = KnownSource(hearing=_hearing)
"""A table read by Iceberg's connector: a snapshot is the same forever."""
SINK = SinkFormat(
    "iceberg",
    _sink,
    (_PATH, *UPSERT_OPTIONS, COMMIT_EVERY, _BRANCH, MERGE_SCHEMA, PROGRESS_INTERVAL, *_WRITERS),
    has_directories=True,
    takes_table=True,
    only_adds=unless_upserting,
    reads_once=True,
    names_columns=True,
    cleaner="remove_orphan_files",
)
