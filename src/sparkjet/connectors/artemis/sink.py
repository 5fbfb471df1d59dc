"""The ActiveMQ Artemis sink: the checks before the start, and how an epoch is stored and published."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING
from uuid import uuid4

from pyspark.sql import Observation
from pyspark.sql import functions as F

from sparkjet.connectors.artemis.columns import COLUMNS, faults, frames, messages
from sparkjet.connectors.artemis.markers import PREFIX, Marker, Markers, queue_of
from sparkjet.connectors.artemis.publishing import TRANSACTION, connected, is_published, newest_markers, publish
from sparkjet.connectors.artemis.stomp import RefusedError
from sparkjet.connectors.artemis.stomp_frames import Frame
from sparkjet.errors import AnalysisError, LostTransactionError, RefusedRowsError, SinkError
from sparkjet.sinks.copies import origin
from sparkjet.sinks.naming import prefix_of
from sparkjet.sinks.outbox import Outbox
from sparkjet.sinks.outbox_rows import batches_of, count_of
from sparkjet.sinks.protocol import Guarantee, Handle, Later, TransactionId, Unknown
from sparkjet.storage.written import metrics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from sparkjet.connectors.artemis.sink_settings import ArtemisSinkSettings
    from sparkjet.storage.directory import Directory


class ArtemisSink(Outbox):
    """Sends the rows of each epoch as messages to a queue or a topic, exactly once.

    The rows wait in the outbox for the decision. Then the driver sends them in broker transactions, each of which also
    has a message for a queue of sparkjet's own: the marker, by which the broker knows what was published. Its duplicate
    detection refuses a second transaction with the same marker.

    Args:
        settings: The parsed options.
    """

    guarantee = Guarantee.EXACTLY_ONCE

    def __init__(self, settings: ArtemisSinkSettings) -> None:
        super().__init__()
        self._settings = settings

    def check(self, schema: StructType) -> None:
        """See :meth:`Sink.check`; tries everything that an epoch does.

        A queue that the broker creates automatically may stay, if the broker does not remove empty ones.
        """
        COLUMNS.check(schema)
        probe(self._settings)

    def prepare(self, rows: DataFrame, transaction: TransactionId) -> Handle | None:
        """See :meth:`Sink.prepare`."""
        noticed, wrong = Observation(), faults(rows.schema)
        counts = [F.count_if(condition).alias(f"fault{n}") for n, (_, condition) in enumerate(wrong)]
        # If decided, rows that the broker refuses would fail the query at every start.
        watched = rows.observe(noticed, F.count(F.lit(1)).alias("rows"), *counts)
        handle = super().prepare(messages(watched), transaction)
        found = metrics(noticed, f"{self._settings.destination!r}", SinkError)
        for number, (fault, _) in enumerate(wrong):
            if found.get(f"fault{number}"):
                raise RefusedRowsError(f"artemis: {fault}, in {found[f'fault{number}']} rows of the epoch.")
        if handle is None:
            return None
        settings = self._settings
        gid = prefix_of(transaction.query, transaction.sink, transaction).rstrip("/")
        to = {"destination": settings.destination, "routing": settings.routing}
        return handle | {"query": transaction.query, "gid": gid, "most": settings.most, **to, **origin(transaction)}

    def deliver(self, entry: Directory, handle: Handle) -> None:
        """See :meth:`Outbox.deliver`; runs on the driver."""
        stored = count_of(entry, handle)
        if stored != handle["rows"]:
            message = (
                f"Epoch {handle['epoch']} was decided with {handle['rows']} rows for {handle['destination']!r}, but "
                f"the outbox has {stored}. Nothing of the epoch was published. Restore the outbox."
            )
            raise LostTransactionError(message)
        publish(self._settings.address, handle, _frames(entry, handle))

    def has_arrived(self, handle: Handle) -> bool:
        """See :meth:`Outbox.has_arrived`: the markers are committed with the messages."""
        return is_published(self._settings.address, handle)

    def published_after(self, newest: TransactionId, handle: Handle | None) -> Later:
        """See :meth:`Sink.published_after`."""
        found = newest_markers(self._settings.address, newest.query, newest.sink)
        epoch = max((marker.epoch for marker in found), default=0)
        if epoch <= newest.epoch:
            marked = super().published_after(newest, handle)
            return None if marked is Unknown.UNKNOWN else marked
        return (
            f"the queue {queue_of(newest.query, newest.sink)} in Artemis says that epoch {epoch} was published. "
            f"Restore the newest copy of the home. To go on from epoch {newest.epoch} instead, delete the address of "
            "that queue, not only its messages: the broker would refuse what it takes for published. Later epochs are "
            "then computed and sent again, so first remove what they have sent."
        )


def _frames(entry: Directory, handle: Handle) -> Iterator[Frame]:
    fixed = {
        "destination": handle["destination"],
        "destination-type": handle["routing"],
        "persistent": "true",
        "transaction": TRANSACTION,
    }
    for batch in batches_of(entry, handle):
        yield from frames(batch, fixed)


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
