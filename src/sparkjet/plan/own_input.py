"""Outputs that a query would read as its input: the rows of each epoch would come back in the next one."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from sparkjet.errors import AnalysisError
from sparkjet.plan.spark_sources import file_sources
from sparkjet.sinks.files import FilesSink
from sparkjet.storage.schemes import directory_at, scheme_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparkjet.plan.plan import Plan
    from sparkjet.plan.spark_sources import FileSource

_PATTERN = re.compile(r"[*?\[]")


def check_own_input(plan: Plan) -> None:
    """Refuse an output into a directory that a file source of the same query lists."""
    sinks = [output.sink for output in plan.outputs if isinstance(output.sink, FilesSink)]
    for source in file_sources(plan.source) if sinks else ():
        for sink in sinks:
            if _takes(source, sink, plan.source.sparkSession):
                message = (
                    f'{sink.option}: "{sink.directory}" is among what the query reads, "{source.path}": it would take '
                    "its own results for input, in each epoch again. Give another directory."
                )
                raise AnalysisError(message)


def _takes(source: FileSource, sink: FilesSink, session: SparkSession) -> bool:
    """Whether a source would list the files of a sink: in its directory, in those of partitions, or anywhere below."""
    file = f"part-000000001-00000-0.{sink.file_format}"
    if scheme_of(source.path) != scheme_of(str(sink.directory)) or not _fits(file, source.names):
        return False
    levels = source.path.rstrip("/").split("/")
    fixed = next((number for number, level in enumerate(levels) if _PATTERN.search(level)), len(levels))
    patterns = levels[fixed:]
    read = _levels(
        directory_at("/".join(levels[:fixed]) or ("/" if fixed else "."), "path", lambda: session).resolved()
    )
    written = _levels(sink.directory.resolved())
    if written[: len(read)] != read:
        # The source may read one partition of the output.
        return not patterns and read[: len(written)] == written and _are_partitions(read[len(written) :])
    below = written[len(read) :]
    if not all(_fits(name, pattern) for name, pattern in zip(below, patterns, strict=False)):
        return False
    if len(below) >= len(patterns):
        listed = below[len(patterns) :]
        return not any(map(_is_left_out, listed)) if source.is_recursive else _are_partitions(listed)
    # A pattern of files.
    return len(below) == len(patterns) - 1 and _fits(file, patterns[-1])


def _fits(name: str, pattern: str) -> bool:
    """Whether a name matches a Hadoop pattern.

    >>> _fits("in", "[^_]*"), _fits("_out", "[^_]*"), _fits("_out", "[!_]*")
    (True, False, False)
    """
    # Python has ^ for one of the characters.
    return fnmatchcase(name, pattern.replace("[^", "[!"))


def _levels(location: str) -> list[str]:
    return location.rstrip("/").split("/")


def _is_left_out(directory: str) -> bool:
    """Whether Spark ignores a directory below the one that it lists."""
    return directory.startswith(".") or (directory.startswith("_") and "=" not in directory)


def _are_partitions(levels: list[str]) -> bool:
    return all("=" in level for level in levels)
