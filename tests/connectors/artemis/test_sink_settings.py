"""Options of the Artemis sink: what they become, and what is refused before anything connects."""

from __future__ import annotations

import re

import pytest

from sparkjet.connectors.artemis.sink_settings import ANYCAST, MULTICAST, ArtemisSinkSettings
from sparkjet.errors import AnalysisError
from sparkjet.options import Options


def test_a_queue_or_a_topic_is_all_that_is_needed() -> None:
    queue = ArtemisSinkSettings.of(Options({"queue": "orders"}))
    assert (queue.destination, queue.routing, queue.most, queue.address.port) == ("orders", ANYCAST, 10_000, 61616)
    options = {"topic": "news", "maxMessagesPerTransaction": "5", "user": "u", "password": "s3cret", "tls": "true"}
    topic = ArtemisSinkSettings.of(Options(options))
    assert (topic.destination, topic.routing, topic.most, topic.address.user) == ("news", MULTICAST, 5, "u")
    assert topic.address.tls is not None
    assert "s3cret" not in repr(topic)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, 'needs option("queue", "…") or option("topic", "…"), one of the two'),
        ({"queue": "a", "topic": "b"}, "one of the two"),
        ({"queue": "a", "maxMessagesPerTransaction": "0"}, "maxMessagesPerTransaction must be a positive whole number"),
        ({"queue": "a", "certFile": "c.pem"}, 'certFile is for TLS: set option("tls", True)'),
    ],
)
def test_bad_options_are_named(options: dict[str, str], message: str) -> None:
    with pytest.raises(AnalysisError, match=re.escape(message)):
        ArtemisSinkSettings.of(Options(options))
