"""Where the Kafka source starts in a new query."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sparkjet.connectors.kafka.options import (
    STARTING_OFFSETS,
    STARTING_OFFSETS_BY_TIMESTAMP,
    STARTING_TIMESTAMP,
    STRATEGY,
)
from sparkjet.connectors.kafka.positions import TopicPartition, numbers
from sparkjet.errors import AnalysisError, nearest

if TYPE_CHECKING:
    from sparkjet.options import Options

LATEST, EARLIEST = -1, -2
"""Offsets that stand for a partition's end and its beginning, as in Kafka's protocol and in Spark's option."""
_WORDS = {"latest": LATEST, "earliest": EARLIEST}
_END = 2**63
"""Offsets and times are less than this."""
_WAYS = (STARTING_OFFSETS, STARTING_TIMESTAMP, STARTING_OFFSETS_BY_TIMESTAMP)


@dataclass(frozen=True)
class Starting:
    """The option ``startingOffsets``, ``startingTimestamp`` or ``startingOffsetsByTimestamp``.

    Attributes:
        option: Which of them it is.
        all: The offset, or with ``by_time`` the milliseconds, of every partition; None if each has its own.
        each: The offset or time of each partition.
        latest_if_none: Whether a partition without a record at or after its time starts at its end.
    """

    option: str = "startingOffsets"
    all: int | None = LATEST
    each: Mapping[TopicPartition, int] | None = None
    latest_if_none: bool = False

    @property
    def by_time(self) -> bool:
        """Whether the numbers are milliseconds since the epoch."""
        return self.option != "startingOffsets"

    @staticmethod
    def of(options: Options) -> Starting:
        """The start in some options."""
        given = [(way.name, text) for way in _WAYS if (text := options.get(way)) is not None]
        if len(given) > 1:
            raise AnalysisError(f"option: {' and '.join(way for way, _ in given)} contradict each other; give one.")
        strategy = options[STRATEGY]
        if not given:
            return Starting()
        way, text = given[0]
        if way == "startingTimestamp":
            if not text.isdecimal() or int(text) >= _END:
                message = f'option: startingTimestamp="{text}" must be milliseconds since 1970, e.g. "1700000000000".'
                raise AnalysisError(message)
            return Starting(way, int(text), None, strategy == "latest")
        if way == "startingOffsets" and not text.lstrip().startswith("{"):
            if text.lower() not in _WORDS:
                message = f'option: startingOffsets="{text}" is neither JSON nor a word; {nearest(text, _WORDS)}'
                raise AnalysisError(message)
            return Starting(way, _WORDS[text.lower()])
        example = '{"clicks": {"0": 23, "1": -2}}' if way == "startingOffsets" else '{"clicks": {"0": 1700000000000}}'
        each = numbers(way, text, example)
        least = EARLIEST if way == "startingOffsets" else 0
        for (topic, partition), number in each.items():
            if not least <= number < _END:
                raise AnalysisError(f"option: {way} has {number} for {topic}-{partition}; write e.g. {example}.")
        return Starting(way, None, each, strategy == "latest")

    def wanted(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset or time of each partition that is read."""
        if self.each is None:
            return dict.fromkeys(partitions, LATEST if self.all is None else self.all)
        missing = [each for each in partitions if each not in self.each]
        unknown = [each for each in self.each if each not in partitions]
        if missing or unknown:
            wrong = [f"lacks {topic}-{partition}" for topic, partition in missing]
            wrong += [f"names {topic}-{partition}, which is not read" for topic, partition in unknown]
            message = f"option: {self.option} {', '.join(wrong)}. Give every partition that is read a number."
            if not self.by_time:
                message += " (-2 is its first offset, -1 its end.)"
            raise AnalysisError(message)
        return dict(self.each)
