"""The parts of a decided epoch: when a part is published, when it is published again, and when not; no Kafka here.

Spark ships this module to its workers, where sparkjet need not be installed, so it imports nothing from sparkjet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

Ends = Mapping[tuple[str, int], int]
"""Offsets by topic and partition, at which something ends."""
INIT, ENDS, WAIT, READ, BEGIN, SEND, MARK, COMMIT, FENCED = (
    "init", "ends", "wait", "read", "begin", "send", "mark", "commit", "fenced",
)  # fmt: skip
"""The steps of a publisher; each is named right before it is taken."""
MOST_FENCED = 10
"""How often a publisher takes its part back from another one before it gives up."""


class ProducerFencedError(Exception):
    """Another publisher has initialized the transactional id; the open transaction is rolled back."""


class PublishError(Exception):
    """A part is not published; the missing rows can be published later."""


class ForeignMarkerError(PublishError):
    """The marker was written by another copy of the home."""


@dataclass(frozen=True)
class Marker:
    """How many rows of a part are published, as written in the transaction that publishes the last of them.

    Attributes:
        epoch: The epoch.
        name: Identity of the decided transaction: takeover, epoch, attempt and run.
        run: The run that decided it; empty where it is not known.
        rows: Number of the part's rows that are published, counted from its first row.
    """

    epoch: int
    name: str
    run: str
    rows: int


@dataclass(frozen=True)
class Part:
    """Rows that one publisher at a time writes, in an order that never changes.

    Attributes:
        epoch: The epoch.
        name: As in :class:`Marker`.
        run: As in :class:`Marker`.
        since: The epoch after which the driver that decided the part had started.
        rows: Number of rows in the part.
    """

    epoch: int
    name: str
    run: str
    since: int
    rows: int

    def published(self, marker: Marker | None) -> int:
        """The number of rows of the part that are published, according to the newest marker with its number."""
        if marker is None:
            return 0
        if marker.name == self.name:
            return marker.rows
        is_of_another_run = bool(self.run and marker.run) and marker.run != self.run and marker.epoch > self.since
        if is_of_another_run or marker.epoch == self.epoch:
            message = (
                f"epoch {marker.epoch} was published as {marker.name!r}, and epoch {self.epoch} was decided as "
                f"{self.name!r}: another copy of this home is running."
            )
            raise ForeignMarkerError(message)
        # Epochs are published in order: a later one means that a successor has published this one.
        return self.rows if marker.epoch > self.epoch else 0


class Brokers(Protocol):
    """The operations that a publisher needs from the brokers, for one part. Any may fail, with or without effect."""

    known: tuple[Marker | None] | None
    """The newest marker, if the producer is initialized and has seen it; None if it has yet to be determined."""

    def init(self) -> None:
        """Create a producer: roll back what is open under the part's transactional id, and fence whoever opened it."""

    def marker_ends(self) -> Ends:
        """The ends of the partitions that hold the markers, open transactions included."""

    def data_ends(self) -> Ends:
        """The ends of all partitions that may have rows of the part, open transactions included."""

    def behind(self, ends: Ends) -> tuple[str, int] | None:
        """A partition that read_committed readers cannot yet read up to its end; may take a moment."""

    def markers(self, ends: Ends) -> Sequence[Marker | None]:
        """The newest marker of each key, the part's own first, from a read_committed reader that is at the ends."""

    def begin(self) -> None:
        """Begin a transaction."""

    def send(self, start: int) -> Iterator[int]:
        """Hand over the part's rows, starting at row ``start``; yields how many, after each slice."""

    def mark(self, marker: Marker) -> None:
        """Wait until the brokers have the rows and the marker, directly after the last marker that was read.

        Two copies of a home have separate transactional ids, which do not fence each other: here one of them fails.

        Raises:
            PublishError: Something else has been written there in the meantime.
        """

    def commit(self) -> None:
        """Commit."""


def publish(
    part: Part,
    brokers: Brokers,
    clock: Callable[[], float],
    *,
    longest: float,
    patience: float,
    again: bool = True,
) -> Iterator[str]:
    """Publish the unpublished rows of a part; a generator that names each step right before taking it.

    Any number may run at once for the same part: one that was fenced reads the marker, and continues.
    """
    fenced = 0
    while True:
        try:
            yield from _publish(part, brokers, clock, longest, patience, again=again or fenced > 0)
        except ProducerFencedError as error:
            fenced += 1
            if fenced > MOST_FENCED:
                message = (
                    f"{part.name}: other publishers of the same part have fenced this one {fenced} times, or brokers "
                    f"have rolled it back after kafka.transaction.timeout.ms: raise that if they are slow ({error})."
                )
                raise PublishError(message) from error
            yield FENCED
        else:
            return


def _publish(
    part: Part, brokers: Brokers, clock: Callable[[], float], longest: float, patience: float, *, again: bool
) -> Iterator[str]:
    if brokers.known is None:
        # In this order: only once others are fenced can nothing be added that the reader would not see.
        yield INIT
        brokers.init()
        yield ENDS
        ends = brokers.marker_ends()
        yield from _reached(ends, brokers, clock, patience)
        yield READ
        marker, *others = brokers.markers(ends)
        for each in others:
            part.published(each)
        brokers.known = (marker,)
        is_begun = marker is not None and marker.name == part.name
        if part.published(marker) < part.rows and (again or is_begun):
            yield from _ended(brokers, clock, patience)
    done = part.published(brokers.known[0])
    while done < part.rows:
        yield BEGIN
        # Whatever happens from here on, another attempt must read the marker.
        brokers.known, before = None, done
        brokers.begin()
        began = clock()
        for count in brokers.send(done):
            done += count
            if clock() - began >= longest:
                break
            yield SEND
        if done == before:
            raise PublishError(f"{part.name}: {part.rows} rows were decided, and there are {done}.")
        marker = Marker(part.epoch, part.name, part.run, done)
        yield MARK
        brokers.mark(marker)
        yield COMMIT
        brokers.commit()
        if done < part.rows:
            yield from _ended(brokers, clock, patience)
        brokers.known = (marker,)


def _ended(brokers: Brokers, clock: Callable[[], float], patience: float) -> Iterator[str]:
    """Wait for the end markers of the producer's transactions: the next one would share an end that is missing."""
    yield ENDS
    yield from _reached({**brokers.data_ends(), **brokers.marker_ends()}, brokers, clock, patience)


def _reached(ends: Ends, brokers: Brokers, clock: Callable[[], float], patience: float) -> Iterator[str]:
    until = clock() + patience
    yield WAIT
    while (behind := brokers.behind(ends)) is not None:
        if clock() >= until:
            topic, number = behind
            message = (
                f"a transaction is open in {topic}-{number}, and readers have not reached offset {ends[behind]} within "
                f"{patience:.0f} s, so it cannot be known what is published there. Nothing was published. "
                "kafka-transactions.sh find-hanging and describe-producers show whose it is; start again once it has "
                "ended."
            )
            raise PublishError(message)
        yield WAIT
