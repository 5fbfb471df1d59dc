"""Options of the Kafka sink: what is refused before anything starts, and secrets that are never shown."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from sparkjet.connectors.kafka.options import SINK_OPTIONS
from sparkjet.connectors.kafka.producer_settings import KafkaSettings
from sparkjet.connectors.kafka.requests import Node
from sparkjet.errors import AnalysisError
from sparkjet.options import QUERY_OPTIONS, Options
from sparkjet.sinks.protocol import Guarantee

SECRET = "never-shown"
AT_LEAST_ONCE = {"processingGuarantee": "at-least-once"}


def settings(**options: str) -> KafkaSettings:
    given = {"kafka.bootstrap.servers": "one:9093, two", "topic": "out"}
    given |= {name.replace("__", "."): value for name, value in options.items()}
    checked = Options(given)
    checked.only([*SINK_OPTIONS, *QUERY_OPTIONS], "kafka")
    return KafkaSettings.of(checked)


def test_properties_are_passed_on_whatever_their_case() -> None:
    found = settings(Kafka__Compression__Type="lz4", onLostTransaction="continue", numPartitions="3")
    assert found.access.servers == (Node("one", 9093), Node("two", 9092))
    assert found.producer["compression.type"] == "lz4"
    assert found.producer["enable.idempotence"] == "true"
    assert (found.topic, found.writers, found.continues, found.timeout) == ("out", 3, True, 900_000)
    assert found.guarantee is Guarantee.EXACTLY_ONCE


@pytest.mark.parametrize(
    ("listed", "nodes"),
    [
        ("[::1]:9093", (Node("::1", 9093),)),
        ("[::1]", (Node("::1", 9092),)),
        ("PLAINTEXT://h:1,g", (Node("h", 1), Node("g", 9092))),
    ],
)
def test_servers_are_read_as_librdkafka_reads_them(listed: str, nodes: tuple[Node, ...]) -> None:
    assert settings(kafka__bootstrap__servers=listed).access.servers == nodes


def test_a_message_lives_no_longer_than_its_transaction() -> None:
    assert settings(kafka__transaction__timeout__ms="5000").producer["message.timeout.ms"] == "5000"


@pytest.mark.parametrize(("given", "kept"), [("at-least-once", "at-least-once"), ("none", "at-least-once")])
def test_a_query_that_wants_less_gets_no_transactions(given: str, kept: str) -> None:
    assert settings(processingGuarantee=given).guarantee is Guarantee(kept)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kafka__bootstrap__servers": ""}, 'kafka.bootstrap.servers names no broker. Give it as "host:port'),
        ({"kafka__bootstrap__servers": " , "}, "kafka.bootstrap.servers names no broker"),
        ({"kafka__bootstrap__servers": "h:x"}, "is not host:port"),
        ({"kafka__bootstrap__servers": "a..b:1"}, '"a..b:1" is not host:port'),
        ({"kafka__bootstrap__servers": "h:65536"}, "is not host:port"),
        ({"kafka__transactional__id": "x"}, "kafka.transactional.id: leave it out"),
        ({"kafka__acks": "1"}, "kafka.acks: leave"),
        ({"kafka__sasl__jaas__config": SECRET}, "use kafka.sasl.username"),
        ({"kafka__ssl__truststore__location": "x"}, "kafka.ssl.truststore.location is a property of Java's client"),
        ({"kafka__linger__mss": SECRET}, 'kafka.linger.mss: librdkafka has no such property; did you mean "linger.ms"'),
        ({"kafka__compression__type": SECRET}, "kafka.compression.type: librdkafka does not accept its value"),
        ({"kafka__transaction__timeout__ms": "soon"}, "is not a number of milliseconds"),
        ({"kafka__security__protocol": "TLS"}, 'kafka.security.protocol: "TLS" is not one of PLAINTEXT'),
        (
            {**AT_LEAST_ONCE, "kafka__sasl__oauthbearer__method": "oidc"},
            "itself connects to the brokers too, before the start",
        ),
        (
            {**AT_LEAST_ONCE, "kafka__security__protocol": "SASL_SSL", "kafka__sasl__mechanism": "OAUTHBEARER"},
            '"OAUTHBEARER" is not one of PLAIN.*before the start',
        ),
        ({"kafka__security__protocol": "SASL_SSL", "kafka__sasl__mechanism": "GSSAPI"}, '"GSSAPI" is not one of PLAIN'),
        ({"kafka__security__protocol": "sasl_ssl", "kafka__sasl__mechanism": "PLAIN"}, "needs kafka.sasl.username"),
        (
            {"kafka__sasl__oauthbearer__config": SECRET},
            "kafka.sasl.oauthbearer.config: .*does not support this property",
        ),
        ({"kafka__ssl__keystore__location": "x"}, "kafka.ssl.keystore.location: .*ssl.certificate.location"),
        ({"kafka__security__protocol": "SSL", "kafka__ssl__ca__location": "/none"}, "cannot be read"),
        ({"kafka__security__protocol": "SSL", "kafka__ssl__ca__pem": SECRET}, "PEM"),
        ({"onLostTransaction": "ignore"}, "is not one of fail, continue"),
        ({"topics": "x"}, 'did you mean "topic"'),
    ],
)
def test_wrong_settings_are_named_without_their_values(options: dict[str, str], message: str) -> None:
    with pytest.raises(AnalysisError, match=message) as refused:
        settings(**options)
    assert SECRET not in str(refused.value)
    assert refused.value.__cause__ is None or SECRET not in str(refused.value.__cause__)


def test_secrets_are_not_in_any_representation() -> None:
    found = settings(
        kafka__security__protocol="SASL_PLAINTEXT",
        kafka__sasl__mechanism="PLAIN",
        kafka__sasl__username="me",
        kafka__sasl__password=SECRET,
    )
    assert SECRET in found.producer.values()
    assert SECRET not in f"{found!r}{found.access!r}"


def test_a_key_with_a_wrong_password_is_refused_before_the_start(tmp_path: Path) -> None:
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-subj", "/CN=x", "-passout", "pass:right"]
    files = ["-keyout", str(tmp_path / "key"), "-out", str(tmp_path / "certificate")]
    subprocess.run([*command, *files], check=True, capture_output=True)
    given = {
        "kafka__security__protocol": "SSL",
        "kafka__ssl__certificate__location": str(tmp_path / "certificate"),
        "kafka__ssl__key__location": str(tmp_path / "key"),
    }
    assert settings(**given, kafka__ssl__key__password="right").access.uses_tls
    for wrong in ({"kafka__ssl__key__password": SECRET}, {}):
        with pytest.raises(AnalysisError, match="its password is wrong") as refused:
            settings(**given, **wrong)
        assert SECRET not in str(refused.value)
