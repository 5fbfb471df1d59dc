"""``grid map``: shows the maps of a grid, and rows of one."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sparkjet.cli.arguments import AsJson, TlsAuthorities, TlsCertificate, TlsKey, TokenFile, access_of
from sparkjet.cli.grid_places import Lines, check_limit, listed, moment, opened, show_rows
from sparkjet.errors import AnalysisError

if TYPE_CHECKING:
    from sparkjet_grid.access import Access
    from sparkjet_grid.client import GridClient
    from sparkjet_grid.map_reader import Map

_WHERE = "grid://HOST:PORT,…/MAP; grid:///MAP is in the member that drivers start on this machine"
_Map = Annotated[str, typer.Argument(metavar="MAP", help=_WHERE, show_default=False)]


app = typer.Typer(help="The maps of a grid.", rich_markup_mode=None)


@app.command(name="ls")
def list_maps(
    grid: Annotated[str, typer.Argument(help=_WHERE, show_default=False)],
    token_file: TokenFile = None,
    tls_certificate: TlsCertificate = None,
    tls_key: TlsKey = None,
    tls_authorities: TlsAuthorities = None,
    as_json: Lines = False,
) -> None:
    """Show names, epochs, rows and bytes of all maps."""
    access = access_of(token_file, tls_certificate, tls_key, tls_authorities)
    client, _ = opened(grid, access, "map", of_all=True)
    with client:
        show_rows([*summaries(client)], as_json=as_json)


@app.command()
def get(
    where: _Map,
    key: Annotated[
        list[str],
        typer.Argument(metavar="KEY...", help="a key; of several columns as JSON: '[\"a\", 3]'", show_default=False),
    ],
    token_file: TokenFile = None,
    tls_certificate: TlsCertificate = None,
    tls_key: TlsKey = None,
    tls_authorities: TlsAuthorities = None,
    as_json: Lines = False,
) -> int:
    """Show the rows of keys, in their order; the exit status is 1 where one has none."""
    access = access_of(token_file, tls_certificate, tls_key, tls_authorities)
    with _opened(where, access) as map_:
        keys = [_key(text, map_) for text in key]
        try:
            found = map_.get_all(keys)
        except OverflowError as error:
            message = "A row has a date or a time beyond the years 1 to 9999, the only ones of Python: scan shows it."
            raise AnalysisError(message) from error
        show_rows((found[each] for each in keys if each in found), as_json=as_json)
        return 0 if len(found) == len(set(keys)) else 1


@app.command()
def scan(
    where: _Map,
    columns: Annotated[str | None, typer.Option(metavar="A,B", help="the columns to show (all)")] = None,
    limit: Annotated[int | None, typer.Option(metavar="N", help="rows to show at most (all)")] = None,
    token_file: TokenFile = None,
    tls_certificate: TlsCertificate = None,
    tls_key: TlsKey = None,
    tls_authorities: TlsAuthorities = None,
    as_json: Lines = False,
) -> None:
    """Show all rows of one epoch."""
    access = access_of(token_file, tls_certificate, tls_key, tls_authorities)
    with _opened(where, access) as map_:
        check_limit(limit)
        left = limit
        reader = map_.scan([name.strip() for name in columns.split(",")] if columns else None)
        for batch in reader:
            rows = listed(batch if left is None else batch.slice(0, left))
            show_rows(rows, as_json=as_json)
            left = None if left is None else left - len(rows)
            if left == 0:
                break


@app.command()
def remove(
    where: _Map,
    token_file: TokenFile = None,
    tls_certificate: TlsCertificate = None,
    tls_key: TlsKey = None,
    tls_authorities: TlsAuthorities = None,
    as_json: AsJson = False,
) -> None:
    """Remove a map with all that it holds."""
    del as_json  # only a failure is printed
    with _opened(where, access_of(token_file, tls_certificate, tls_key, tls_authorities)) as map_:
        map_.remove()


def _opened(where: str, access: Access) -> Map:
    from sparkjet_grid.map_reader import Map  # noqa: PLC0415 - the extra is optional

    client, name = opened(where, access, "map", of_all=False)
    return Map("", name, client=client)


def summaries(client: GridClient) -> Iterable[dict[str, Any]]:
    """Information on each map of a grid."""
    from sparkjet_grid.map_store import MapStore  # noqa: PLC0415 - the extra is optional
    from sparkjet_grid.places import MapPlace  # noqa: PLC0415 - as above
    from sparkjet_grid.version_store import names_of  # noqa: PLC0415 - as above

    for name in names_of(client, MapPlace):
        store = MapStore(client, MapPlace(name))
        versions = [version for version in map(store.at, store.numbers()) if version is not None]
        if versions:
            newest, held, layers = versions[-1], store.leased(), client.entries(store.place.layers())
            yield {
                "map": name,
                "epoch": newest.epoch,
                "oldest": min([version.epoch for version in [*versions, *(each for each, _ in held)]]),
                "watermark": moment(newest.watermark),
                "rows": sum(layer.rows for layer in newest.held()),
                "entries": len(layers),
                "bytes": sum(layer.size for layer in layers),
                "readers": sum(readers for _, readers in held),
                "behind": max([newest.number - version.number for version, _ in held], default=0),
                "query": newest.query,
            }


def _key(text: str, map_: Map) -> tuple[object, ...]:
    from sparkjet_grid.map_keys import key_of  # noqa: PLC0415 - the extra is optional

    kinds = map_.kinds
    try:
        return key_of([text] if len(kinds) == 1 else json.loads(text), kinds)
    except ValueError as error:
        wanted = ", ".join(f"{name} ({kind})" for name, kind in zip(map_.keys, kinds, strict=True))
        message = f"KEY: {text!r} is not a key of this map, which has {wanted}. Several are JSON: '[\"a\", 3]'."
        raise AnalysisError(message) from error
