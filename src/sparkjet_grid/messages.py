"""Messages between clients and members: typed, bounded, and never code."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from sparkjet_grid.cluster_state import ClusterState
from sparkjet_grid.entries import Key
from sparkjet_grid.errors import (
    DifferentContentError,
    ForbiddenError,
    GridError,
    GridFullError,
    MalformedError,
    MissingEntriesError,
    MovedError,
    QuorumLostError,
    StaleStateError,
    UnreachableError,
)
from sparkjet_grid.known_types import known

T = TypeVar("T")

LARGEST = 16 << 20
"""Bytes of a message, without record batches."""
MOST = 50_000
"""Entries that one message may name."""
LONGEST_NAME = 1024
LARGEST_TOKEN = (64 << 10) - 1
MOST_PARTITIONS = 100_000
SLOWEST = 600.0
"""Seconds that one call may take."""

Name = Annotated[str, Meta(min_length=1, max_length=LONGEST_NAME)]
Text = Annotated[str, Meta(max_length=LONGEST_NAME)]
Partition = Annotated[int, Meta(ge=0, lt=MOST_PARTITIONS)]
Count = Annotated[int, Meta(ge=0, lt=1 << 62)]
Digest = Annotated[str, Meta(max_length=100)]
KeyText = Annotated[str, Meta(max_length=3 << 20)]
Keys = Annotated[list[Key], Meta(max_length=MOST)]


class Message(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """A message."""


class Held(Message, frozen=True):
    """An entry that a member holds, or should hold; a manifest is a list of these."""

    partition: Partition
    name: Name
    rows: Count
    size: Count
    digest: Digest

    @property
    def key(self) -> Key:
        """The key of the entry."""
        return Key(self.partition, self.name)


HeldList = Annotated[list[Held], Meta(max_length=MOST)]


class Put(Message, frozen=True):
    """Begins a call that puts entries, all of one schema; the answer is :class:`HeldNow`.

    Attributes:
        sender: Id of the primary that forwards what it holds; empty for a client.
        seconds: How long the sender waits.
    """

    sender: Text
    seconds: Annotated[float, Meta(gt=0, le=SLOWEST)]


class Part(Message, frozen=True):
    """Accompanies each record batch that is put.

    Attributes:
        partition: Of the entry.
        name: Of the entry.
        batches: Number of its batches, which are consecutive.
        version: Of the partition's row, at its primary; 0 from a client.
        rows: Of the entry, at its primary; 0 from a client.
        digest: Of the entry, at its primary; empty from a client.
    """

    partition: Partition
    name: Name
    batches: Annotated[int, Meta(ge=1, le=1_000_000)]
    version: Count = 0
    rows: Count = 0
    digest: Digest = ""


class HeldNow(Message, frozen=True):
    """Entries that are now on every replica of their partition, or on the backup that answers."""

    held: HeldList


class Get(Message, frozen=True):
    """Asks for entries; of those that the member holds, it sends the ones with the schema of the first.

    Attributes:
        keys: Their keys.
        sender: Id of the member that copies; empty for a client.
    """

    keys: Keys
    sender: Text = ""


class Piece(Message, frozen=True):
    """Accompanies each record batch that is sent: the position of its entry in the request."""

    position: Count


class Refusal(Message, frozen=True):
    """Why a call was refused: the name of an error of this package, and its text."""

    kind: str
    text: str


class Request(Message, frozen=True):
    """A request to a member in one message; the name of its class is that of the action."""


class GetState(Request, frozen=True):
    """Asks for the newest state that a member knows, as soon as it is newer than this one, or the time is over."""

    newer_than: Annotated[int, Meta(ge=-1)] = -1
    seconds: Annotated[float, Meta(ge=0, le=60)] = 0.0


class GetStatus(Request, frozen=True):
    """Asks for the status of a member; the answer is :class:`Status`."""


class Status(Message, frozen=True):
    """The status of a member.

    Attributes:
        member: Its id.
        used: Bytes that its entries take.
        limit: How many they may take.
        entries: Their number.
        copying: Number of partitions that it has yet to copy.
        voters: Ids of the members that vote.
        got: Number of entries that clients have fetched from it.
        frozen: Whether it serves no requests, as it is cut off from the majority.
        state: Of the cluster, the newest that it has seen.
    """

    member: str
    used: int
    limit: int
    entries: int
    copying: int
    voters: list[str]
    got: int
    frozen: bool
    state: ClusterState


class GetContacts(Request, frozen=True):
    """Asks for the addresses that another member needs to join; the answer is a list of texts."""


class Ping(Request, frozen=True):
    """Asks whether a member answers; the answer is its id."""


class LooksGone(Request, frozen=True):
    """Asks a member whether another one refuses its connections."""

    member: Text


class ListEntries(Request, frozen=True):
    """Asks for the entries of partitions whose primary the member is; the answers are :class:`Listed`.

    Attributes:
        prefix: Of their names.
        rows: By partition, the least version of its row that the member must know.
    """

    prefix: Text
    rows: Annotated[dict[Partition, Count], Meta(max_length=MOST_PARTITIONS)]


class Listed(Message, frozen=True):
    """Some of the requested entries."""

    held: HeldList


class Verify(Request, frozen=True):
    """Asks which of some entries a member does not hold with this digest; the answer is :class:`Unheld`."""

    held: HeldList


class Unheld(Message, frozen=True):
    """Entries that a member does not hold."""

    keys: Keys


class Lookup(Message, frozen=True):
    """A search for keys in one partition of a map.

    Attributes:
        partition: The partition.
        layers: Names of its layers, the newest first.
        keys: The place of each key in the caller's list, its hash and its text.
    """

    partition: Partition
    layers: Annotated[list[Name], Meta(max_length=MOST)]
    keys: Annotated[list[tuple[Count, Count, KeyText]], Meta(max_length=MOST)]


class FindRows(Request, frozen=True):
    """Asks for the newest row of each key, if there is one; the answers are :class:`FoundRows`.

    Attributes:
        columns: The key columns.
        lookups: One for each partition.
    """

    columns: Annotated[list[Name], Meta(min_length=1, max_length=1000)]
    lookups: Annotated[list[Lookup], Meta(max_length=MOST_PARTITIONS)]


class FoundRows(Message, frozen=True):
    """Some of the requested rows.

    Attributes:
        places: The place of each row's key.
        rows: The rows of layers as an Arrow stream; empty if there are none.
        lacking: Partitions of which the member lacks a layer, and which it has not searched.
    """

    places: Annotated[list[Count], Meta(max_length=MOST)]
    rows: bytes
    lacking: Annotated[list[Partition], Meta(max_length=MOST_PARTITIONS)]


class Remove(Request, frozen=True):
    """Asks to remove entries by key, and by a prefix of names; the answer is the version of the member's state."""

    keys: Keys
    prefix: Name | None = None


class PutSlot(Request, frozen=True):
    """Asks to write a slot, see :class:`~sparkjet_grid.control.Control`; the answer is whether it has this token."""

    name: Name
    token: Annotated[bytes, Meta(max_length=LARGEST_TOKEN)]
    version: Count


class GetSlot(Request, frozen=True):
    """Asks for the token of a slot; the answer is :class:`SlotToken`."""

    name: Name


class SlotToken(Message, frozen=True):
    """The token of a slot; None if it is free."""

    token: Annotated[bytes, Meta(max_length=LARGEST_TOKEN)] | None


class GetLastSlot(Request, frozen=True):
    """Asks for the last slot of a directory; the answer is :class:`LastSlot`."""

    directory: Text


class LastSlot(Message, frozen=True):
    """A slot with its token; None if there is none."""

    name: Name | None
    token: Annotated[bytes, Meta(max_length=LARGEST_TOKEN)] = b""


class GetSlots(Request, frozen=True):
    """Asks for the names of the slots below a directory; the answer is a list of texts."""

    directory: Text


class RemoveSlots(Request, frozen=True):
    """Asks to remove slots; the answer is their number."""

    names: Annotated[list[Name], Meta(max_length=MOST)]


class Reform(Request, frozen=True):
    """Asks a member to re-form its cluster without a majority; the answer is the new state.

    Attributes:
        survivors: Ids of the surviving members, including the one that is asked.
    """

    survivors: Annotated[list[Text], Meta(min_length=1, max_length=1000)]


REQUESTS = {kind.__name__: kind for kind in Request.__subclasses__()}
"""Requests by the names of their actions."""

ERRORS: dict[str, type[GridError]] = {
    kind.__name__: kind
    for kind in (
        DifferentContentError,
        ForbiddenError,
        GridFullError,
        MalformedError,
        MissingEntriesError,
        MovedError,
        QuorumLostError,
        StaleStateError,
        UnreachableError,
    )
}
"""Errors that members answer with, by name."""

encoded = msgspec.msgpack.Encoder().encode


def decoded(content: Any, kind: type[T]) -> T:
    """A message from its bytes."""
    if content is None or len(content) > LARGEST:
        raise MalformedError(f"{kind} is missing, or has more than {LARGEST} bytes.")
    try:
        return msgspec.msgpack.decode(content, type=known(kind))
    # Deeply nested input ends in a RecursionError.
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        message = f"not a message of a grid ({getattr(kind, '__name__', kind)}): {str(error)[:200]}."
        raise MalformedError(message) from error
