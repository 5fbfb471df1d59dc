"""What members of a grid tell each other, and clients, in errors."""

from __future__ import annotations

from typing_extensions import Self

from sparkjet.errors import StorageError


class QuorumLostError(StorageError):
    """This member is cut off from the majority, was removed by it, or is no member."""


class RemovedError(QuorumLostError):
    """The cluster's state does not name this member any more: nothing that it holds is the newest."""


class StaleStateError(StorageError):
    """The cluster has changed since the state that a request was made with."""

    @classmethod
    def at(cls, version: int, newest: int) -> Self:
        """The error of a request made with one version where there is another."""
        return cls(f"The cluster's state {version} has been replaced by {newest}: ask again with that one.")
