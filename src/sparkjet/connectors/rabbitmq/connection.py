"""Connecting to RabbitMQ by the options of a source or a sink, and explaining a broker's refusal."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING

import pika
from pika.adapters.utils.connection_workflow import (
    AMQPConnectionWorkflowFailed,
    AMQPConnectorException,
    AMQPConnectorPhaseErrorBase,
    AMQPConnectorStackTimeout,
)
from pika.exceptions import AMQPError, ConnectionOpenAborted, ProbableAccessDeniedError, ProbableAuthenticationError

from sparkjet.connectors.rabbitmq.options import HOST, PORT, USER, VIRTUAL_HOST
from sparkjet.connectors.tls_files import TlsFiles
from sparkjet.errors import AnalysisError
from sparkjet.options import HEARTBEAT, PASSWORD

if TYPE_CHECKING:
    from sparkjet.options import Options

# Its errors are also raised; the log would repeat each with several tracebacks.
logging.getLogger("pika").setLevel(logging.CRITICAL)

FAILURES = (AMQPError, AMQPConnectorException, OSError)
"""Errors of a connection; for a silent broker, pika raises none of its other errors."""
_PROBABLE = (ProbableAuthenticationError, ProbableAccessDeniedError)
"""pika's errors for every end of a connection at login, be it a refusal, a full broker or a failing network."""
_SILENT = (ConnectionOpenAborted, AMQPConnectorStackTimeout)
_SAID = re.compile(r"ConnectionClosedByBroker: \((\d+)\) (.*)", re.DOTALL)
_ACCESS_REFUSED, _NOT_ALLOWED = 403, 530
_LONGEST_HEARTBEAT = 65_535
"""Seconds: AMQP has two bytes for it."""


def connection_of(options: Options) -> pika.ConnectionParameters:
    """Connection parameters for pika, from the options of a connection; they include the password."""
    host = options[HOST] or HOST.otherwise
    tls = TlsFiles.of(options)
    heartbeat = options[HEARTBEAT]
    if heartbeat > _LONGEST_HEARTBEAT:
        message = f"option: heartbeat={heartbeat} is in seconds, of which AMQP takes {_LONGEST_HEARTBEAT} at most."
        raise AnalysisError(message)
    return pika.ConnectionParameters(
        host=host,
        port=options[PORT] or (5671 if tls else 5672),
        virtual_host=options[VIRTUAL_HOST] or VIRTUAL_HOST.otherwise,
        credentials=pika.PlainCredentials(options[USER] or USER.otherwise, options[PASSWORD] or "guest"),
        ssl_options=pika.SSLOptions(tls.context(), host) if tls else None,
        heartbeat=heartbeat,
        client_properties={"connection_name": "sparkjet"},
    )


def cause(error: BaseException) -> BaseException:
    """The underlying failure, if pika reports the path to it."""
    if isinstance(error, AMQPConnectionWorkflowFailed):
        error = error.exceptions[-1]
    return error.exception if isinstance(error, AMQPConnectorPhaseErrorBase) else error


def is_refused(error: BaseException) -> bool:
    """Whether the broker refuses this user every time: a wrong password, a virtual host that is not the user's.

    False if it has reached its limit of connections, or the connection was lost at login.
    """
    said = _SAID.search(str(error)) if isinstance(error, _PROBABLE) else None
    if said is None:
        return False
    return int(said[1]) == _ACCESS_REFUSED or (int(said[1]) == _NOT_ALLOWED and " limit " not in said[2])


def explain(connection: pika.ConnectionParameters, error: BaseException) -> str:
    """An error as text: what failed, where and for which user, without the password."""
    error = cause(error)
    where = f"{connection.host}:{connection.port}"
    if isinstance(error, _SILENT):
        return f"{where}: nothing that speaks AMQP has answered within {connection.stack_timeout:g} s"
    if not isinstance(error, _PROBABLE):
        return f"{where}: {error!r}"
    said = _SAID.search(str(error))
    if said is None:
        return f"{where}: the connection was lost at the login: {error}"
    if is_refused(error):
        user, host = connection.credentials.username, connection.virtual_host
        return f"user {user!r} may not connect to virtual host {host!r}: {said[2]}"
    return f"{where}: {said[2]}"


def abandon(connection: pika.SelectConnection) -> None:
    """End a connection at once, and have its callback called: its own ``close()`` would wait for a silent broker."""
    connection._terminate_stream(TimeoutError("the broker does not answer"))  # noqa: SLF001 - as pika's heartbeat does
