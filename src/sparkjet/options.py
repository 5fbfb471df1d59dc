"""Options: their names, meanings and types, declared once, and the texts that a user has given."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar, overload

from sparkjet.errors import AnalysisError, nearest

# Not from the package: that needs msgspec, which the workers of the Kafka source may not have.
from sparkjet.time.durations import parse_duration

_T = TypeVar("_T")
_UNITS = {"us": "microseconds", "ms": "milliseconds", "s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
_SIZE = re.compile(r"\s*(\d+)\s*([kmgt]?)b?\s*", re.IGNORECASE)
_UNITS["min"] = _UNITS["m"]
_SHORT = re.compile(r"\s*(\d+)\s*(us|ms|s|m|min|h|d)\s*", re.IGNORECASE)
MOST_PARTITIONS = 2**31 - 1
"""The most partitions that Spark can count."""


@dataclass(frozen=True, eq=False)
class Option(Generic[_T]):
    """An option: what it is called, what it means, and how its text is read.

    Attributes:
        name: As ``option(…)`` takes it, in any case; a name that ends in ``.*`` stands for all with that prefix.
        meaning: In a line.
        takes: What its value is, in words of the reference.
        read: Its value, from its name and its text; raises an AnalysisError that names the option.
        otherwise: Its value where it is not given.
        default: The same, in words of the reference; empty where nothing is meant.
    """

    name: str
    meaning: str
    takes: str = field(repr=False)
    read: Callable[[str, str], _T] = field(repr=False)
    otherwise: _T = field(repr=False)
    default: str = field(default="", repr=False)

    def below(self, prefix: str, of: str) -> Option[_T]:
        """The same option of something that another option names, with a prefix."""
        return replace(self, name=prefix + self.name, meaning=f"{of}: {self.meaning[0].lower()}{self.meaning[1:]}")

    def defaulting_to(self, otherwise: _T) -> Option[_T]:
        """The same option where another value holds without it."""
        return replace(self, otherwise=otherwise)


class Options:
    """Options as given; their names are case-insensitive, as in Spark.

    >>> Options({"Path": "/out"})[PATH]
    '/out'
    """

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = {name.lower(): (name, value) for name, value in given.items()}

    def __getitem__(self, option: Option[_T]) -> _T:
        """The value of an option.

        Raises:
            AnalysisError: Its text is not one of a value.
        """
        text = self.get(option)
        return option.otherwise if text is None else option.read(option.name, text)

    def __contains__(self, option: Option[Any]) -> bool:
        """Whether an option was given."""
        return option.name.lower() in self._given

    def get(self, option: Option[Any]) -> str | None:
        """The text of an option, None if it was not given."""
        return self._given[option.name.lower()][1] if option in self else None

    def only(self, known: Sequence[Option[Any]], format: str) -> None:
        """Refuse names that a format does not know, and texts that are not ones of their values."""
        named = {each.name.lower(): each for each in known}
        families = tuple(name[:-1] for name in named if name.endswith(".*"))
        for lower, (name, _) in self._given.items():
            if lower not in named and not lower.startswith(families):
                near = nearest(name, [each.name for each in known])
                raise AnalysisError(f'option: "{name}" is not an option of format("{format}"); {near}')
        for lower in self._given.keys() & named.keys():
            # Also of those that nobody reads in this query: a wrong value would stay until somebody does.
            self[named[lower]]

    def beginning_with(self, prefix: str) -> dict[str, str]:
        """Texts of the options whose names begin with a prefix, by the rest of the name in lower case.

        >>> Options({"Kafka.Linger.ms": "5", "topic": "out"}).beginning_with("kafka.")
        {'linger.ms': '5'}
        """
        return {lower[len(prefix) :]: text for lower, (_, text) in self._given.items() if lower.startswith(prefix)}

    def among(self, options: Iterable[Option[Any]]) -> dict[str, str]:
        """Texts of those of some options that were given, by their names as declared.

        >>> Options({"Path": "/out", "sep": ","}).among([PATH])
        {'path': '/out'}
        """
        return {each.name: text for each in options if (text := self.get(each)) is not None}


def _is(_: str, given: str) -> str:
    return given


@overload
def text(name: str, meaning: str) -> Option[str | None]: ...
@overload
def text(name: str, meaning: str, default: str) -> Option[str]: ...
def text(name: str, meaning: str, default: str | None = None) -> Option[Any]:
    """An option whose text is its value."""
    return Option(name, meaning, "text", _is, default, default or "")


def family(prefix: str, meaning: str) -> Option[str | None]:
    """All options with a prefix, such as the properties of a client: see :meth:`Options.beginning_with`."""
    return Option(f"{prefix}*", meaning, "text", _is, None)


def flag(name: str, meaning: str, *, default: bool = False) -> Option[bool]:
    """An option that is true or false."""

    def read(name: str, given: str) -> bool:
        if given.lower() not in {"true", "false"}:
            raise AnalysisError(f'option: {name} must be true or false, not "{given}".')
        return given.lower() == "true"

    return Option(name, meaning, "true or false", read, default, str(default).lower())


@overload
def number(name: str, meaning: str, *, least: int = 1, most: int | None = None) -> Option[int | None]: ...
@overload
def number(name: str, meaning: str, default: int, *, least: int = 1, most: int | None = None) -> Option[int]: ...
def number(
    name: str, meaning: str, default: int | None = None, *, least: int = 1, most: int | None = None
) -> Option[Any]:
    """An option that is a whole number from ``least`` to ``most``, 0 or above."""
    wanted = "a positive whole number" if least == 1 else f"a whole number, {least} or more"

    def read(name: str, given: str) -> int:
        if not given.isdecimal() or int(given) < least:
            raise AnalysisError(f'option: {name} must be {wanted}, not "{given}".')
        if most is not None and int(given) > most:
            raise AnalysisError(f"option: {name} must be {most} at most, not {given}.")
        return int(given)

    return Option(name, meaning, "a number", read, default, "" if default is None else f"{default:,}")


@overload
def size(name: str, meaning: str) -> Option[int | None]: ...
@overload
def size(name: str, meaning: str, default: str) -> Option[int]: ...
def size(name: str, meaning: str, default: str | None = None) -> Option[Any]:
    """An option that is a number of bytes, as Spark writes them: 1048576, 512m or 4g.

    >>> most = size("maxStateBytes", "Most bytes of state.")
    >>> Options({"maxStateBytes": "512m"})[most] == Options({"maxStateBytes": "536870912"})[most] == 512 * 1024**2
    True
    """

    def read(name: str, given: str) -> int:
        found = _SIZE.fullmatch(given)
        if found is None or not int(found[1]):
            message = f'option: {name} must be a number of bytes, such as 1048576, 512m or 4g, not "{given}".'
            raise AnalysisError(message)
        return int(found[1]) << 10 * " kmgt".index(found[2].lower() or " ")

    otherwise = None if default is None else read(name, default)
    return Option(name, meaning, "a number of bytes: 512m, 4g", read, otherwise, default or "")


@overload
def interval(name: str, meaning: str) -> Option[int | None]: ...
@overload
def interval(name: str, meaning: str, default: str) -> Option[int]: ...
def interval(name: str, meaning: str, default: str | None = None) -> Option[Any]:
    """An option that is a duration, in microseconds: an interval, or the short form of Spark's options.

    >>> retention = interval("retention", "How long files are listed.")
    >>> Options({"retention": "12h"})[retention] == Options({"retention": "12 hours"})[retention]
    True
    """
    otherwise = None if default is None else microseconds(name, default)
    return Option(name, meaning, "an interval: 12h, 7d, 30 days", microseconds, otherwise, default or "")


def microseconds(name: str, given: str) -> int:
    """The duration in the text of an option.

    Raises:
        AnalysisError: It is none.
    """
    short = _SHORT.fullmatch(given)
    return parse_duration(f"{short[1]} {_UNITS[short[2].lower()]}" if short else given, name, minimum=1)


def choice(name: str, meaning: str, choices: Sequence[str], default: str) -> Option[str]:
    """An option that is one of several words."""

    def read(name: str, given: str) -> str:
        if given.lower() not in choices:
            message = f'option: {name}="{given}" is not one of {", ".join(choices)}; {nearest(given, choices)}'
            raise AnalysisError(message)
        return given.lower()

    return Option(name, meaning, ", ".join(choices), read, default, default)


def names(name: str, meaning: str) -> Option[tuple[str, ...]]:
    """An option that is names, separated by commas."""

    def read(_: str, given: str) -> tuple[str, ...]:
        return tuple(part.strip() for part in given.split(",") if part.strip())

    return Option(name, meaning, "names, separated by commas", read, ())


CHECKPOINT_LOCATION = text(
    "checkpointLocation", "Directory of the query's snapshots and of Spark's derived checkpoint."
)
SNAPSHOT_STORE = text(
    "snapshotStore", "grid, or grid://host:port,…: snapshots in the memory of a grid, not in a directory."
)
QUERY_ID = text(
    "queryId", "With snapshotStore: the query's name in the grid; checkpointLocation or queryName by default."
)
PIN_RETENTION = interval("pinRetention", "How long a pin keeps its record and what came after it; forever by default.")
SNAPSHOT_BACKUP = text(
    "snapshotBackup", "Another home, to which snapshots are copied in the background; a grid's copy in a directory."
)
SNAPSHOT_BACKUP_EVERY = number("snapshotBackupEvery", "Number of epochs from one copy to the next.", 100)
ON_CHANGE = Option(
    "onChange",
    "What a start does if the query has changed and its state would have to: refuse; approve, which names the changes "
    "and a digest; approve:DIGEST, which applies those; or apply.",
    "refuse, approve, approve:DIGEST, apply",
    _is,
    "refuse",
    "refuse",
)
PUBLISH_AFTER = text(
    "publishAfter",
    "Home of another query with windows: this one publishes those that end after that one's last, as sj.switch says.",
)
REFILL_FROM = text(
    "refillFrom",
    "Where the query has changed: the home of a fork of it that has replayed the changed query, whose state it takes.",
)
ADOPT = text(
    "adopt",
    "The checkpointLocation of a stopped Spark query, after whose last batch a query without records begins.",
)
ADOPT_REPLAY = flag(
    "adoptReplay",
    "With adopt, of a Spark query of windows: open ones are rebuilt from the rows since they began.",
)
PROCESSING_GUARANTEE = choice(
    "processingGuarantee",
    "What holds for results and state after a failure.",
    ("exactly-once", "at-least-once", "none"),
    "exactly-once",
)
CLOSE_WINDOWS_AT_END = flag(
    "closeWindowsAtEnd", "With trigger(availableNow=True): also emit the windows that are still open at the end."
)
AUTO = "auto"
OVERLAP_EPOCHS = choice(
    "overlapEpochs",
    "Whether the next batch is read while the results of this one are still being written. auto: if every source is "
    "known to keep its rows, but with trigger(availableNow=True).",
    (AUTO, "true", "false"),
    AUTO,
)
STATE_PARTITIONS = number(
    "statePartitions",
    "Number of partitions of the state in this run; by default the cores of the application.",
    most=MOST_PARTITIONS,
)
MAX_STATE_ENTRIES = number(
    "maxStateEntries", "Most rows of state that each operator of the query may hold; any number by default."
)
MAX_STATE_BYTES = size(
    "maxStateBytes", "Most bytes of state that executors may hold for each operator of the query; any by default."
)
ON_STATE_LIMIT = choice(
    "onStateLimit",
    "What happens when an operator would hold more: fail ends the query, and nothing of the epoch is written; shed "
    "closes its oldest windows early, and later rows of theirs are late.",
    ("fail", "shed"),
    "fail",
)
QUERY_OPTIONS: Sequence[Option[Any]] = (
    CHECKPOINT_LOCATION,
    SNAPSHOT_STORE,
    QUERY_ID,
    PIN_RETENTION,
    SNAPSHOT_BACKUP,
    SNAPSHOT_BACKUP_EVERY,
    ON_CHANGE,
    PUBLISH_AFTER,
    REFILL_FROM,
    ADOPT,
    ADOPT_REPLAY,
    PROCESSING_GUARANTEE,
    CLOSE_WINDOWS_AT_END,
    OVERLAP_EPOCHS,
    STATE_PARTITIONS,
    MAX_STATE_ENTRIES,
    MAX_STATE_BYTES,
    ON_STATE_LIMIT,
)
"""Options of the query as a whole."""

LATE_ROWS_PATH = text("lateRowsPath", "Directory for late rows and rows without event time, as Parquet files.")
LATE_ROWS_RETENTION = interval(
    "lateRowsRetention", "Age at which files of lateRowsPath are gone, while the query has epochs; none by default."
)
DEAD_LETTERS_PATH = text(
    "deadLettersPath", "Directory for rows that have failed after divert(errors=True), as Parquet files."
)
DEAD_LETTERS_RETENTION = interval(
    "deadLettersRetention",
    "Age at which files of deadLettersPath are gone, while the query has epochs; none by default.",
)
EARLY_RESULTS_PERIOD = interval(
    "earlyResultsPeriod", 'With outputMode("update"): how often rows of open windows are emitted; with every batch.'
)
IS_EARLY = flag(
    "isEarly", 'With outputMode("update"): a column is_early, and every final row even if it was sent before.'
)
IS_SHED = flag("isShed", 'With onStateLimit="shed": a column is_shed, true in rows of windows that were closed early.')
OUTPUT_OPTIONS: Sequence[Option[Any]] = (
    LATE_ROWS_PATH,
    LATE_ROWS_RETENTION,
    DEAD_LETTERS_PATH,
    DEAD_LETTERS_RETENTION,
    EARLY_RESULTS_PERIOD,
    IS_EARLY,
    IS_SHED,
)
"""Options of every output."""

PATH = text("path", "Where the rows are: a path or a URI.")
MODE = choice("mode", "Whether rows are added, or replace those with the same keys.", ("append", "upsert"), "append")
KEY_COLUMNS = names("keyColumns", "mode=upsert: the columns that identify the row to replace.")
UPSERT_OPTIONS: Sequence[Option[Any]] = (MODE, KEY_COLUMNS)
"""Options of tables whose rows can be replaced."""

COMPRESSION = text("compression", "Codec of the files, as in Spark's writer.")
MAX_RECORDS_PER_FILE = text("maxRecordsPerFile", "As in Spark's writer.")
"""Options of Spark's writer of files, which checks the values."""
MERGE_SCHEMA = flag(
    "mergeSchema", "Whether the start adds columns of the rows that the table lacks, as in Spark's writers."
)

PROGRESS_INTERVAL = interval(
    "progressInterval", "Least time between epochs without rows that tell readers of the watermark; none do by default."
)
"""The option of sinks that inform their readers; see :mod:`sparkjet.sinks.pace`."""

TLS = flag("tls", "Whether to connect over TLS.")
CA_FILE = text("caFile", "tls: PEM file of the authorities to trust; the system's by default.")
CERT_FILE = text("certFile", "tls: PEM file of the client's certificate.")
KEY_FILE = text("keyFile", "tls: PEM file of its key.")
PASSWORD = text("password", "Password; never logged or recorded.")
HEARTBEAT = number("heartbeat", "Seconds after which broker and client consider each other dead.", 60)
BROKER_OPTIONS: Sequence[Option[Any]] = (PASSWORD, TLS, CA_FILE, CERT_FILE, KEY_FILE, HEARTBEAT)
"""Options by which a client connects to a broker of queues, beside its address."""


def upsert_keys(options: Options) -> tuple[str, ...]:
    """The columns of ``keyColumns``; empty with ``mode=append``."""
    if options[MODE] == "append":
        if KEY_COLUMNS in options:
            message = "keyColumns: with mode=append, rows have no keys. Use mode=upsert, or leave keyColumns out."
            raise AnalysisError(message)
        return ()
    if not options[KEY_COLUMNS]:
        message = 'mode=upsert needs option("keyColumns", "a, b"): the columns that identify the row to replace.'
        raise AnalysisError(message)
    return options[KEY_COLUMNS]
