"""The format ``postgres``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkjet.connectors.format import SinkFormat, Target, extra
from sparkjet.connectors.postgres.options import OPTIONS

if TYPE_CHECKING:
    from sparkjet.sinks.protocol import Sink


def _sink(target: Target) -> Sink:
    with extra("postgres"):
        from sparkjet.connectors.postgres.settings import PostgresSettings  # noqa: PLC0415 - the extra is optional
        from sparkjet.connectors.postgres.sink import PostgresSink  # noqa: PLC0415 - as above
    return PostgresSink(PostgresSettings.of(target.options))


SINK = SinkFormat("postgres", _sink, OPTIONS, reads_once=True)
