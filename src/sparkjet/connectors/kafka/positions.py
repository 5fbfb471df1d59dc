"""Positions in Kafka: an offset for each partition, as stored in Spark's checkpoint."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeVar

from sparkjet.errors import AnalysisError

T = TypeVar("T")
TopicPartition = tuple[str, int]
Positions = Mapping[TopicPartition, int]
"""The next offset to read in each partition."""


def to_offset(positions: Mapping[TopicPartition, T]) -> dict[str, dict[str, T]]:
    """The form that Spark stores; sorted, as Spark compares it as text.

    >>> to_offset({("t", 10): 5, ("t", 9): 7})
    {'t': {'9': 7, '10': 5}}
    """
    offset: dict[str, dict[str, T]] = {}
    for (topic, partition), position in sorted(positions.items()):
        offset.setdefault(topic, {})[str(partition)] = position
    return offset


def from_offset(offset: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
    """The inverse of :func:`to_offset`.

    >>> from_offset({"t": {"9": 7}})
    {('t', 9): 7}
    """
    return {(topic, int(partition)): position for topic, each in offset.items() for partition, position in each.items()}


def positions_in(offset: Mapping[str, Any]) -> dict[TopicPartition, int]:
    """The positions in an offset, with or without watermarks: the option may be new to a query that is restarted.

    >>> positions_in({"source": "sparkjet-kafka", "offsets": {"t": {"9": 7}}, "watermarks": {}})
    {('t', 9): 7}
    """
    # Recognized by its text: under a topic of that name there would be partitions.
    return from_offset(offset["offsets"] if isinstance(offset.get("source"), str) else offset)


def parsed(option: str, text: str, example: str) -> dict[str, Any]:
    """The JSON object in an option."""
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise AnalysisError(f"option: {option}={text!r} is not a JSON object; write e.g. {example}.")
    return found


def numbers(option: str, text: str, example: str) -> dict[TopicPartition, int]:
    """A number for each partition, from the JSON in an option.

    >>> numbers("startingOffsets", '{"t": {"0": 5}}', "…")
    {('t', 0): 5}
    """
    found: dict[TopicPartition, int] = {}
    for topic, partitions in parsed(option, text, example).items():
        each = partitions.items() if isinstance(partitions, dict) else [("", None)]
        for partition, number in each:
            if not partition.isdecimal() or type(number) is not int:
                raise AnalysisError(f"option: {option} has {partitions!r} for {topic!r}; write e.g. {example}.")
            found[topic, int(partition)] = number
    return found
