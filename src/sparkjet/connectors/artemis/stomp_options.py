"""The options by which the source and the sink of ActiveMQ Artemis connect."""

from __future__ import annotations

from sparkjet.connectors.artemis.options import HOST, PORT, USER
from sparkjet.connectors.artemis.stomp import StompAddress
from sparkjet.connectors.tls_files import TlsFiles
from sparkjet.options import HEARTBEAT, PASSWORD, Options


def address_of(options: Options) -> StompAddress:
    """Where the broker is, and who logs in; does not connect."""
    return StompAddress(
        options[HOST] or HOST.otherwise,
        options[PORT],
        options[USER],
        options[PASSWORD] or "",
        TlsFiles.of(options),
        options[HEARTBEAT],
    )
