"""Trial of what an epoch does to the broker, before the start."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import uuid4

from sparkjet.connectors.artemis.markers import PREFIX, Marker, Markers
from sparkjet.connectors.artemis.publishing import TRANSACTION, connected
from sparkjet.connectors.artemis.stomp import RefusedError
from sparkjet.connectors.artemis.stomp_frames import Frame
from sparkjet.errors import AnalysisError, SinkError

if TYPE_CHECKING:
    from sparkjet.connectors.artemis.sink_settings import ArtemisSinkSettings

_PROBE = ("probe", "start")
"""Used as query and sink: always the same, as not every broker removes empty queues."""
_BEGIN, _COMMIT, _ABORT = (Frame(each, {"transaction": TRANSACTION}) for each in ("BEGIN", "COMMIT", "ABORT"))


def probe(settings: ArtemisSinkSettings) -> None:
    """Send to the destination and take it back; commit a marker, and see a second one of the same name refused."""
    trial = Marker(1, uuid4().hex, 0)
    try:
        with connected(settings.address) as connection:
            to = {"destination": settings.destination, "destination-type": settings.routing}
            connection.confirm([_BEGIN, Frame("SEND", {**to, "transaction": TRANSACTION})])
            connection.confirm([_ABORT])
            markers = Markers(connection, *_PROBE)
            # Read to the end: a broker removes a queue that nobody reads, perhaps with the first of the two markers.
            markers.read()
            connection.confirm([_BEGIN, markers.frame(trial, TRANSACTION), _COMMIT])
            detects = _refuses_a_second(settings, trial)
            markers.release()
        with connected(settings.address) as connection:
            Markers(connection, *_PROBE).read(keep=False)
    except SinkError as error:
        message = (
            f'start: format("artemis") cannot use {settings.destination!r}. {error} The user needs "send" there, and '
            f'"send", "consume", "createAddress" and "createDurableQueue" of {PREFIX}#.'
        )
        raise AnalysisError(message) from error
    if not detects:
        message = (
            f"artemis: {settings.address} does not detect duplicates, without which two drivers of a query could both "
            "send an epoch. Set its id-cache-size to 1000 or more."
        )
        raise AnalysisError(message)


def _refuses_a_second(settings: ArtemisSinkSettings, trial: Marker) -> bool:
    try:
        with connected(settings.address) as connection:
            marker = Markers(connection, *_PROBE).frame(trial, TRANSACTION)
            connection.confirm([_BEGIN, marker, _COMMIT])
    except SinkError as error:
        if isinstance(error.__cause__, RefusedError):
            return True
        raise
    return False
