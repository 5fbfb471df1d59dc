"""Adopted sources: whether a source may continue what a Spark query has read, by what its offset looks like."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from sparkjet.connectors.formats import SOURCES
from sparkjet.connectors.kafka.options import SOURCE_NAME
from sparkjet.connectors.kafka.positions import positions_in
from sparkjet.sources.carrying import CarryingOffset

if TYPE_CHECKING:
    from sparkjet.plan.spark_sources import ReadSource

_GLOB = "*?[{"


def unlike(name: str, end: object, source: ReadSource, topics: str | None) -> str:
    """Why a source cannot continue an offset; a clause, empty if it may.

    Args:
        name: Name or number of the source.
        end: The offset; None if nothing was read.
        source: The source.
        topics: Its option ``subscribe``.
    """
    kind = "files" if source.files is not None else source.format
    if kind in SOURCES and kind not in _KINDS:
        return (
            f"has offsets of a source of Spark's for source {name}, and the query reads {source.format}, which "
            "cannot continue them. Give the query the source of Spark's query"
        )
    if end is not None and kind in _KINDS and not _KINDS[kind](end):
        return (
            f"has the offset {json.dumps(end)} for source {name}, which is not one of {source.format}. Give the "
            "query the sources of Spark's query, in the same order"
        )
    read = {topic for topic, _ in positions_in(end)} if isinstance(end, dict) and _is_ours(end) else set()
    if topics is not None and read and read.isdisjoint(each.strip() for each in topics.split(",")):
        # Two that changed places would begin with all that their topics have.
        return (
            f"has read {', '.join(sorted(read))} for source {name}, and the query reads {topics}. Give the query "
            "the topics of Spark's query, in the same order"
        )
    return ""


def is_below(file: str, path: str) -> bool:
    """Whether a file's URI may be below the path of a file source, as a user gives it.

    >>> is_below("file:///in/a%20b/1.json", "/in/a b"), is_below("file:///in2/1.json", "/in")
    (True, False)
    >>> is_below("s3a://bucket/in/1.json", "s3a://bucket/i*/"), is_below("hdfs://n/user/u/in/1.json", "in")
    (True, True)
    """
    given = path.partition(":")[2] if urlsplit(path).scheme else path
    given = given if not given.startswith("//") else "/" + given[2:].partition("/")[2]
    if not given.startswith("/"):
        # Relative: to what, the file system says.
        return True
    parts = [part for part in given.split("/") if part]
    plain = next((number for number, part in enumerate(parts) if any(each in part for each in _GLOB)), len(parts))
    found = [part for part in unquote(urlsplit(file).path).split("/") if part]
    return found[:plain] == parts[:plain]


def _is_kafka(offset: object) -> bool:
    return isinstance(offset, dict) and all(isinstance(each, dict) for each in offset.values())


def _is_ours(offset: object) -> bool:
    """Whether it is of our Kafka source, also with the watermarks of ``progressTopic`` or ``maxWatermarkDrift``."""
    carrying = CarryingOffset.found_in(offset)
    return _is_kafka(offset) if carrying is None else carrying.source == SOURCE_NAME


def _has(*keys: str) -> Callable[[object], bool]:
    return lambda offset: isinstance(offset, dict) and set(keys) <= set(offset)


_KINDS: Mapping[str, Callable[[object], bool]] = {
    "files": _has("logOffset"),
    "kafka": _is_kafka,
    SOURCE_NAME: _is_ours,
    "rate": lambda offset: isinstance(offset, int),
    "rate-micro-batch": _has("offset", "timestamp"),
    "delta": _has("reservoirId"),
}
"""Whether an offset may be one of a source, by its name; other sources judge theirs themselves."""
