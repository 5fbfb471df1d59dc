"""Errors of the grid: each names the value, the option and the way out."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    # Python workers have sparkjet's errors, and so these, where nothing is installed.
    from typing_extensions import Self

_CODE = re.compile(r"\[SPARKJET_[A-Z_.]+\] ")


class _ConditionError(Exception):
    """An error whose message begins with a code, which is the same in all versions."""

    condition: ClassVar[str]

    def __str__(self) -> str:
        """The code and the text, without the code of an error that the text quotes."""
        return f"[{self.condition}] {_CODE.sub('', super().__str__())}"


class AnalysisError(_ConditionError, ValueError):
    """A request is invalid; nothing has been read or written."""

    condition = "SPARKJET_ANALYSIS"


class StorageError(_ConditionError):
    """A member, or its control plane, cannot store or read data."""

    condition = "SPARKJET_STORAGE"


def derive(analysis: type[ValueError], storage: type[Exception]) -> None:
    """Make the errors of the grid errors of a host package too, such as sparkjet.

    Translating them would have to happen wherever the host calls the grid, and would lose their attributes; and the
    grid cannot name the host's classes itself, as it works without one. Call it before any error is caught by the
    host's classes; calling it again is harmless.

    Args:
        analysis: The base of :class:`AnalysisError` from now on.
        storage: The base of :class:`StorageError`, and so of :class:`GridError`, from now on.
    """
    AnalysisError.__bases__ = (_ConditionError, analysis)
    StorageError.__bases__ = (_ConditionError, storage)


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint for a misspelt name: the closest known name, and all known names.

    >>> nearest("vists", ["visits", "boats"])
    'did you mean "visits"? Known: boats, visits'
    """
    known = sorted(known)
    listing = f"Known: {', '.join(known)}"
    match = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f'did you mean "{match[0]}"? {listing}' if match else listing


class GridError(StorageError):
    """A grid has refused or failed a request."""

    condition = "SPARKJET_GRID"


class QuorumLostError(GridError):
    """This member is cut off from the majority, has been removed by it, or has not joined."""

    condition = "SPARKJET_GRID.QUORUM_LOST"


class NoServerError(GridError):
    """This member cannot run a ZooKeeper server, or its server does not answer: others should vote instead."""

    condition = "SPARKJET_GRID.NO_SERVER"


class RemovedError(QuorumLostError):
    """The cluster's state no longer names this member: nothing that it holds is up to date."""

    condition = "SPARKJET_GRID.REMOVED"


class StaleStateError(GridError):
    """The cluster has changed since the state that a request was based on."""

    condition = "SPARKJET_GRID.STALE_STATE"

    @classmethod
    def at(cls, version: int, newest: int) -> Self:
        """The error of a request based on a version that has been replaced."""
        return cls(f"The cluster's state {version} has been replaced by {newest}: ask again with that one.")


class MovedError(GridError):
    """This member does not serve this request, or not yet: ask again with a newer state."""

    condition = "SPARKJET_GRID.MOVED"


class GridFullError(GridError):
    """An entry would exceed a member's --max-memory; nothing of it was stored."""

    condition = "SPARKJET_GRID.FULL"


class DifferentContentError(GridError):
    """There is an entry of this name with another content, which is kept."""

    condition = "SPARKJET_GRID.DIFFERENT_CONTENT"


class MissingEntriesError(GridError):
    """No member holds the entries that some of them should hold."""

    condition = "SPARKJET_GRID.MISSING_ENTRIES"


class LostRowsError(MissingEntriesError):
    """No member holds the layers of a map, or the chunks of a journal, that some of them should hold."""

    condition = "SPARKJET_GRID.LOST_ROWS"


class FallenBehindError(GridError):
    """A journal no longer retains rows that a reader has not read.

    Attributes:
        asked: The offsets at which the reader wanted to continue, by partition.
        first: The first retained offsets of the same partitions.
    """

    condition = "SPARKJET_GRID.FALLEN_BEHIND"

    def __init__(self, text: str, asked: Mapping[int, int], first: Mapping[int, int]) -> None:
        super().__init__(text)
        self.asked, self.first = dict(asked), dict(first)

    def __reduce__(self) -> tuple[type[Self], tuple[str, dict[int, int], dict[int, int]]]:
        # Otherwise a process pool whose worker has raised it hangs.
        return type(self), (self.args[0], self.asked, self.first)

    @property
    def rows(self) -> int:
        """The number of rows that the reader has missed."""
        return sum(self.first[partition] - offset for partition, offset in self.asked.items())


class ReleasedError(GridError):
    """A version that was being read is gone: no lease was held on it, or the map or journal was removed."""

    condition = "SPARKJET_GRID.RELEASED"


class MalformedError(GridError):
    """No client of this version sends such a request; nothing was done."""

    condition = "SPARKJET_GRID.MALFORMED"


class ForbiddenError(GridError):
    """The token is missing or wrong."""

    condition = "SPARKJET_GRID.FORBIDDEN"


class UnreachableError(GridError):
    """A member, or its control plane, does not answer in time."""

    condition = "SPARKJET_GRID.UNREACHABLE"
