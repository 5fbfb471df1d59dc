"""Requests: what members are asked for in one message, and what they answer."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from sparkjet_grid.cluster_state import ClusterState
from sparkjet_grid.messages import MOST, MOST_PARTITIONS, Count, HeldList, Keys, Message, Name, Partition, Text

LARGEST_TOKEN = (64 << 10) - 1
KeyText = Annotated[str, Meta(max_length=3 << 20)]


class GetState(Message, frozen=True):
    """Asks for the newest state that a member knows, once it is newer than this one or has waited in vain."""

    newer_than: Annotated[int, Meta(ge=-1)] = -1
    seconds: Annotated[float, Meta(ge=0, le=60)] = 0.0


class GetStatus(Message, frozen=True):
    """Asks how a member is; the answer is :class:`Status`."""


class Status(Message, frozen=True):
    """How a member is.

    Attributes:
        member: Its id.
        used: Bytes that its entries take.
        limit: How many they may take.
        entries: Their number.
        copying: Number of partitions that it does not yet have whole.
        voters: Ids of the members that vote.
        got: Number of entries that clients got from it.
        frozen: Whether it does nothing for others, as it is cut off from the majority.
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


class GetContacts(Message, frozen=True):
    """Asks what another member must know to join; the answer is a list of texts."""


class Ping(Message, frozen=True):
    """Asks whether a member answers; the answer is its id."""


class LooksGone(Message, frozen=True):
    """Asks whether nobody listens at a member any more, as seen from another one."""

    member: Text


class ListEntries(Message, frozen=True):
    """Asks for entries by :class:`Listed`, of partitions of which the member must be the primary.

    Attributes:
        prefix: That their names begin with.
        rows: Partitions, and the least versions of their rows that the member must know.
    """

    prefix: Text
    rows: Annotated[dict[Partition, Count], Meta(max_length=MOST_PARTITIONS)]


class Listed(Message, frozen=True):
    """Some of the entries that were asked for."""

    held: HeldList


class Verify(Message, frozen=True):
    """Asks which of some entries a member does not hold with this digest; the answer is :class:`Unheld`."""

    held: HeldList


class Unheld(Message, frozen=True):
    """Entries that a member does not hold."""

    keys: Keys


class Lookup(Message, frozen=True):
    """What is looked for in one partition of a map.

    Attributes:
        partition: The partition.
        layers: Names of its entries, the newest first.
        keys: Of each key its place in what the caller has asked for, its hash and its text.
    """

    partition: Partition
    layers: Annotated[list[Name], Meta(max_length=MOST)]
    keys: Annotated[list[tuple[Count, Count, KeyText]], Meta(max_length=MOST)]


class FindRows(Message, frozen=True):
    """Asks for the newest row of each key, by :class:`FoundRows`; no row for what no layer has.

    Attributes:
        columns: The key columns.
        lookups: One for each partition.
    """

    columns: Annotated[list[Name], Meta(min_length=1, max_length=1000)]
    lookups: Annotated[list[Lookup], Meta(max_length=MOST_PARTITIONS)]


class FoundRows(Message, frozen=True):
    """Some of the rows that were asked for.

    Attributes:
        places: Of the key of each row.
        rows: Arrow's stream of them, as layers have them; empty if there are none.
        lacking: Partitions of which the member lacks a layer; nothing was looked for there.
    """

    places: Annotated[list[Count], Meta(max_length=MOST)]
    rows: bytes
    lacking: Annotated[list[Partition], Meta(max_length=MOST_PARTITIONS)]


class Remove(Message, frozen=True):
    """Asks to remove entries by their names, and those below a prefix; the answer is the version of the state."""

    keys: Keys
    prefix: Name | None = None


class PutSlot(Message, frozen=True):
    """Asks to write a slot, see :class:`~sparkjet_grid.control.Control`; the answer is whether it is the token's."""

    name: Name
    token: Annotated[bytes, Meta(max_length=LARGEST_TOKEN)]
    version: Count


class GetSlot(Message, frozen=True):
    """Asks for the token of a slot; the answer is :class:`SlotToken`."""

    name: Name


class SlotToken(Message, frozen=True):
    """The token of a slot; None if it is free."""

    token: Annotated[bytes, Meta(max_length=LARGEST_TOKEN)] | None


class GetLastSlot(Message, frozen=True):
    """Asks for the last slot of a directory; the answer is :class:`LastSlot`."""

    directory: Text


class LastSlot(Message, frozen=True):
    """A slot with its token; None if there is none."""

    name: Name | None
    token: Annotated[bytes, Meta(max_length=LARGEST_TOKEN)] = b""


class GetSlots(Message, frozen=True):
    """Asks for the names of the slots below a directory; the answer is a list of texts."""

    directory: Text


class RemoveSlots(Message, frozen=True):
    """Asks to remove slots; the answer is their number."""

    names: Annotated[list[Name], Meta(max_length=MOST)]


class Reform(Message, frozen=True):
    """Asks a member that has lost its majority to go on without it, as another cluster; the answer is its state.

    Attributes:
        survivors: Ids of the members that are left, the one that is asked among them.
    """

    survivors: Annotated[list[Text], Meta(min_length=1, max_length=1000)]


REQUESTS: dict[str, type[Message]] = {
    kind.__name__: kind
    for kind in (
        GetState,
        GetStatus,
        Ping,
        LooksGone,
        ListEntries,
        Verify,
        FindRows,
        Remove,
        PutSlot,
        GetSlot,
        GetLastSlot,
        GetSlots,
        RemoveSlots,
        GetContacts,
        Reform,
    )
}
"""What a member is asked for in an action, by the name of the action."""
