"""Options: their texts as given, and those that every query and output has."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from sparkjet.errors import AnalysisError, nearest

# Not from the package: that needs msgspec, which the workers of the Kafka source may not have.
from sparkjet.time.durations import parse_duration

_UNITS = {"us": "microseconds", "ms": "milliseconds", "s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_UNITS["min"] = _UNITS["m"]
MOST_PARTITIONS = 2**31 - 1
"""The most partitions that Spark can count."""

QUERY_OPTIONS: Mapping[str, str] = {
    "checkpointLocation": "Directory of the query's snapshots and of Spark's derived checkpoint.",
    "snapshotStore": "grid, or grid://host:port,…: snapshots in the memory of a grid, not in a directory.",
    "queryId": "With snapshotStore: the query's name in the grid, if there is no checkpointLocation.",
    "pinRetention": "How long a pin keeps its record and what came after it: 12h, 7d, 30 days (for ever).",
    "snapshotBackup": "Another home, to which snapshots are copied in the background; a grid's copy in a directory.",
    "snapshotBackupEvery": "Number of epochs from one copy to the next (100).",
    "onChange": "What a start does if the query has changed and saved state would have to: refuse (default), approve "
    "(name the changes and a digest), approve:DIGEST (apply those), or apply.",
    "processingGuarantee": "exactly-once (default), at-least-once or none.",
    "closeWindowsAtEnd": "With trigger(availableNow=True): also emit the windows that are still open at the end.",
    "overlapEpochs": "Whether the next batch is read while the results of this one are still being written: auto "
    "(default: if every source is known to keep its rows, but with trigger(availableNow=True)), true or false.",
    "statePartitions": "Number of partitions of the state in this run; by default the cores of the application.",
}
"""Options of the query as a whole."""

OUTPUT_OPTIONS: Mapping[str, str] = {
    "lateRowsPath": "Directory for late rows and rows without event time, as Parquet files.",
    "deadLettersPath": "Directory for rows that have failed behind divert(errors=True), as Parquet files.",
    "earlyResultsPeriod": 'With outputMode("update"): how often rows of open windows are emitted (with every batch).',
    "isEarly": 'With outputMode("update"): a column is_early, and every final row even if it was sent before (false).',
}
"""Options of every output."""


BROKER_OPTIONS: Mapping[str, str] = {
    "password": "Password; never logged or recorded.",
    "tls": "Whether to connect over TLS (false).",
    "caFile": "tls: PEM file of the authorities to trust; the system's by default.",
    "certFile": "tls: PEM file of the client's certificate.",
    "keyFile": "tls: PEM file of its key.",
    "heartbeat": "Seconds after which broker and client take each other for dead (60).",
}


class Options:
    """Options as given; their names are case-insensitive, as in Spark.

    >>> Options({"Path": "/out"}).get("path")
    '/out'
    """

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = {name.lower(): (name, value) for name, value in given.items()}

    def only(self, known: Sequence[str], format: str) -> None:
        """Refuse names that a format does not know; a known name ending in ``.*`` stands for all with that prefix."""
        lowered = {name.lower() for name in known}
        families = tuple(name[:-1] for name in lowered if name.endswith(".*"))
        for lower, (name, _) in self._given.items():
            if lower not in lowered and not lower.startswith(families):
                message = f'option: "{name}" is not an option of format("{format}"); {nearest(name, known)}'
                raise AnalysisError(message)

    def get(self, name: str) -> str | None:
        """Text of an option, None if it was not given."""
        return self._given[name.lower()][1] if name.lower() in self._given else None

    def beginning_with(self, prefix: str) -> dict[str, str]:
        """Texts of the options whose names begin with a prefix, by the rest of the name in lower case.

        >>> Options({"Kafka.Linger.ms": "5", "topic": "out"}).beginning_with("kafka.")
        {'linger.ms': '5'}
        """
        return {lower[len(prefix) :]: text for lower, (_, text) in self._given.items() if lower.startswith(prefix)}

    def among(self, names: Iterable[str]) -> dict[str, str]:
        """Texts of those of some options that were given, by these names.

        >>> Options({"Compression": "zstd", "path": "/out"}).among(["compression", "sep"])
        {'compression': 'zstd'}
        """
        found = {name: self.get(name) for name in names}
        return {name: text for name, text in found.items() if text is not None}

    def flag(self, name: str, *, default: bool = False) -> bool:
        """A true-or-false option."""
        text = self.get(name)
        if text is None:
            return default
        if text.lower() not in {"true", "false"}:
            message = f'option: {name} must be true or false, not "{text}".'
            raise AnalysisError(message)
        return text.lower() == "true"

    def number(self, name: str, *, default: int, most: int | None = None) -> int:
        """A positive whole number, and no larger one than ``most``."""
        text = self.get(name)
        if text is None:
            return default
        if not text.isdecimal() or int(text) < 1:
            message = f'option: {name} must be a positive whole number, not "{text}".'
            raise AnalysisError(message)
        if most is not None and int(text) > most:
            message = f"option: {name} must be {most} at most, not {text}."
            raise AnalysisError(message)
        return int(text)

    def age(self, name: str) -> int | None:
        """A duration in microseconds, None if it was not given: an interval, or the short form of Spark's options.

        >>> Options({"retention": "12h"}).age("retention") == Options({"retention": "12 hours"}).age("retention")
        True
        """
        text = self.get(name)
        if text is None:
            return None
        short = re.fullmatch(r"\s*(\d+)\s*(us|ms|s|m|min|h|d)\s*", text, re.IGNORECASE)
        if short is not None:
            text = f"{short[1]} {_UNITS[short[2].lower()]}"
        return parse_duration(text, name, minimum=1)

    def choice(self, name: str, choices: tuple[str, ...], default: str) -> str:
        """One of several words."""
        text = (self.get(name) or default).lower()
        if text not in choices:
            message = f'option: {name}="{text}" is not one of {", ".join(choices)}; {nearest(text, choices)}'
            raise AnalysisError(message)
        return text


def upsert_keys(options: Options) -> tuple[str, ...]:
    """The columns of ``keyColumns``; empty with ``mode=append``."""
    given = options.get("keyColumns")
    names = tuple(name.strip() for name in (given or "").split(",") if name.strip())
    if options.choice("mode", ("append", "upsert"), "append") == "append":
        if given is not None:
            message = "keyColumns: with mode=append, rows have no keys. Use mode=upsert, or leave keyColumns out."
            raise AnalysisError(message)
        return ()
    if not names:
        message = 'mode=upsert needs option("keyColumns", "a, b"): the columns that identify the row to replace.'
        raise AnalysisError(message)
    return names
