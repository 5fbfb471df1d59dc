"""Changed queries: the differences between a query and its newest record, and what happens to the saved state."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sparkjet.engine.moved_sources import MovedSources
    from sparkjet.engine.refilling import Refill
    from sparkjet.snapshots.record import Fingerprint, Shown


class Consequence(Enum):
    """The effect of a change on saved state."""

    FREE = "free"
    """Nothing: results are those of the new query."""
    DROPPED = "its columns go"
    LACKING = "null before the cut"
    """Null in every window, session and key that has a row from before the start."""
    CAST = "cast"
    MERGED = "merged"
    """Groups that were separate are combined."""
    REFILLED = "refilled by replay"
    """The state is taken from a fork that has replayed the rows that were read."""
    RETIRED = "retired"
    """A source is no longer read, nor waited for."""
    ADDED = "read from where its options say"
    REFUSED = "refused"


@dataclass(frozen=True)
class Change:
    """One difference.

    Attributes:
        stage: The stage, or ``query`` if the difference is not in a stage.
        what: The part that differs.
        before: Its description in the record.
        now: Its description in the query.
        consequence: The effect on saved state.
        note: Further remarks: a caveat, or why it is refused and the way out.
    """

    stage: str
    what: str
    before: str
    now: str
    consequence: Consequence
    note: str = ""

    def __str__(self) -> str:
        note = f" ({self.note})" if self.note else ""
        return f"{self.stage}: {self.what}: {self.before} → {self.now}: {self.consequence.value}{note}"


@dataclass(frozen=True)
class MovedKey:
    """A key of the state.

    Attributes:
        number: Its number in the saved state; None for the constant that replaces missing keys.
        before: Its type in the saved state.
        now: Its type from now on.
    """

    number: int | None
    before: str
    now: str


@dataclass(frozen=True)
class StageUpgrade:
    """The conversion of saved rows of an aggregation to those of the changed one.

    Attributes:
        old_keys: Number of keys in the saved rows.
        keys: The keys.
        aggregates: What each one computes, and its number in the saved state; None for an added one.
        old_aggregates: Number of aggregates in the saved state.
        old_fields: The types of its accumulators' flat columns.
        old_lacking: The aggregates that lack rows in the saved state.
        lacking: Those that lack rows from now on.
        merges: Whether rows of several saved keys become rows of one key.
        longer: By how many microseconds the gap of sessions is longer.
    """

    old_keys: int
    keys: tuple[MovedKey, ...]
    aggregates: tuple[tuple[str, int | None], ...]
    old_aggregates: int
    old_fields: Mapping[str, str]
    old_lacking: tuple[int, ...]
    lacking: tuple[int, ...]
    merges: bool
    longer: int = 0


@dataclass(frozen=True)
class Upgrade:
    """How a query continues from a record of another one.

    Attributes:
        before: The fingerprint in the record of that one.
        now: The fingerprint in records of this one.
        unsaid: What their texts leave out.
        shown: What readers of the state need to know about the stages.
        changes: The differences.
        stages: The conversion of the state, for the stages where it changes.
        sources: What happens to the sources, None if nothing changes.
        refill: The fork whose state replaces the query's own, None if the query's own is changed.
    """

    before: Fingerprint
    now: Fingerprint
    unsaid: dict[str, Any]
    changes: tuple[Change, ...] = ()
    stages: Mapping[str, StageUpgrade] = field(default_factory=dict)
    shown: Mapping[str, Shown] = field(default_factory=dict)
    sources: MovedSources | None = None
    refill: Refill | None = None

    @property
    def is_pending(self) -> bool:
        """Whether the first epoch has to record it."""
        return bool(self.changes or self.stages)

    @property
    def asked(self) -> list[Change]:
        """The changes that the user has to approve."""
        return [change for change in self.changes if change.consequence is not Consequence.FREE]

    @property
    def digest(self) -> str:
        """A digest of the changes that the user has to approve: the same at every start, whatever has been read."""
        return digest_of(self.asked)


def digest_of(changes: Sequence[Change]) -> str:
    """The digest of some changes, without their notes.

    >>> len(digest_of([Change("stage0", "aggregate sum(px)", "kept", "none", Consequence.DROPPED)]))
    12
    """
    said = [[each.stage, each.what, each.before, each.now, each.consequence.name] for each in changes]
    return hashlib.sha256(json.dumps(said).encode()).hexdigest()[:12]


def described(changes: Sequence[Change]) -> str:
    """The report of some changes, one line each."""
    return "\n".join(f"  {change}" for change in changes)
