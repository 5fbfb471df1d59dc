"""How to connect to RabbitMQ, from the options of a source or a sink, and what a broker's refusal says."""

from __future__ import annotations

import logging
import ssl
from typing import TYPE_CHECKING

import pika
from pika.adapters.utils.connection_workflow import AMQPConnectionWorkflowFailed, AMQPConnectorPhaseErrorBase
from pika.exceptions import ProbableAccessDeniedError, ProbableAuthenticationError

from sparkjet.errors import AnalysisError

if TYPE_CHECKING:
    from sparkjet.options import Options

# Its errors are raised too; the log would repeat each with several tracebacks.
logging.getLogger("pika").setLevel(logging.CRITICAL)

REFUSALS = (ProbableAuthenticationError, ProbableAccessDeniedError)
"""Errors that come again with every attempt to connect: a wrong password, a virtual host that is not the user's."""
_TLS = ("caFile", "certFile", "keyFile")


def connection_of(options: Options) -> pika.ConnectionParameters:
    """How pika connects, by :data:`sparkjet.options.RABBITMQ_CONNECTION_OPTIONS`; it includes the password.

    Raises:
        AnalysisError: Naming an option that is invalid.
    """
    host = options.get("host") or "localhost"
    tls = options.flag("tls")
    for name in _TLS:
        if options.get(name) is not None and not tls:
            message = f'option: {name} is of TLS: set option("tls", True), or leave it out.'
            raise AnalysisError(message)
    return pika.ConnectionParameters(
        host=host,
        port=options.number("port", default=5671 if tls else 5672),
        virtual_host=options.get("virtualHost") or "/",
        credentials=pika.PlainCredentials(options.get("user") or "guest", options.get("password") or "guest"),
        ssl_options=pika.SSLOptions(_context(options), host) if tls else None,
        heartbeat=options.number("heartbeat", default=60),
        client_properties={"connection_name": "sparkjet"},
    )


def cause(error: BaseException) -> BaseException:
    """What has failed, where pika reports the way to it."""
    if isinstance(error, AMQPConnectionWorkflowFailed):
        error = error.exceptions[-1]
    return error.exception if isinstance(error, AMQPConnectorPhaseErrorBase) else error


def explain(connection: pika.ConnectionParameters, error: BaseException) -> str:
    """What failed, where and for whom, without the password."""
    error = cause(error)
    if isinstance(error, REFUSALS):
        return (
            f"user {connection.credentials.username!r} may not connect to virtual host "
            f"{connection.virtual_host!r}: {error!r}"
        )
    return f"{connection.host}:{connection.port}: {error!r}"


def _context(options: Options) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=options.get("caFile"))
        certificate = options.get("certFile")
        if certificate is not None:
            context.load_cert_chain(certificate, options.get("keyFile"))
    except (OSError, ssl.SSLError) as error:
        message = f"option: caFile, certFile or keyFile cannot be used: {error}"
        raise AnalysisError(message) from error
    return context
