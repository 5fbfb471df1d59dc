"""The option ``onChange``: whether a start continues from a record of the query before it was changed."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sparkjet.engine.changed_query import Consequence, described
from sparkjet.errors import AnalysisError, ChangedQueryError
from sparkjet.query_log import logger

if TYPE_CHECKING:
    from sparkjet.engine.changed_query import Upgrade

_APPROVED = re.compile(r"approve(?::([0-9a-f]{12}))?")


@dataclass(frozen=True)
class OnChange:
    """The value of the option.

    Attributes:
        applies: Whether changes that are not refused are applied.
        asks: Whether they are applied once they have been approved.
        approved: The digest of the approved changes.
    """

    applies: bool = False
    asks: bool = False
    approved: str | None = None

    @staticmethod
    def of(text: str | None) -> OnChange:
        """From the text of the option.

        Raises:
            AnalysisError: It is not one of the valid values.

        >>> OnChange.of("approve:0123456789ab").approved
        '0123456789ab'
        """
        given = (text or "refuse").strip().lower()
        found = _APPROVED.fullmatch(given)
        if found is not None:
            return OnChange(asks=True, approved=found[1])
        if given not in {"refuse", "apply"}:
            message = (
                f'option: onChange="{text}" is not one of refuse, approve, approve:DIGEST and apply, with the digest '
                "of 12 characters that a start with approve names."
            )
            raise AnalysisError(message)
        return OnChange(applies=given == "apply")

    def decide(self, upgrade: Upgrade) -> None:
        """Refuse the changes, with a report of all; or log them, if they are to be applied.

        Raises:
            ChangedQueryError: Nothing has been changed.
        """
        if not upgrade.changes:
            return
        asked, report = upgrade.asked, described(upgrade.changes)
        refused = [change for change in asked if change.consequence is Consequence.REFUSED]
        digest = upgrade.digest
        agreed = not asked or self.applies or (self.asks and self.approved == digest)
        if refused or not agreed:
            raise ChangedQueryError(
                f"The query has changed since its last run, and nothing has been done:\n{report}\n"
                + (_NO_WAY if refused else self._way_out(digest)),
                changes=[str(change) for change in upgrade.changes],
                digest=None if refused else digest,
            )
        logger.warning("The query has changed since its last run, and its state is changed with it:\n%s", report)

    def _way_out(self, digest: str) -> str:
        other = "" if self.approved is None else f"What was approved, {self.approved}, were other changes. "
        return (
            f'{other}To approve of these changes and no others, set option("onChange", "approve:{digest}"); to apply '
            'whatever is not refused, "apply". Try them on a fork first (sj.fork). Or change the query back.'
        )


_NO_WAY = (
    "What is refused cannot be made of the saved state. Change it back, or do what the line says. (Aliases, outputs, "
    "lag, policy, where, statePartitions and the length, slide and offset of a window may change at any start.)"
)
