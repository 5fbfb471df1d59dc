"""The start of a query: one or several outputs of one input, with one record."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sparkjet.api.checks import checked
from sparkjet.api.writer import StreamWriter, settings_of

if TYPE_CHECKING:
    from sparkjet.api.query import StreamingQuery


def start(
    *writers: StreamWriter,
    lateRows: StreamWriter | Sequence[StreamWriter] = (),
    deadLetters: StreamWriter | Sequence[StreamWriter] = (),
    queryName: str | None = None,
    checkpointLocation: str | None = None,
) -> StreamingQuery:
    """Start one query with several outputs of one input: one pass over it, one record, one decision for all sinks.

    Settings of the whole query (trigger, guarantee, clock …) may be given to any of the writers; if two of them
    differ, the start is refused.

    Args:
        writers: Writers of results, ``result.writeStream.format(…)…``, and of a stream's own rows,
            ``stream.writeStream.format(…)…``, all from the same stream.
        lateRows: Writers of late rows, ``result.lateRows.writeStream.format(…)…``.
        deadLetters: Writers of rows that have failed, ``stream.deadLetters.writeStream.format(…)…``.
        queryName: Name of the query.
        checkpointLocation: The query's home, as the option of the same name.

    Raises:
        AnalysisError: If anything is set wrongly; nothing has been started or changed.
        RecoveryError: If the stored state cannot be continued safely.
    """
    late = lateRows if isinstance(lateRows, Sequence) else (lateRows,)
    dead = deadLetters if isinstance(deadLetters, Sequence) else (deadLetters,)
    return checked(
        [settings_of(writer) for writer in writers],
        [settings_of(writer) for writer in late],
        [settings_of(writer) for writer in dead],
        name=queryName,
        home=checkpointLocation,
    ).start()
