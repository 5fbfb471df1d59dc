"""The format ``delta``."""

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


DELTA_OPTIONS: Mapping[str, str] = {
    "path": "The table: a path or a URI; it is created if there is none. Or give toTable a name.",
    "mode": "append (default) or upsert.",
    "keyColumns": "mode=upsert: columns, separated by commas, that identify the row to replace.",
    "commitEvery": "How many epochs the table is given at once (1), or an interval after which it is given them.",
    "mergeSchema": "Whether the start adds columns of the rows that the table lacks, as in Spark's writers (false).",
    "progressInterval": "Least time between epochs without rows that tell readers of the watermark (none do).",
    "compression": "Codec of its Parquet files, as in Spark's writer.",
    "maxRecordsPerFile": "As in Spark's writer.",
}
"""Options of ``format("delta")``."""


def _sink(target: Target) -> Sink:
    options, session = target.options, target.session
    path, named = options.get("path"), None
    if path is None and not target.table:
        message = (
            'start: format("delta") needs a table: start("…") or option("path", "…") for its directory, or '
            'toTable("db.events") for its name in the catalog.'
        )
        raise AnalysisError(message)
    with extra("delta"):
        from sparkjet.connectors.delta.named import named_table  # noqa: PLC0415 - the extra is optional
        from sparkjet.connectors.delta.sink import DeltaSink  # noqa: PLC0415 - as above
    if target.table:
        named = named_table(target.table, session, path)
    place, option = (path or "", "path") if named is None else (named.location, "toTable")
    at = partial(directory_at, option=option, session=lambda: session)
    return DeltaSink(
        at(place),
        session,
        target.partition_by,
        options.among(("compression", "maxRecordsPerFile")),
        option,
        at,
        upsert_keys(options),
        CommitEvery.of(options),
        named=named,
        merge_schema=options.flag("mergeSchema"),
        pace=Pace.of(options),
    )


SINK = SinkFormat(
    "delta",
    _sink,
    DELTA_OPTIONS,
    has_directories=True,
    takes_table=True,
    only_adds=unless_upserting,
    cleaner="VACUUM",
)
