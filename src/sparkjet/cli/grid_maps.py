"""``grid map``: shows the maps of a grid, and rows of one."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable
from datetime import date, datetime
from typing import TYPE_CHECKING, Any

from sparkjet.cli.grid_places import moment, opened, show
from sparkjet.errors import AnalysisError

if TYPE_CHECKING:
    from sparkjet.grid.access import Access
    from sparkjet.grid.client import GridClient
    from sparkjet.grid.map_reader import Map

_WHERE = "grid://HOST:PORT,…/MAP; grid:///MAP is in the member that drivers start on this machine"
_FROM_TEXT: dict[str, Callable[[str], object]] = {
    "integer": int,
    "text": str,
    "boolean": lambda text: {"true": True, "false": False}[text],
    "date": date.fromisoformat,
    "moment": datetime.fromisoformat,
}


def add_to(
    grid: argparse._SubParsersAction[argparse.ArgumentParser], add_access: Callable[[argparse.ArgumentParser], None]
) -> None:
    """Add the command with its options to those of ``grid``."""
    commands = grid.add_parser("map", help="the maps of a grid").add_subparsers(dest="map_command", required=True)
    told = {
        "ls": "names, epochs, rows and bytes of all maps",
        "get": "the rows of keys",
        "scan": "all rows of one epoch",
        "remove": "remove a map with all that it holds",
    }
    for name, shown in told.items():
        command = commands.add_parser(name, help=shown)
        add_access(command)
        command.add_argument("where", metavar="GRID" if name == "ls" else "MAP", help=_WHERE)
        if name != "remove":
            command.add_argument("--json", action="store_true", help="one object of JSON a line")
    key = "a key; of several columns as JSON: '[\"a\", 3]'"
    commands.choices["get"].add_argument("key", nargs="+", metavar="KEY", help=key)
    commands.choices["scan"].add_argument("--columns", metavar="A,B", help="the columns to show (all)")
    commands.choices["scan"].add_argument("--limit", type=int, metavar="N", help="rows to show at most (all)")


def run(chosen: argparse.Namespace, access: Access) -> int:
    """Run the command; returns the exit status.

    Raises:
        AnalysisError: An argument is wrong, or there is no such map.
        GridError: The grid cannot be reached.
    """
    from sparkjet.grid.map_reader import Map  # noqa: PLC0415 - the extra is optional

    client, name = opened(chosen.where, access, "map", of_all=chosen.map_command == "ls")
    if chosen.map_command == "ls":
        with client:
            show([*summaries(client)], as_json=chosen.json)
        return 0
    with Map("", name, client=client) as map_:
        if chosen.map_command == "remove":
            map_.remove()
            return 0
        return _get(chosen, map_) if chosen.map_command == "get" else _scan(chosen, map_)


def summaries(client: GridClient) -> Iterable[dict[str, Any]]:
    """What there is to know of each map of a grid."""
    from sparkjet.grid.map_store import MapStore  # noqa: PLC0415 - the extra is optional
    from sparkjet.grid.places import MapPlace  # noqa: PLC0415 - as above
    from sparkjet.grid.version_store import names_of  # noqa: PLC0415 - as above

    for name in names_of(client, MapPlace):
        store = MapStore(client, MapPlace(name))
        versions = [version for version in map(store.at, store.numbers()) if version is not None]
        if versions:
            newest = versions[-1]
            yield {
                "map": name,
                "epoch": newest.epoch,
                "oldest": min([version.epoch for version in versions]),
                "watermark": moment(newest.watermark),
                "rows": sum(layer.rows for layer in newest.held()),
                "entries": len(newest.held()),
                "bytes": store.used(),
                "readers": len(client.entries(store.place.leases())),
                "query": newest.query,
            }


def _get(chosen: argparse.Namespace, map_: Map) -> int:
    """Rows in the order of the keys; status 1 where one has none."""
    keys = [_key(text, map_) for text in chosen.key]
    found = map_.get_all(keys)
    show((found[key] for key in keys if key in found), as_json=chosen.json)
    return 0 if len(found) == len(set(keys)) else 1


def _scan(chosen: argparse.Namespace, map_: Map) -> int:
    left = chosen.limit
    if left is not None and left < 0:
        raise AnalysisError(f"--limit: {left} is no number of rows.")
    reader = map_.scan([name.strip() for name in chosen.columns.split(",")] if chosen.columns else None)
    for batch in reader:
        rows = batch.to_pylist() if left is None else batch.slice(0, left).to_pylist()
        show(rows, as_json=chosen.json)
        left = None if left is None else left - len(rows)
        if left == 0:
            break
    return 0


def _key(text: str, map_: Map) -> tuple[object, ...]:
    kinds = map_.kinds
    try:
        given = [text] if len(kinds) == 1 else json.loads(text)
        # Otherwise the characters of a text, the names of an object, and the text "null" would be looked for.
        is_key = isinstance(given, list) and None not in given
        parts = [each if isinstance(each, str) else json.dumps(each) for each in given] if is_key else []
        return tuple(_FROM_TEXT[kind](part) for kind, part in zip(kinds, parts, strict=True))
    except (ValueError, KeyError, TypeError) as error:
        wanted = ", ".join(f"{name} ({kind})" for name, kind in zip(map_.keys, kinds, strict=True))
        message = f"KEY: {text!r} is no key of this map, which has {wanted}. Several are JSON: '[\"a\", 3]'."
        raise AnalysisError(message) from error
