"""The progress of a topic's writers, from the markers in their progress topics, read once and without a query."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import confluent_kafka
from confluent_kafka.admin import AdminClient

from sparkjet.connectors.kafka.parts import PublishError
from sparkjet.connectors.kafka.publishing import COMMITTED, MarkerReader, ends_of
from sparkjet.connectors.kafka.writer_markers import COMPLETE, WriterMarkers
from sparkjet.errors import AnalysisError

_PATIENCE = 30.0
"""Seconds to wait for brokers that do not answer."""


def told_of(place: str, progress_topics: Sequence[str], given: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The newest progress of each output that writes into ``kafka://servers/topic``."""
    found = urlsplit(place)
    topic = found.path.strip("/")
    if not topic or not found.netloc or not progress_topics:
        message = (
            f'complete_until: {place!r} is not kafka://host:9092/topic, or progress_topics=["…"] is missing: the '
            "option progressTopic of the queries that write there, or sparkjet-progress-QUERY-OUTPUT."
        )
        raise AnalysisError(message)
    properties = {name.replace("_", "."): str(value) for name, value in given.items()}
    client = {"bootstrap.servers": found.netloc, "log_level": "0", **properties}
    markers = WriterMarkers()
    try:
        ends = ends_of(AdminClient(dict(client)), [(name, COMPLETE) for name in progress_topics], COMMITTED, _PATIENCE)
        markers.take(MarkerReader(client, _PATIENCE).read({}, ends))
    except (confluent_kafka.KafkaException, PublishError) as error:
        raise AnalysisError(f"complete_until: {place}: {error}") from error
    return [
        {**json.loads(key), "epoch": told[-1].epoch, "watermark": told[-1].watermark}
        for key, told in markers.told.items()
        if any(topic in each.ends for each in told)
    ]
