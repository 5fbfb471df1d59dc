"""The start of a query: one or several outputs of one input, with one record."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pyspark.sql import DataFrame

from sparkjet.api.checks import checked
from sparkjet.api.writer import StreamWriter, all_settings
from sparkjet.engine.replaying import ReplayRequest
from sparkjet.errors import AnalysisError, refuse_connect
from sparkjet.sinks.read_files import read_files

if TYPE_CHECKING:
    from sparkjet.api.query import StreamingQuery
    from sparkjet.plan.replaying import Replaying


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
    return checked(
        all_settings(writers),
        all_settings(lateRows),
        all_settings(deadLetters),
        name=queryName,
        home=checkpointLocation,
    ).start()


def replay_dead_letters(
    letters: str | Path | DataFrame,
    *writers: StreamWriter,
    lateRows: StreamWriter | Sequence[StreamWriter] = (),
    deadLetters: StreamWriter | Sequence[StreamWriter] = (),
    queryName: str | None = None,
    checkpointLocation: str | None = None,
    late: Literal["refuse", "drop"] = "refuse",
) -> StreamingQuery:
    """Start a query like :func:`start`, with its dead letters as the first epoch: once the fault is fixed.

    The rows pass through everything after ``divert``, to the outputs that lack them, exactly once: the record says
    which epochs' dead letters were replayed. They do not advance the watermark. A row that fails again is a dead letter
    of that epoch. When called again, even after a crash, it replays only the new rows of a directory, and refuses a
    DataFrame if some of its rows were replayed before.

    Args:
        letters: The directory of ``deadLettersPath``; or a DataFrame of dead letters with all their columns, which must
            have all the rows of an epoch that are to be replayed at all.
        writers: As in :func:`start`, of the same query; its home must be the one that has diverted the rows.
        lateRows: As in :func:`start`.
        deadLetters: As in :func:`start`.
        queryName: As in :func:`start`.
        checkpointLocation: As in :func:`start`.
        late: Whether to continue if windows of some rows are closed: the start says how many, by the record's
        watermark.

    Raises:
        AnalysisError: As in :func:`start`; or the rows are not dead letters of this query, were replayed before, or
            some are late.
        RecoveryError: If the stored state cannot be continued safely.
    """
    given: object = late
    if given not in {"refuse", "drop"}:
        raise AnalysisError(f'replay_dead_letters: late={given!r} is neither "refuse" nor "drop".')
    refuse_connect("replay_dead_letters", letters)
    rows: object = letters
    is_rows = isinstance(rows, DataFrame)
    if not is_rows and not isinstance(rows, str | Path):
        message = f"replay_dead_letters: {rows!r} is neither the directory of deadLettersPath nor a DataFrame."
        raise AnalysisError(message)

    def request(replaying: Replaying) -> ReplayRequest:
        read = (lambda: letters) if isinstance(letters, DataFrame) else partial(read_files, letters)
        return ReplayRequest(read, None if is_rows else str(letters), replaying, drops_late=late == "drop")

    return checked(
        all_settings(writers),
        all_settings(lateRows),
        all_settings(deadLetters),
        name=queryName,
        home=checkpointLocation,
        replay=request,
    ).start()
