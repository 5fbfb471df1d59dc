"""The format ``delta``."""

from __future__ import annotations

import re
from collections.abc import Sequence
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


_PATH = text("path", "The table: a path or a URI; it is created if there is none. Or give toTable a name.")
_WRITERS = (COMPRESSION, MAX_RECORDS_PER_FILE)


def _sink(target: Target) -> Sink:
    options, session = target.options, target.session
    path, named = options[_PATH], None
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
        options.among(_WRITERS),
        option,
        at,
        upsert_keys(options),
        CommitEvery.of(options),
        named=named,
        merge_schema=options[MERGE_SCHEMA],
        pace=Pace.of(options),
    )


def _hearing(followed: Followed) -> Hearing:
    from sparkjet.connectors.delta.heard import DeltaWriters  # noqa: PLC0415 - most queries read no such table

    def has(names: Sequence[str]) -> bool:
        return any(followed.options.get(name, "false").lower() == "true" for name in names)

    # Its connector takes a URI as Hadoop does, which decodes nothing: one of a local file is a path as it stands.
    place = _LOCAL.sub("/", followed.place)
    table = directory_at(place, "path", lambda: followed.session)
    return DeltaWriters(table.below("_delta_log"), rereads=has(_REREADING), changes=has(_CHANGES))


_LOCAL = re.compile("^file:/+", re.IGNORECASE)
_REREADING = ("ignorechanges", "ignorefiledeletion")
"""Options with which its connector delivers rows of versions that change files."""
_CHANGES = ("readchangefeed", "readchangedata")
"""Options with which it delivers changes, those of rows that are deleted as well."""
SOURCE = KnownSource(hearing=_hearing)
"""A table read by Delta's connector."""
SINK = SinkFormat(
    "delta",
    _sink,
    (_PATH, *UPSERT_OPTIONS, COMMIT_EVERY, MERGE_SCHEMA, PROGRESS_INTERVAL, *_WRITERS),
    has_directories=True,
    takes_table=True,
    only_adds=unless_upserting,
    reads_once=True,
    names_columns=True,
    cleaner="VACUUM",
)
