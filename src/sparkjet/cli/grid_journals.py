"""``grid journal``: shows the journals of a grid, and rows of one."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from sparkjet.cli.grid_places import moment, opened, show
from sparkjet.errors import AnalysisError

if TYPE_CHECKING:
    from sparkjet.grid.access import Access
    from sparkjet.grid.client import GridClient
    from sparkjet.grid.journal_reader import Journal

_WHERE = "grid://HOST:PORT,…/JOURNAL; grid:///JOURNAL is in the member that drivers start on this machine"


def add_to(
    grid: argparse._SubParsersAction[argparse.ArgumentParser], add_access: Callable[[argparse.ArgumentParser], None]
) -> None:
    """Add the command with its options to those of ``grid``."""
    parser = grid.add_parser("journal", help="the journals of a grid")
    commands = parser.add_subparsers(dest="journal_command", required=True)
    told = {
        "ls": "names, epochs, rows, bytes and readers of all journals",
        "read": "rows that are retained",
        "remove": "remove a journal with all that it holds",
    }
    for name, shown in told.items():
        command = commands.add_parser(name, help=shown)
        add_access(command)
        command.add_argument("where", metavar="GRID" if name == "ls" else "JOURNAL", help=_WHERE)
        if name != "remove":
            command.add_argument("--json", action="store_true", help="one object of JSON a line")
    read = commands.choices["read"]
    read.add_argument("--partition", type=int, metavar="N", help="the partition to read (all)")
    read.add_argument("--offset", type=int, metavar="N", help="of the first row (the oldest that is retained)")
    read.add_argument("--limit", type=int, metavar="N", help="rows of each partition to show at most (all)")


def run(chosen: argparse.Namespace, access: Access) -> int:
    """Run the command; returns the exit status.

    Raises:
        AnalysisError: An argument is wrong, or there is no such journal.
        GridError: The grid cannot be reached, or rows are lost or retained no more.
    """
    from sparkjet.grid.journal_reader import Journal  # noqa: PLC0415 - the extra is optional

    client, name = opened(chosen.where, access, "journal", of_all=chosen.journal_command == "ls")
    if chosen.journal_command == "ls":
        with client:
            show([*summaries(client)], as_json=chosen.json)
        return 0
    with Journal("", name, client=client) as journal:
        if chosen.journal_command == "remove":
            journal.remove()
        else:
            show(_rows(chosen, journal), as_json=chosen.json)
    return 0


def summaries(client: GridClient) -> Iterable[dict[str, Any]]:
    """What there is to know of each journal of a grid."""
    from sparkjet.grid.journal_retention import lag  # noqa: PLC0415 - the extra is optional
    from sparkjet.grid.journal_store import JournalStore  # noqa: PLC0415 - as above
    from sparkjet.grid.places import JournalPlace  # noqa: PLC0415 - as above
    from sparkjet.grid.version_store import names_of  # noqa: PLC0415 - as above

    for name in names_of(client, JournalPlace):
        store = JournalStore(client, JournalPlace(name))
        newest = store.newest()
        if newest is not None:
            chunks = [chunk for each in newest.chunks for chunk in each]
            yield {
                "journal": name,
                "epoch": newest.epoch,
                "oldest": min((chunk.first_epoch for chunk in chunks), default=newest.epoch),
                "watermark": moment(newest.watermark),
                "partitions": newest.partitions,
                "entries": len(newest.held()),
                "rows": sum(chunk.entry.rows for chunk in chunks),
                "bytes": store.used(),
                "readers": {reader: lag(newest, offsets) for reader, offsets in sorted(store.readers().items())},
                "query": newest.query,
            }


def _rows(chosen: argparse.Namespace, journal: Journal) -> Iterator[dict[str, Any]]:
    limit = chosen.limit
    if limit is not None and limit < 0:
        raise AnalysisError(f"--limit: {limit} is no number of rows.")
    if chosen.offset is not None and (chosen.partition is None or chosen.offset < 0):
        raise AnalysisError(f"--offset: {chosen.offset} is of one partition, from 0. Name it with --partition.")
    ends, first = journal.latest().ends, journal.earliest()
    if chosen.partition is not None and chosen.partition not in ends:
        raise AnalysisError(f"--partition: there are {len(ends)}, from 0, and no {chosen.partition}.")
    for partition in ends if chosen.partition is None else [chosen.partition]:
        start = first[partition] if chosen.offset is None else chosen.offset
        end = ends[partition] if limit is None else min(ends[partition], start + limit)
        for batch in journal.read(partition, start, end):
            yield from batch.to_pylist()
