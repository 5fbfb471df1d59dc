"""The options by which the source and the sink of ActiveMQ Artemis connect."""

from __future__ import annotations

from sparkjet.connectors.artemis.options import HOST, PORT, USER
from sparkjet.connectors.artemis.stomp import StompAddress, TlsFiles
from sparkjet.errors import AnalysisError
from sparkjet.options import CA_FILE, CERT_FILE, HEARTBEAT, KEY_FILE, PASSWORD, TLS, Options

_FILES = (CA_FILE, CERT_FILE, KEY_FILE)


def address_of(options: Options) -> StompAddress:
    """Where the broker is, and who logs in; does not connect."""
    return StompAddress(
        options[HOST] or HOST.otherwise,
        options[PORT],
        options[USER],
        options[PASSWORD] or "",
        _tls(options),
        options[HEARTBEAT],
    )


def _tls(options: Options) -> TlsFiles | None:
    if options[TLS]:
        found = TlsFiles(*(options[each] for each in _FILES))
        try:
            found.context()
        except OSError as error:
            raise AnalysisError(f"option: caFile, certFile or keyFile cannot be used: {error}") from error
        return found
    for option in _FILES:
        if not options[option]:
            continue
        raise AnalysisError(f'option: {option.name} is for TLS: set option("tls", True), or leave it out.')
    return None
