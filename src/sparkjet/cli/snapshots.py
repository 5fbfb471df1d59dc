"""``snapshots``: shows what a query has stored, and copies it from one place to another, grid or not."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from sparkjet.cli.homes import add_settings, home_at, newest_record
from sparkjet.snapshots import DirectoryStore
from sparkjet.snapshots.copying import copy_newest

if TYPE_CHECKING:
    from sparkjet.snapshots.record import Record


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command with its options to those of the command line."""
    parser = commands.add_parser("snapshots", help="what a query has stored: show it, or copy it elsewhere")
    below = parser.add_subparsers(dest="snapshots_command", required=True)
    home = "the query's checkpointLocation, or its place in a grid: grid://host:port/name"
    for name, told, run in (
        ("list", "the records of a query", _list),
        ("inspect", "what the newest record of a query names", _inspect),
        ("copy", "copy the newest snapshot of a query, which may go on meanwhile, to another home", _copy),
    ):
        command = below.add_parser(name, help=told, aliases=["export", "import"] if run is _copy else [])
        command.add_argument("home", help=home)
        if run is _copy:
            command.add_argument("to", help="the other home, which has no records or earlier ones of the query")
        add_settings(command)
        command.set_defaults(run=run)


def _list(chosen: argparse.Namespace) -> int:
    home = home_at(chosen.home, "home", chosen.conf)
    newest_record(home, "snapshots")
    store = DirectoryStore(home.below("snapshots"))
    for slot in store.slots():
        print(f"record {slot}: {len(store.read(slot))} bytes")
    return 0


def _inspect(chosen: argparse.Namespace) -> int:
    slot, record = newest_record(home_at(chosen.home, "home", chosen.conf), "snapshots")
    for line in report(slot, record):
        print(line)
    return 0


def _copy(chosen: argparse.Namespace) -> int:
    source, target = home_at(chosen.home, "home", chosen.conf), home_at(chosen.to, "to", chosen.conf)
    slot, record, files = copy_newest(source, target)
    print(f"record {slot} of query {record.query}, epoch {record.epoch}, is in {target}: {files} files were copied")
    return 0


def report(slot: int, record: Record) -> list[str]:
    """What ``snapshots inspect`` prints."""
    lines = [f"record {slot}: query {record.query}, epoch {record.epoch}, takeover {record.takeover}"]
    for name, stage in record.stages.items():
        rows, files = sum(each.rows for each in stage.deltas), sum(len(each.files) for each in stage.deltas)
        lines.append(f"stage {name}: {rows} rows in {len(stage.deltas)} deltas of {files} files")
    blobs = len(record.names()) - sum(len(stage.deltas) for stage in record.stages.values())
    lines.append(f"{blobs} blobs, {len(record.transactions)} transactions that are decided")
    return lines
