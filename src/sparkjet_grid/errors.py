"""What members of a grid tell each other, and clients, in errors: each names the value, the option and the way out."""

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
    """An error with a code that stays the same in all versions; the message begins with it."""

    condition: ClassVar[str]

    def __str__(self) -> str:
        """The condition and the text; where the text quotes another error, that one's cause has its condition."""
        return f"[{self.condition}] {_CODE.sub('', super().__str__())}"


class AnalysisError(_ConditionError, ValueError):
    """What was asked for cannot be done as it is written; nothing has been read or written."""

    condition = "SPARKJET_ANALYSIS"


class StorageError(_ConditionError):
    """A member, or the control plane behind it, cannot keep what it should."""

    condition = "SPARKJET_STORAGE"


def derive(analysis: type[ValueError], storage: type[Exception]) -> None:
    """Have the errors of the grid be errors of a host too, as sparkjet has it for all that it raises.

    A host that translated them instead would have to do so at each of its doors, and would lose their attributes. The
    grid cannot name the host's classes itself, as it works without one. To be called before any error is caught by the
    host's classes, and may be called again.

    Args:
        analysis: What an :class:`AnalysisError` is from now on.
        storage: What a :class:`StorageError`, and with it a :class:`GridError`, is from now on.
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
