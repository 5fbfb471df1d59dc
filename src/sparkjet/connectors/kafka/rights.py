"""The operations that a user may perform on a topic, and the command that allows the others."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from confluent_kafka import TopicCollection
from confluent_kafka.admin import AclOperation  # type: ignore[attr-defined]

from sparkjet.connectors.kafka.publishing import ANSWER, answered


def described(admin: Any, name: str, patience: float) -> Any:
    """A topic, with the operations allowed to this user; requested so that brokers do not create a missing one."""
    return answered(admin, partial(_described, admin, name), patience)


def missing(topic: Any, operations: Sequence[str]) -> list[str]:
    """The operations that brokers would refuse; none if they have no rules, or do not say."""
    allowed = topic.authorized_operations
    return [each for each in operations if allowed and AclOperation[each.upper()] not in allowed]


def allowing(topic: str, operations: Sequence[str]) -> str:
    """The command that allows operations on a topic.

    >>> allowing("out", ["Read", "Write"])
    'kafka-acls.sh --add --allow-principal User:… --operation Read --operation Write --topic out'
    """
    return (
        f"kafka-acls.sh --add --allow-principal User:… --operation {' --operation '.join(operations)} --topic {topic}"
    )


def _described(admin: Any, name: str) -> Any:
    asked = admin.describe_topics(TopicCollection([name]), include_authorized_operations=True, request_timeout=ANSWER)
    return asked[name].result()
