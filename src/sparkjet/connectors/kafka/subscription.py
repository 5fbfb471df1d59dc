"""The subscription of the Kafka source: which partitions of a cluster it reads."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sparkjet.connectors.kafka.options import ASSIGN, SUBSCRIBE, SUBSCRIBE_PATTERN
from sparkjet.connectors.kafka.positions import TopicPartition, parsed
from sparkjet.errors import AnalysisError

if TYPE_CHECKING:
    from sparkjet.options import Options

_WAYS = (SUBSCRIBE, SUBSCRIBE_PATTERN, ASSIGN)


@dataclass(frozen=True)
class Subscription:
    """The option ``subscribe``, ``subscribePattern`` or ``assign``.

    >>> Subscription(pattern="click.*").chosen({"clicks": [0, 1], "trades": [0]})
    [('clicks', 0), ('clicks', 1)]
    """

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: tuple[TopicPartition, ...] = ()

    @staticmethod
    def of(options: Options) -> Subscription:
        """The subscription in some options."""
        given = [(way.name, text) for way in _WAYS if (text := options.get(way)) is not None]
        if len(given) != 1:
            found = ", ".join(way for way, _ in given) or "none of them"
            ways = ", ".join(way.name for way in _WAYS)
            message = f'option: give exactly one of {ways}, e.g. subscribe="clicks"; found {found}.'
            raise AnalysisError(message)
        way, text = given[0]
        if way == SUBSCRIBE.name:
            topics = tuple(name for part in text.split(",") if (name := part.strip()))
            if not topics:
                message = (
                    f'option: subscribe="{text}" names no topic; separate names with commas, e.g. "clicks,trades".'
                )
                raise AnalysisError(message)
            return Subscription(topics=topics)
        if way == SUBSCRIBE_PATTERN.name:
            try:
                re.compile(text)
            except re.error as error:
                message = f'option: subscribePattern="{text}" is not a regular expression: {error}.'
                raise AnalysisError(message) from error
            return Subscription(pattern=text)
        return Subscription(assigned=_assigned(text))

    def chosen(self, cluster: Mapping[str, Sequence[int]]) -> list[TopicPartition]:
        """The partitions of a cluster that are read, in order.

        A pattern must match the whole topic name; it never matches Kafka's internal topics (``__…``).
        """
        if self.assigned:
            return sorted(each for each in self.assigned if each[1] in cluster.get(each[0], ()))
        if self.pattern is None:
            topics = [topic for topic in self.topics if topic in cluster]
        else:
            expression = re.compile(self.pattern)
            topics = [name for name in cluster if expression.fullmatch(name) and not name.startswith("__")]
        return sorted((topic, partition) for topic in topics for partition in cluster[topic])

    def check(self, cluster: Mapping[str, Sequence[int]]) -> None:
        """Reject named topics and partitions that do not exist."""
        missing = [topic for topic in self.topics if topic not in cluster]
        missing += [f"{name}-{number}" for name, number in self.assigned if number not in cluster.get(name, ())]
        if missing:
            way = "assign" if self.assigned else "subscribe"
            message = (
                f"option: {way} names {', '.join(missing)}, which the cluster does not have (or hides from this user). "
                "Create it first, or use subscribePattern for topics that are created later."
            )
            raise AnalysisError(message)


def _assigned(text: str) -> tuple[TopicPartition, ...]:
    example = '{"clicks": [0, 1]}'
    found = parsed("assign", text, example)
    if not found or not all(isinstance(each, list) and each for each in found.values()):
        message = f"option: assign={text!r} names no partitions; write e.g. {example}."
        raise AnalysisError(message)
    partitions = [(topic, partition) for topic, each in found.items() for partition in each]
    for _, partition in partitions:
        if type(partition) is not int or partition < 0:
            message = f"option: assign={text!r} has {partition!r} as a partition; write e.g. {example}."
            raise AnalysisError(message)
    return tuple(sorted(set(partitions)))
