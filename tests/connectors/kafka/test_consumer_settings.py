"""Settings of the Kafka source: refused before anything connects, and silent about secrets."""

from __future__ import annotations

import pickle

import pytest

import sparkjet as sj
from sparkjet.connectors.kafka.consumer_settings import KafkaSourceSettings
from sparkjet.connectors.kafka.properties import redacted

SASL = {"kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.username": "me", "kafka.sasl.password": "hunter2"}


def settings(**given: str) -> KafkaSourceSettings:
    return KafkaSourceSettings.of({"kafka.bootstrap.servers": "127.0.0.1:1", **given})


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({}, "give exactly one of subscribe, subscribePattern, assign"),
        ({"subscribe": "a", "assign": '{"a": [0]}'}, "found subscribe, assign"),
        ({"subscribe": " , "}, "names no topic"),
        ({"subscribePattern": "("}, "is not a regular expression"),
        ({"assign": '["a"]'}, "is not a JSON object"),
        ({"assign": '{"a": 0}'}, "names no partitions"),
        ({"subscribe": "a", "startingOffsets": "newest"}, "neither JSON nor a word"),
        ({"subscribe": "a", "startingOffsets": '{"a": {"0": -3}}'}, "has -3 for a-0"),
        ({"subscribe": "a", "startingTimestamp": "now"}, "must be milliseconds"),
        ({"subscribe": "a", "startingTimestamp": str(2**63)}, "must be milliseconds"),
        ({"subscribe": "a", "startingOffsetsByTimestamp": '{"a": 3}'}, "for 'a'; write e.g."),
        ({"subscribe": "a", "startingOffsetsByTimestamp": f'{{"a": {{"0": {2**63}}}}}'}, "for a-0; write e.g."),
        ({"subscribe": "a", "startingOffsets": "latest", "startingTimestamp": "1"}, "contradict each other"),
        ({"subscribe": "a", "maxOffsetPerTrigger": "1"}, 'did you mean "maxOffsetsPerTrigger"'),
        ({"subscribe": "a", "failOnDataLoss": "no"}, "failOnDataLoss must be true or false"),
        (
            {"subscribe": "a", "kafka.auto.offset.reset": "latest"},
            "kafka.auto.offset.reset: leave it out; use startingOffsets",
        ),
        ({"subscribe": "a", "kafka.sasl.jaas.config": "x"}, "kafka.sasl.username"),
        ({"subscribe": "a", "kafka.ssl.key.pem": "x"}, "kafka.ssl.key.location"),
        ({"subscribe": "a", "kafka.sasl.oauthbearer.assertion.private.key.pem": "x"}, "assertion.private.key.file"),
        ({"subscribe": "a", "kafka.sasl.oauthbearer.assertion.private.key.passphrase": "x"}, "show it in plans"),
        ({"subscribe": "a", "kafka.sasl.oauthbearer.config": "principal=x"}, "show it in plans"),
        ({"subscribe": "a", "kafka.fetch.mim.bytes": "1"}, "kafka.fetch.mim.bytes: librdkafka has no such property"),
        ({"subscribe": "a", "kafka.isolation.lvel": "x"}, 'did you mean "isolation.level"'),
        ({"subscribe": "a", "kafka.isolation.level": "both"}, "kafka.isolation.level: librdkafka does not accept its"),
        ({"subscribe": "a", "kafka.ssl.truststore.location": "x"}, "use kafka.ssl.ca.location, a PEM file"),
        ({"subscribe": "a", "kafka.bootstrap.servers": ""}, 'needs option("kafka.bootstrap.servers"'),
    ],
)
def test_wrong_settings_are_refused_before_the_start(given: dict[str, str], error: str) -> None:
    with pytest.raises(sj.AnalysisError) as caught:
        settings(**given)
    assert error in str(caught.value)


def test_options_are_found_whatever_their_case() -> None:
    # Spark passes them in lower case.
    found = settings(
        subscribepattern="a.*", startingoffsets="EARLIEST", MAXOFFSETSPERTRIGGER="7", includeheaders="true"
    )
    assert found.subscription.pattern == "a.*"
    assert found.starting.all == -2
    assert found.max_offsets == 7
    assert found.headers


def test_client_properties_can_be_changed_except_those_that_the_source_needs() -> None:
    found = settings(subscribe="a", **{"kafka.isolation.level": "read_uncommitted", "kafka.fetch.wait.max.ms": "5"})
    assert found.client["isolation.level"] == "read_uncommitted"
    assert found.client["fetch.wait.max.ms"] == "5"
    assert found.client["auto.offset.reset"] == "error"
    assert settings(subscribe="a").client["isolation.level"] == "read_committed"


def test_no_text_has_a_secret() -> None:
    found = settings(subscribe="a", **SASL, **{"kafka.sasl.mechanism": "PLAIN"})
    assert "hunter2" not in repr(found)
    assert found.shown("login of me with hunter2 failed") == "login of me with *** failed"
    # Workers get the settings unchanged.
    assert pickle.loads(pickle.dumps(found)).client["sasl.password"] == "hunter2"  # noqa: S301 - our own bytes
    with pytest.raises(sj.AnalysisError) as caught:
        settings(subscribe="a", **SASL, **{"kafka.sasl.mechanism": "hunter2"})
    assert "kafka.sasl.mechanism" in str(caught.value)
    assert "hunter2" not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize("name", ["sasl.password", "ssl.key.password", "sasl.oauthbearer.client.secret", "ssl.key.pem"])
def test_secrets_are_known_by_their_names(name: str) -> None:
    assert redacted("x", {name: "x"}) == "***"
