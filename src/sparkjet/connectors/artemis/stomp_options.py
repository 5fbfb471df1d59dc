"""The options by which the source and the sink of ActiveMQ Artemis connect."""

from __future__ import annotations

from sparkjet.connectors.artemis.stomp import StompAddress, TlsFiles
from sparkjet.errors import AnalysisError
from sparkjet.options import Options


def address_of(options: Options) -> StompAddress:
    """Where the broker is, and who logs in; does not connect."""
    return StompAddress(
        options.get("host") or "localhost",
        options.number("port", default=61616),
        options.get("user") or "",
        options.get("password") or "",
        _tls(options),
        options.number("heartbeat", default=60),
    )


def _tls(options: Options) -> TlsFiles | None:
    files = [options.get(name) for name in ("caFile", "certFile", "keyFile")]
    if options.flag("tls"):
        found = TlsFiles(*files)
        try:
            found.context()
        except OSError as error:
            message = f"option: caFile, certFile or keyFile cannot be used: {error}"
            raise AnalysisError(message) from error
        return found
    if any(files):
        name = next(name for name in ("caFile", "certFile", "keyFile") if options.get(name))
        message = f'option: {name} is of TLS: set option("tls", True), or leave it out.'
        raise AnalysisError(message)
    return None
