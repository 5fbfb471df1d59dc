"""Several brokers, played by small servers: coordinators that move, brokers that are down or broken."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from sparkjet.connectors.kafka.access import Access
from sparkjet.connectors.kafka.cluster import Cluster, error_name
from sparkjet.connectors.kafka.connection import BrokerError, RefusedError
from sparkjet.connectors.kafka.requests import Node
from sparkjet.connectors.kafka.wire import Encoder
from tests.sinks.brokers import (
    AUTHENTICATE,
    COORDINATOR,
    END,
    HANDSHAKE,
    LIST,
    METADATA,
    Answers,
    Broker,
    coordinator,
    error,
    in_turn,
    listing,
    metadata,
)


@pytest.fixture
def brokers() -> Iterator[tuple[Broker, Broker]]:
    with ExitStack() as stack:
        yield stack.enter_context(Broker({})), stack.enter_context(Broker({}))


def cluster(*brokers: Broker, patience: float = 20.0) -> Cluster:
    servers = ",".join(f"127.0.0.1:{broker.port}" for broker in brokers)
    return Cluster(Access.of({"bootstrap.servers": servers}), patience)


def test_a_coordinator_that_has_moved_is_looked_for_again(brokers: tuple[Broker, Broker]) -> None:
    one, other = brokers
    one.answers = {COORDINATOR: in_turn(coordinator(one.port), coordinator(other.port)), END: lambda: error(16)}
    other.answers = {END: lambda: error(0)}
    with cluster(one) as asked:
        assert asked.commit("t", 1, 0) == 0
    assert (one.asked, other.asked) == ([COORDINATOR, END, COORDINATOR], [END])


def test_a_coordinator_that_hangs_up_is_asked_again_which_a_commit_allows(brokers: tuple[Broker, Broker]) -> None:
    one, other = brokers
    one.answers = {COORDINATOR: lambda: coordinator(other.port)}
    other.answers = {END: in_turn(None, *map(error, (7, 13, 14, 51, 0)))}
    with cluster(one) as asked:
        assert asked.commit("t", 1, 0) == 0
    assert other.asked == [END] * 6


def test_an_error_that_the_broker_cannot_explain_is_not_waited_for(brokers: tuple[Broker, Broker]) -> None:
    one, _ = brokers
    one.answers = {COORDINATOR: lambda: coordinator(one.port), END: lambda: error(-1)}
    with cluster(one) as asked:
        assert "see the broker's log" in error_name(asked.commit("t", 1, 0))
    assert one.asked == [COORDINATOR, END]


def test_each_broker_lists_what_it_coordinates_and_prefixes_are_exact(brokers: tuple[Broker, Broker]) -> None:
    one, other = brokers
    one.answers = {METADATA: lambda: metadata(one.port, other.port), LIST: lambda: listing("a/_/1", "b/2")}
    other.answers = {LIST: lambda: listing("a/x/1", "a/_/2")}
    with cluster(one) as asked:
        assert asked.open_transactions("a/_/") == ["a/_/1", "a/_/2"]


def test_a_server_that_is_away_is_passed_over(brokers: tuple[Broker, Broker]) -> None:
    away, here = brokers
    away.answers = {METADATA: lambda: None}
    here.answers = {METADATA: lambda: metadata(here.port)}
    with cluster(away, here) as asked:
        assert asked.metadata().cluster == "cluster"


def test_a_server_that_is_away_is_not_waited_for_at_every_look_up(brokers: tuple[Broker, Broker]) -> None:
    away, here = brokers
    away.answers = {COORDINATOR: lambda: None}
    here.answers = {COORDINATOR: lambda: coordinator(here.port), END: lambda: error(0)}
    with cluster(away, here) as asked:
        assert [asked.commit(name, 1, 0) for name in "abc"] == [0, 0, 0]
    assert away.asked == [COORDINATOR]


@pytest.mark.parametrize("learns", [METADATA, COORDINATOR])
def test_brokers_that_were_learned_are_asked_when_those_of_the_options_are_away(
    brokers: tuple[Broker, Broker], learns: int
) -> None:
    one, other = brokers
    # The only broker in the options answers once, and never again.
    one.answers = {
        METADATA: in_turn(metadata(one.port, other.port), None),
        COORDINATOR: in_turn(coordinator(other.port), None),
    }
    other.answers = {
        METADATA: lambda: metadata(other.port),
        COORDINATOR: lambda: coordinator(other.port),
        END: lambda: error(0),
    }
    with cluster(one) as asked:
        if learns == METADATA:
            asked.metadata()
            assert asked.metadata().nodes == {0: Node("127.0.0.1", other.port)}
        else:
            assert asked.commit("first", 1, 0) == 0
            assert asked.commit("second", 1, 0) == 0


def test_permanent_errors_are_not_retried(brokers: tuple[Broker, Broker]) -> None:
    one, _ = brokers
    one.answers = {COORDINATOR: lambda: Encoder().int32(0).int16(53).int16(-1).int32(0).int16(-1).int32(0).encoded()}
    with cluster(one) as asked, pytest.raises(RefusedError, match="TRANSACTIONAL_ID_AUTHORIZATION_FAILED"):
        asked.fence("t")
    assert one.asked == [COORDINATOR]


@pytest.mark.parametrize("answer", [b"", b"\0\0", Encoder().int32(0).int32(2**30).encoded()])
def test_a_server_that_is_not_kafka_is_named_and_not_used(brokers: tuple[Broker, Broker], answer: bytes) -> None:
    one, _ = brokers
    one.answers = {METADATA: lambda: answer}
    with (
        cluster(one, patience=0.05) as asked,
        pytest.raises(BrokerError, match=r"did not answer .* in Kafka's protocol"),
    ):
        asked.metadata()


def guarded(broker: Broker, mechanism: str) -> Cluster:
    login = {"sasl.mechanism": mechanism, "sasl.username": "me", "sasl.password": "never-shown"}
    servers = {"bootstrap.servers": f"127.0.0.1:{broker.port}", "security.protocol": "SASL_PLAINTEXT"}
    return Cluster(Access.of({**servers, **login}), patience=20.0)


def authentication(code: int, said: bytes = b"") -> bytes:
    return Encoder().int16(code).int16(-1).data(said).encoded()


OFFERED = Encoder().int16(0).int32(1).string("PLAIN").encoded()
NOT_OFFERED = Encoder().int16(33).int32(1).string("GSSAPI").encoded()


def test_a_password_is_sent_once_and_then_requests_are_answered(brokers: tuple[Broker, Broker]) -> None:
    one, _ = brokers
    one.answers = {
        HANDSHAKE: lambda: OFFERED,
        AUTHENTICATE: lambda: authentication(0),
        METADATA: lambda: metadata(one.port),
    }
    with guarded(one, "PLAIN") as asked:
        assert asked.metadata().cluster == asked.metadata().cluster == "cluster"
    assert one.asked == [HANDSHAKE, AUTHENTICATE, METADATA, METADATA]


@pytest.mark.parametrize(
    ("mechanism", "answers", "message"),
    [
        ("PLAIN", {HANDSHAKE: lambda: NOT_OFFERED}, r"does not offer kafka.sasl.mechanism=PLAIN, but \['GSSAPI'\]"),
        ("PLAIN", {HANDSHAKE: lambda: OFFERED, AUTHENTICATE: lambda: authentication(58)}, "Check kafka.sasl.username"),
        (
            "SCRAM-SHA-256",
            {HANDSHAKE: lambda: OFFERED, AUTHENTICATE: lambda: authentication(0, b"r=guessed,s=c2FsdA==,i=4096")},
            "the challenge is not for this client",
        ),
    ],
)
def test_a_refused_client_does_not_ask_again_and_shows_no_password(
    brokers: tuple[Broker, Broker], mechanism: str, answers: Answers, message: str
) -> None:
    one, _ = brokers
    one.answers = answers
    with guarded(one, mechanism) as asked, pytest.raises(RefusedError, match=message) as refused:
        asked.metadata()
    assert "never-shown" not in str(refused.value)
    assert one.asked.count(HANDSHAKE) == 1
