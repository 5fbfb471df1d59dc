"""``grid journal``: shows the journals of a grid, and rows of one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sparkjet.cli.arguments import AsJson, TlsAuthorities, TlsCertificate, TlsKey, TokenFile, access_of
from sparkjet.cli.grid_places import Lines, check_limit, listed, moment, opened, show_rows
from sparkjet.errors import AnalysisError

if TYPE_CHECKING:
    from sparkjet_grid.access import Access
    from sparkjet_grid.client import GridClient
    from sparkjet_grid.journal_reader import Journal

_WHERE = "grid://HOST:PORT,…/JOURNAL; grid:///JOURNAL is in the member that drivers start on this machine"
_Journal = Annotated[str, typer.Argument(metavar="JOURNAL", help=_WHERE, show_default=False)]


app = typer.Typer(help="The journals of a grid.", rich_markup_mode=None)


@app.command(name="ls")
def list_journals(
    grid: Annotated[str, typer.Argument(help=_WHERE, show_default=False)],
    token_file: TokenFile = None,
    tls_certificate: TlsCertificate = None,
    tls_key: TlsKey = None,
    tls_authorities: TlsAuthorities = None,
    as_json: Lines = False,
) -> None:
    """Show names, epochs, rows, bytes and readers of all journals."""
    access = access_of(token_file, tls_certificate, tls_key, tls_authorities)
    client, _ = opened(grid, access, "journal", of_all=True)
    with client:
        show_rows([*summaries(client)], as_json=as_json)


@app.command()
def read(
    where: _Journal,
    partition: Annotated[int | None, typer.Option(metavar="N", help="the partition to read (all)")] = None,
    offset: Annotated[
        int | None, typer.Option(metavar="N", help="of the first row (the oldest that is retained)")
    ] = None,
    limit: Annotated[int | None, typer.Option(metavar="N", help="rows of each partition to show at most (all)")] = None,
    token_file: TokenFile = None,
    tls_certificate: TlsCertificate = None,
    tls_key: TlsKey = None,
    tls_authorities: TlsAuthorities = None,
    as_json: Lines = False,
) -> None:
    """Show rows that are retained."""
    access = access_of(token_file, tls_certificate, tls_key, tls_authorities)
    with _opened(where, access) as journal:
        show_rows(_rows(journal, partition, offset, limit), as_json=as_json)


@app.command()
def remove(
    where: _Journal,
    token_file: TokenFile = None,
    tls_certificate: TlsCertificate = None,
    tls_key: TlsKey = None,
    tls_authorities: TlsAuthorities = None,
    as_json: AsJson = False,
) -> None:
    """Remove a journal with all that it holds."""
    del as_json  # only a failure is printed
    with _opened(where, access_of(token_file, tls_certificate, tls_key, tls_authorities)) as journal:
        journal.remove()


def _opened(where: str, access: Access) -> Journal:
    from sparkjet_grid.journal_reader import Journal  # noqa: PLC0415 - the extra is optional

    client, name = opened(where, access, "journal", of_all=False)
    return Journal("", name, client=client)


def summaries(client: GridClient) -> Iterable[dict[str, Any]]:
    """Information on each journal of a grid."""
    from sparkjet_grid.journal_store import JournalStore  # noqa: PLC0415 - the extra is optional
    from sparkjet_grid.journal_version import lag  # noqa: PLC0415 - as above
    from sparkjet_grid.places import JournalPlace  # noqa: PLC0415 - as above
    from sparkjet_grid.version_store import names_of  # noqa: PLC0415 - as above

    for name in names_of(client, JournalPlace):
        store = JournalStore(client, JournalPlace(name))
        newest = store.newest()
        if newest is not None:
            chunks, entries = [chunk for each in newest.chunks for chunk in each], client.entries(store.place.layers())
            yield {
                "journal": name,
                "epoch": newest.epoch,
                "oldest": min((chunk.first_epoch for chunk in chunks), default=newest.epoch),
                "watermark": moment(newest.watermark),
                "partitions": newest.partitions,
                "entries": len(entries),
                "rows": sum(chunk.entry.rows for chunk in chunks),
                "bytes": sum(entry.size for entry in entries),
                "readers": {reader: lag(newest, offsets) for reader, offsets in sorted(store.readers().items())},
                "query": newest.query,
            }


def _rows(journal: Journal, partition: int | None, offset: int | None, limit: int | None) -> Iterator[dict[str, Any]]:
    check_limit(limit)
    if offset is not None and (partition is None or offset < 0):
        raise AnalysisError(f"--offset: {offset} is of one partition, from 0. Name it with --partition.")
    ends, first = journal.latest().ends, journal.earliest()
    if partition is not None and partition not in ends:
        raise AnalysisError(f"--partition: there are {len(ends)}, from 0, and no {partition}.")
    for each in ends if partition is None else [partition]:
        start = first[each] if offset is None else offset
        end = ends[each] if limit is None else min(ends[each], start + limit)
        for batch in journal.read(each, start, end):
            yield from listed(batch)
