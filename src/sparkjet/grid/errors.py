"""What members of a grid tell each other, and clients, in errors."""

from __future__ import annotations

from sparkjet.errors import StorageError


class QuorumLostError(StorageError):
    """This member is cut off from the majority, or was removed by it."""


class StaleStateError(StorageError):
    """The cluster has changed since the state that a request was made with."""
