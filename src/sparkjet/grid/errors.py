"""What members of a grid tell each other, and clients, in errors."""

from __future__ import annotations

from collections.abc import Mapping

from typing_extensions import Self

from sparkjet.errors import StorageError


class GridError(StorageError):
    """A grid cannot do what it was asked for."""

    condition = "SPARKJET_GRID"


class QuorumLostError(GridError):
    """This member is cut off from the majority, was removed by it, or is no member."""

    condition = "SPARKJET_GRID.QUORUM_LOST"


class NoServerError(GridError):
    """This member cannot run a ZooKeeper server, or its server does not answer: others are to vote instead."""

    condition = "SPARKJET_GRID.NO_SERVER"


class RemovedError(QuorumLostError):
    """The cluster's state does not name this member any more: nothing that it holds is the newest."""

    condition = "SPARKJET_GRID.REMOVED"


class StaleStateError(GridError):
    """The cluster has changed since the state that a request was made with."""

    condition = "SPARKJET_GRID.STALE_STATE"

    @classmethod
    def at(cls, version: int, newest: int) -> Self:
        """The error of a request made with one version where there is another."""
        return cls(f"The cluster's state {version} has been replaced by {newest}: ask again with that one.")


class MovedError(GridError):
    """This member does not do that for this partition, or not yet: ask again with a newer state."""

    condition = "SPARKJET_GRID.MOVED"


class GridFullError(GridError):
    """A member would need more memory than its --max-memory; nothing of the entry was stored."""

    condition = "SPARKJET_GRID.FULL"


class DifferentContentError(GridError):
    """There is an entry of this name with another content, which stays."""

    condition = "SPARKJET_GRID.DIFFERENT_CONTENT"


class MissingEntriesError(GridError):
    """Entries are on none of the members that should have them."""

    condition = "SPARKJET_GRID.MISSING_ENTRIES"


class LostRowsError(MissingEntriesError):
    """Layers of a map, or chunks of a journal, are on none of the members that should have them."""

    condition = "SPARKJET_GRID.LOST_ROWS"


class FallenBehindError(GridError):
    """Rows of a journal are retained no more that a reader has not read.

    Attributes:
        asked: The offsets from which the reader wanted to go on, by partition.
        first: The first offsets that are retained, of the same partitions.
    """

    condition = "SPARKJET_GRID.FALLEN_BEHIND"

    def __init__(self, text: str, asked: Mapping[int, int], first: Mapping[int, int]) -> None:
        super().__init__(text)
        self.asked, self.first = dict(asked), dict(first)

    def __reduce__(self) -> tuple[type[Self], tuple[str, dict[int, int], dict[int, int]]]:
        # Otherwise a pool of processes waits for ever for the result of a reader that has raised it.
        return type(self), (self.args[0], self.asked, self.first)

    @property
    def rows(self) -> int:
        """How many rows are lost to the reader."""
        return sum(self.first[partition] - offset for partition, offset in self.asked.items())


class ReleasedError(GridError):
    """A version that was read is there no more: no lease is on it, or the map or journal was removed."""

    condition = "SPARKJET_GRID.RELEASED"


class MalformedError(GridError):
    """A request that no client of this version sends; nothing was done."""

    condition = "SPARKJET_GRID.MALFORMED"


class ForbiddenError(GridError):
    """The token is missing or wrong."""

    condition = "SPARKJET_GRID.FORBIDDEN"


class UnreachableError(GridError):
    """A member, or the control plane behind it, does not answer, or not in time."""

    condition = "SPARKJET_GRID.UNREACHABLE"
