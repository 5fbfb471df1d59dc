"""The format ``iceberg``."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING

from sparkjet.connectors.format import SinkFormat, Target, extra, unless_upserting
from sparkjet.errors import AnalysisError
from sparkjet.options import upsert_keys
from sparkjet.sinks.commit_every import CommitEvery
from sparkjet.sinks.pace import Pace
from sparkjet.storage.schemes import directory_at

if TYPE_CHECKING:
    from sparkjet.sinks.protocol import Sink


ICEBERG_OPTIONS: Mapping[str, str] = {
    "path": "The table, by its directory: a path or a URI; it is created if there is none. Or give toTable a name.",
    "mode": "append (default) or upsert.",
    "keyColumns": "mode=upsert: columns, separated by commas, that identify the row to replace.",
    "commitEvery": "How many epochs the table is given at once (1), or an interval after which it is given them.",
    "branch": "The branch of the table that is given the rows, as in Iceberg's writer for Spark; main by default.",
    "mergeSchema": "Whether the start adds columns of the rows that the table lacks, as in Spark's writers (false).",
    "progressInterval": "Least time between epochs without rows that tell readers of the watermark (none do).",
    "compression": "Codec of its Parquet files, as in Spark's writer; the table's own by default.",
    "maxRecordsPerFile": "As in Spark's writer.",
}
"""Options of ``format("iceberg")``."""


def _sink(target: Target) -> Sink:
    options, session, table = target.options, target.session, target.table
    path = options.get("path")
    if (path is None) == (not table):
        message = (
            'start: format("iceberg") needs one table: start("…") or option("path", "…") for its directory, or '
            'toTable("lake.db.events") for its name in a catalog.'
        )
        raise AnalysisError(message)
    with extra("iceberg"):
        from sparkjet.connectors.iceberg.library import CatalogTable, PathTable, table_at  # noqa: PLC0415 - the extra is optional
        from sparkjet.connectors.iceberg.sink import IcebergSink  # noqa: PLC0415 - as above
        from sparkjet.connectors.iceberg.version import MAIN  # noqa: PLC0415 - as above
    by_name = CatalogTable(session, table)
    found = by_name if path is None else PathTable(session, directory_at(path, "path", lambda: session))
    option, at = "toTable" if path is None else "path", partial(table_at, session=session)
    return IcebergSink(
        found,
        session,
        target.partition_by,
        options.among(("compression", "maxRecordsPerFile")),
        option,
        at,
        upsert_keys(options),
        CommitEvery.of(options),
        branch=options.get("branch") or MAIN,
        merge_schema=options.flag("mergeSchema"),
        pace=Pace.of(options),
    )


SINK = SinkFormat(
    "iceberg",
    _sink,
    ICEBERG_OPTIONS,
    has_directories=True,
    takes_table=True,
    only_adds=unless_upserting,
    cleaner="remove_orphan_files",
)
