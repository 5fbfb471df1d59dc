"""The Kafka source keeps the contract of sources against a real broker."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from sparkjet.testing.source_contract import SourceContract, SourceUnderTest
from tests.sources.feed import reader, send

if TYPE_CHECKING:
    from tests.servers.kafka import KafkaServer


class TestKafka(SourceContract):
    @pytest.fixture
    def source(self, kafka: KafkaServer) -> SourceUnderTest:
        topic, numbers = kafka.topic(partitions=2), itertools.count()

        def add(count: int) -> None:
            for number in itertools.islice(numbers, count):
                send(kafka, topic, b"%d" % number, partition=number % 2)

        return SourceUnderTest(lambda: reader(kafka, subscribe=topic), add)
