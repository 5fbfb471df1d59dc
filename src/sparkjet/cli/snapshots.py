"""``snapshots``: shows what a query has stored, and copies it from one place to another, grid or not."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from sparkjet.cli.arguments import show
from sparkjet.cli.homes import home_at
from sparkjet.clock import SystemClock
from sparkjet.query_log import without_users
from sparkjet.snapshots import DirectoryStore
from sparkjet.snapshots.copying import copy_newest
from sparkjet.snapshots.pins import Pin, Pins
from sparkjet.snapshots.record_log import newest_record

if TYPE_CHECKING:
    from sparkjet.snapshots.record import Record


def list_records(location: str, settings: Sequence[str], *, as_json: bool) -> None:
    """Print the records of a query with their sizes, and its pins with their ages."""
    home = home_at(location, "home", settings)
    newest_record(home, "snapshots")
    store = DirectoryStore(home.below("snapshots"))
    pins: dict[int, list[Pin]] = {}
    for pin in Pins(store).all():
        pins.setdefault(pin.slot, []).append(pin)
    told: list[dict[str, Any]] = []
    # Not read: the query may remove old ones in the meantime. A pin without its record was abandoned while being set.
    sizes = store.sizes()
    for slot in sorted(sizes.keys() | pins.keys()):
        named = [{"pin": pin.name, "epoch": pin.epoch, "since": _time(pin.at)} for pin in pins.get(slot, ())]
        told.append({"record": slot, "bytes": sizes.get(slot), "pins": named})
    show(map(_line, told), told, as_json=as_json)


def pin_newest(location: str, name: str, settings: Sequence[str], *, as_json: bool) -> None:
    """Keep the newest record of a query under a name."""
    home = home_at(location, "home", settings)
    newest_record(home, "snapshots")
    pin = Pins(DirectoryStore(home.below("snapshots"))).put(name, SystemClock().now())
    told = {"pin": pin.name, "record": pin.slot, "epoch": pin.epoch, "since": _time(pin.at)}
    show([f"record {pin.slot}, epoch {pin.epoch}, is pinned as {pin.name}"], told, as_json=as_json)


def remove_pin(location: str, name: str, settings: Sequence[str], *, as_json: bool) -> None:
    """Remove a pin."""
    home = home_at(location, "home", settings)
    newest_record(home, "snapshots")
    Pins(DirectoryStore(home.below("snapshots"))).remove(name)
    show([f"the pin {name} is removed"], {"pin": name, "removed": True}, as_json=as_json)


def inspect_newest(location: str, settings: Sequence[str], *, as_json: bool) -> None:
    """Print what the newest record of a query contains."""
    slot, record = newest_record(home_at(location, "home", settings), "snapshots")
    told = described(slot, record)
    show(report(told), told, as_json=as_json)


def copy_snapshot(location: str, to: str, settings: Sequence[str], *, as_json: bool) -> None:
    """Copy the newest snapshot of a query to another home."""
    source, target = home_at(location, "home", settings), home_at(to, "to", settings)
    slot, record, files = copy_newest(source, target)
    place = without_users(str(target))
    line = f"record {slot} of query {record.query}, epoch {record.epoch}, is in {place}: {files} files were copied"
    told = {"record": slot, "query": record.query, "epoch": record.epoch, "to": place, "files": files}
    show([line], told, as_json=as_json)


def _time(at: int) -> str:
    return datetime.fromtimestamp(at // 1_000_000, timezone.utc).isoformat()


def _line(told: dict[str, Any]) -> str:
    pins = "".join(f", pinned as {pin['pin']} since {pin['since']}, epoch {pin['epoch']}" for pin in told["pins"])
    size = "missing" if told["bytes"] is None else f"{told['bytes']} bytes"
    return f"record {told['record']}: {size}{pins}"


def described(slot: int, record: Record) -> dict[str, Any]:
    """A record in the form that ``snapshots inspect`` shows."""
    return {
        "record": slot,
        "query": record.query,
        "epoch": record.epoch,
        "takeover": record.takeover,
        "stages": {
            name: {
                "rows": sum(each.rows for each in stage.deltas),
                "deltas": len(stage.deltas),
                "files": sum(len(each.files) for each in stage.deltas),
            }
            for name, stage in record.stages.items()
        },
        "blobs": len(record.names()) - sum(len(stage.deltas) for stage in record.stages.values()),
        "transactions": len(record.transactions),
    }


def report(told: dict[str, Any]) -> list[str]:
    """The same as lines."""
    return [
        f"record {told['record']}: query {told['query']}, epoch {told['epoch']}, takeover {told['takeover']}",
        *(
            f"stage {name}: {stage['rows']} rows in {stage['deltas']} deltas of {stage['files']} files"
            for name, stage in told["stages"].items()
        ),
        f"{told['blobs']} blobs, {told['transactions']} transactions that are decided",
    ]
