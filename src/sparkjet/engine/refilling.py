"""Refilling: the state of a changed query from a fork that has replayed the epochs with the changed code."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import msgspec

from sparkjet.engine.changed_query import Change, Consequence, Upgrade, described
from sparkjet.engine.comparing import compared
from sparkjet.engine.spark_checkpoint import ends_of
from sparkjet.errors import AnalysisError
from sparkjet.snapshots.copying import copied_state, origin_of
from sparkjet.snapshots.record_log import newest_record

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparkjet.plan.plan import Plan
    from sparkjet.snapshots.record import Record
    from sparkjet.storage.directory import Directory


@dataclass(frozen=True)
class Refill:
    """The fork that the option ``refillFrom`` names.

    Attributes:
        place: The place, as given.
        home: The home of the fork.
        record: Its newest record.
    """

    place: str
    home: Directory
    record: Record

    @staticmethod
    def of(home: Directory, place: str) -> Refill:
        """The refill from a fork's home.

        Raises:
            AnalysisError: The home cannot be read.
            RecoveryError: The home has no record.
        """
        return Refill(place, home, newest_record(home, "refillFrom")[1])

    def upgrade(self, plan: Plan, before: Record, changes: Sequence[Change]) -> Upgrade:
        """How the query continues from the fork's state, whatever the changes would have done to its own.

        Raises:
            AnalysisError: The fork is of another query, has replayed another query, or not up to the newest record.
        """
        origin, found = origin_of(self.home), self.record
        if origin is None or origin.parent != before.query:
            raise self._unfit(f"is not a fork of this query, {before.query}", "Name the home of one: sj.fork(…, to=…)")
        if origin.was_held:
            raise self._unfit(
                "was pinned while this query waited for another one (publishAfter), and has closed windows that it "
                "held open",
                "Fork a pin from after the switch",
            )
        other = compared(plan, found).changes
        if other:
            raise self._unfit(f"has replayed another query than this one:\n{described(other)}", "Replay this one there")
        same_ends = (before.spark is None) == (found.spark is None)
        if before.spark is not None and found.spark is not None:
            same_ends = ends_of(before.spark) == ends_of(found.spark)
        if (found.epoch, found.clock) != (before.epoch, before.clock) or not same_ends:
            why = f"has come to epoch {found.epoch}, and the query to {before.epoch}"
            raise self._unfit(why, "Stop the query, and call fork.replay(…) once more; or replay in a new fork")
        if not found.watermarks.goes_on_like(before.watermarks):
            raise self._unfit(
                "has other watermarks than the query, so that other rows are late there",
                "Replay with the lag, policy and idle timeouts that the query had, and change these afterwards",
            )
        moved = [
            change
            if change.consequence is Consequence.FREE
            else replace(change, consequence=Consequence.REFILLED, note="")
            for change in changes
        ]
        return Upgrade(before.fingerprint, plan.fingerprint, plan.unsaid, tuple(moved), {}, plan.shown, refill=self)

    def into(self, record: Record, home: Directory) -> Record:
        """The record with the fork's state, copied to the query's home; copies that are not recorded are removed."""
        prefix = f"{record.takeover:06d}-{record.epoch:09d}-refilled"
        found = self.record
        return msgspec.structs.replace(
            record,
            stages=copied_state(self.home, home, found.stages, prefix),
            # Along with what they belong to.
            fingerprint=found.fingerprint,
            unsaid=found.unsaid,
            shown=found.shown,
        )

    def _unfit(self, why: str, remedy: str) -> AnalysisError:
        return AnalysisError(f'refillFrom: "{self.place}" {why}. {remedy}. Nothing has been done.')
