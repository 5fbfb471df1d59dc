"""The format ``jdbc``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkjet.connectors.format import SinkFormat, Target
from sparkjet.connectors.jdbc.settings import OPTIONS, JdbcSettings

if TYPE_CHECKING:
    from sparkjet.sinks.protocol import Sink


def _sink(target: Target) -> Sink:
    from sparkjet.connectors.jdbc.sink import JdbcSink  # noqa: PLC0415 - on use only

    return JdbcSink(JdbcSettings.of(target.options), target.session)


SINK = SinkFormat("jdbc", _sink, OPTIONS, reads_once=True)
