"""The end of a connection to RabbitMQ: whether it is opened again, and the message for the user."""

from __future__ import annotations

import pika
import pytest
from pika.exceptions import ProbableAccessDeniedError, ProbableAuthenticationError, StreamLostError

from sparkjet.connectors.rabbitmq.connection import connection_of, explain, is_refused
from sparkjet.errors import AnalysisError
from sparkjet.options import Options

AT = pika.ConnectionParameters("broker", 5672, "/shop", pika.PlainCredentials("ann", "s3cret"))
REFUSED = "ACCESS_REFUSED - Login was refused using authentication mechanism PLAIN."
ELSEWHERE = "NOT_ALLOWED - vhost /shop not found"
FULL = "NOT_ALLOWED - access to vhost '/' refused for user 'ann': connection limit (1) is reached"


def closed(code: int, text: str) -> str:
    """pika's error for an end that the broker has given a reason for."""
    return f"ConnectionClosedByBroker: ({code}) {text!r}"


@pytest.mark.parametrize(
    ("error", "refused", "text"),
    [
        (ProbableAuthenticationError(closed(403, REFUSED)), True, "user 'ann' may not connect to virtual host '/shop'"),
        (ProbableAccessDeniedError(closed(530, ELSEWHERE)), True, "'/shop': 'NOT_ALLOWED - vhost /shop not found'"),
        # It lets others in when one of them has gone.
        (ProbableAccessDeniedError(closed(530, FULL)), False, "broker:5672: \"NOT_ALLOWED - access to vhost '/' refus"),
        # A network that fails in the middle of the login.
        (ProbableAuthenticationError("StreamLostError: ('reset',)"), False, "the connection was lost at the login: St"),
        (StreamLostError("reset"), False, "broker:5672: StreamLostError: ('reset',)"),
    ],
)
def test_a_refusal_of_a_broker_is_distinguished_from_a_passing_fault(
    error: Exception, refused: bool, text: str
) -> None:
    assert is_refused(error) == refused
    assert text in explain(AT, error)
    assert "s3cret" not in explain(AT, error)


def test_a_heartbeat_that_amqp_cannot_say_is_named() -> None:
    assert connection_of(Options({"heartbeat": "65535"})).heartbeat == 65_535
    with pytest.raises(
        AnalysisError, match=r"option: heartbeat=70000 is in seconds, of which AMQP takes 65535 at most"
    ):
        connection_of(Options({"heartbeat": "70000"}))
