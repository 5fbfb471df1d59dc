"""Spark's list of files (``_spark_metadata``): what its readers follow, continued as Spark would."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

from sparkjet.errors import StorageError

if TYPE_CHECKING:
    from sparkjet.storage.directory import Directory

LIST = "_spark_metadata"
INTERVAL = "spark.sql.streaming.fileSink.log.compactInterval"
"""Spark's setting: the interval of compactions of a list that has none yet."""
_VERSION = "v1"
_NAME = re.compile(r"(\d+)(\.compact)?")
_BLOCK = 32 << 20
"""Readers of a directory take no notice of it."""


class SparkList:
    """The list of one directory: an entry for each batch with the files that it has added, by its number.

    Numbers have no gaps. Each entry whose number ends an interval repeats all before it: readers begin with the newest
    of these. The interval is not written down; everyone works it out from the names of what is there, as Spark does.

    Args:
        directory: The directory.
    """

    def __init__(self, directory: Directory) -> None:
        self._directory, self._folder = directory, directory.below(LIST)
        self._known: tuple[int, str] | None = None
        """The newest entry if this object has put it, and its first file: nobody else has added any of ours since."""

    def newest(self) -> int | None:
        """The number of the newest entry; reads file names only."""
        return max(self._names(), default=None)

    def lines(self) -> list[str]:
        """All files that readers see, each as JSON.

        Raises:
            StorageError: An entry is missing, or damaged.
        """
        return self._lines(self._names())

    def files(self) -> list[str]:
        """The same, relative to the directory.

        Raises:
            StorageError: An entry is missing or damaged, or names a file elsewhere.
        """
        above, found = f"{unquote(_encoded(self._directory.uri('')).rstrip('/'))}/", []
        for line in self.lines():
            path = unquote(_path(line))
            # Hadoop writes file:/a and file:///a alike.
            plain = re.sub(r"^(\w+):/(?!/)", r"\1:///", path)
            if not plain.startswith(above):
                message = (
                    f"{self._folder} names {path}, which is not below {above}. Read the directory with spark.read."
                )
                raise StorageError(message)
            found.append(plain.removeprefix(above))
        return found

    def add(self, files: Mapping[str, int], now: int, interval: int, retention: int | None = None) -> None:
        """Add files as the next entry; those of an entry that is there already change nothing.

        Args:
            files: Sizes of the files, by their names in the directory.
            now: The time, in microseconds.
            interval: Of compactions, if the list has none yet.
            retention: Microseconds after which compactions leave files out; None keeps all.
        """
        added = [self._line(name, size, now // 1000) for name, size in files.items()]
        first = _path(added[0])
        while True:
            names = self._names()
            newest = max(names, default=-1)
            known, last = self._known or (None, "")
            there = [last] if newest == known else map(_path, self._lines(names))
            # Of a driver that was taken over, of before a crash, or of a commit that is tried again.
            if first in there:
                return
            if self._put(newest + 1, names, added, interval, None if retention is None else (now - retention) // 1000):
                self._known = newest + 1, first
                return

    def close(self, number: int, interval: int) -> bool:
        """Let Spark's sink, if it still runs, not add this entry: it ends. Whether the entry is not Spark's."""
        while True:
            names = self._names()
            if number in names:
                # Spark ends an entry without a line break, and reads it with one as well.
                return self._folder.read(names[number]).endswith(b"\n")
            if self._put(number, names, [], interval, None, "\n"):
                return True

    def _put(
        self,
        number: int,
        names: Mapping[int, str],
        added: Sequence[str],
        default: int,
        since: int | None,
        end: str = "",
    ) -> bool:
        interval = interval_of([each for each, name in names.items() if "." in name], default)
        if (number + 1) % interval:
            return self._folder.put(str(number), ("\n".join([_VERSION, *added]) + end).encode())
        kept = self._lines(names)
        if since is not None:
            kept = [line for line in kept if json.loads(line)["modificationTime"] >= since]
        if not self._folder.put(f"{number}.compact", ("\n".join([_VERSION, *kept, *added]) + end).encode()):
            return False
        # Readers that have listed what is older read on from a newer compaction. Two stay: they tell the interval.
        floor = max((each for each, name in names.items() if "." in name), default=0)
        self._folder.remove_files([name for each, name in names.items() if each < floor])
        return True

    def _names(self) -> dict[int, str]:
        found: dict[int, str] = {}
        for name in sorted(self._folder.names()):
            match = _NAME.fullmatch(name)
            if match is not None:
                found[int(match[1])] = name
        return found

    def _lines(self, names: Mapping[int, str]) -> list[str]:
        first = max((each for each, name in names.items() if "." in name), default=0)
        lines: list[str] = []
        for number in range(first, max(names, default=-1) + 1):
            if number not in names:
                message = f"{self._folder} has no entry {number}, and later ones: its readers fail. Restore it."
                raise StorageError(message)
            lines += self._entry(names[number])
        return lines

    def _entry(self, name: str) -> list[str]:
        try:
            version, *lines = self._folder.read(name).decode().splitlines()
            for line in lines:
                str(json.loads(line)["path"])
        except (UnicodeDecodeError, ValueError, LookupError, TypeError) as error:
            raise StorageError(f"{self._folder.below(name)} is damaged: {error}. Restore it.") from error
        if version != _VERSION:
            message = (
                f"{self._folder.below(name)} has version {version!r}, and {_VERSION} is what sparkjet reads. Write "
                "into another directory."
            )
            raise StorageError(message)
        return lines

    def _line(self, name: str, size: int, modified: int) -> str:
        fields = {
            "path": _encoded(self._directory.uri(name)),
            "size": size,
            "isDir": False,
            "modificationTime": modified,
            "blockReplication": 1,
            "blockSize": _BLOCK,
            "action": "add",
        }
        return json.dumps(fields, separators=(",", ":"))


def _path(line: str) -> str:
    return str(json.loads(line)["path"])


def interval_of(compactions: Sequence[int], default: int) -> int:
    """The interval of compactions, from the numbers of those that are there.

    >>> interval_of([], 10), interval_of([9, 19], 3), interval_of([1], 10), interval_of([11], 5), interval_of([29], 20)
    (10, 10, 2, 6, 30)
    """
    *_, before, last = [-1, -1, *sorted(compactions)]
    if before >= 0:
        return last - before
    if last < 0:
        return default
    count = last + 1
    if count <= default or default >= count // 2:
        return count
    return next((each for each in range(default, count // 2 + 1) if count % each == 0), count)


def _encoded(uri: str) -> str:
    """A URI as Spark writes it, of one that is not percent-encoded.

    >>> _encoded("file:/a b/c=%3A"), _encoded("s3a://bucket/a?b")
    ('file:///a%20b/c=%253A', 's3a://bucket/a%3Fb')
    """
    scheme, _, rest = uri.partition(":")
    authority, slash, path = rest.removeprefix("//").partition("/") if rest.startswith("//") else ("", "", rest)
    return f"{scheme}://{authority}{slash}{quote(path, safe='/=')}"
