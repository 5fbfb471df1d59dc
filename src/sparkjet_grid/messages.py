"""Messages between clients and members: typed, bounded, and never anything that runs."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

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
"""Bytes of a message beside record batches."""
MOST = 50_000
"""Entries that one message names."""
LONGEST_NAME = 1024
MOST_PARTITIONS = 100_000
SLOWEST = 600.0
"""Seconds that one call may take."""

Name = Annotated[str, Meta(min_length=1, max_length=LONGEST_NAME)]
Text = Annotated[str, Meta(max_length=LONGEST_NAME)]
Partition = Annotated[int, Meta(ge=0, lt=MOST_PARTITIONS)]
Count = Annotated[int, Meta(ge=0, lt=1 << 62)]
Digest = Annotated[str, Meta(max_length=100)]
Keys = Annotated[list[Key], Meta(max_length=MOST)]


class Message(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """What is sent in one piece."""


class Held(Message, frozen=True):
    """An entry that a member holds, or should hold."""

    partition: Partition
    name: Name
    rows: Count
    size: Count
    digest: Digest

    @property
    def key(self) -> Key:
        """Where it is."""
        return Key(self.partition, self.name)


HeldList = Annotated[list[Held], Meta(max_length=MOST)]


class Put(Message, frozen=True):
    """Entries follow, all of one schema; the answer is :class:`HeldNow`.

    Attributes:
        sender: Id of the member that hands on what it holds as the primary; empty for a client.
        seconds: After which the sender waits no longer.
    """

    sender: Text
    seconds: Annotated[float, Meta(gt=0, le=SLOWEST)]


class Part(Message, frozen=True):
    """Goes with each record batch that is put.

    Attributes:
        partition: Of the entry.
        name: Of the entry.
        batches: How many it has; they follow each other.
        version: Of the partition's row at its primary; 0 from a client.
        rows: Of the entry, as its primary has it; 0 from a client.
        digest: The same; empty from a client.
    """

    partition: Partition
    name: Name
    batches: Annotated[int, Meta(ge=1, le=1_000_000)]
    version: Count = 0
    rows: Count = 0
    digest: Digest = ""


class HeldNow(Message, frozen=True):
    """Entries that are now on every replica of their partition, or on the one that answers."""

    held: HeldList


class Get(Message, frozen=True):
    """Asks for entries: of those that the member holds, the ones with the schema of the first come.

    Attributes:
        keys: Where they are.
        sender: Id of the member that copies; empty for a client.
    """

    keys: Keys
    sender: Text = ""


class Piece(Message, frozen=True):
    """Goes with each record batch that is got: the position of the entry in what was asked for."""

    position: Count


class Refusal(Message, frozen=True):
    """Why a call was refused: the name of an error of this package, and its text."""

    kind: str
    text: str


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
"""Errors that a member answers with."""

encoded = msgspec.msgpack.Encoder().encode


def decoded(content: Any, kind: type[T]) -> T:
    """A message from its bytes."""
    if content is None or len(content) > LARGEST:
        message = f"{kind} is missing, or has more than {LARGEST} bytes."
        raise MalformedError(message)
    try:
        return msgspec.msgpack.decode(content, type=known(kind))
    # Deeply nested input ends in a RecursionError.
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        message = f"not a message of a grid ({getattr(kind, '__name__', kind)}): {str(error)[:200]}."
        raise MalformedError(message) from error
