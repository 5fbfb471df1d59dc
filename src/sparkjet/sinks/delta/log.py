"""The log of a Delta table: which of its versions have our transactions, and what they added."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sparkjet.storage.directory import Directory

TOLD = "sparkjet"
"""The member of ``userMetadata`` that is ours: what the transaction was."""


@dataclass(frozen=True)
class Logged:
    """A transaction of an application, as a version of the table has it.

    Attributes:
        version: Of the table.
        number: The transaction's.
        told: What its writer told of it.
        files: What it added, as the log has it: encoded.
    """

    version: int
    number: int
    told: dict[str, Any]
    files: frozenset[str]


def find(log: Directory, version: int, application: str, number: int | None = None) -> Logged | None:
    """The newest transaction of an application, or the one with a number.

    Args:
        log: The log.
        version: The version to begin with; older ones are looked at in turn.
        application: The application.
        number: The transaction's; those below it end the search.

    Returns:
        The transaction; None if there is none, or if its version was removed from the log: Delta keeps 30 days.
    """
    for each in range(version, -1, -1):
        try:
            content = log.read(f"{each:020d}.json")
        except FileNotFoundError:
            return None
        found = _of(content, each, application)
        if found is not None:
            if number is None or found.number == number:
                return found
            if found.number < number:
                return None
    return None


def metadata(payload: Mapping[str, Any]) -> str:
    """What a version tells of the epoch that wrote it."""
    return json.dumps({TOLD: payload})


def _of(content: bytes, version: int, application: str) -> Logged | None:
    actions = [json.loads(line) for line in content.splitlines() if line.strip()]
    mine = [each["txn"]["version"] for each in actions if each.get("txn", {}).get("appId") == application]
    if not mine:
        return None
    files = frozenset(each["add"]["path"] for each in actions if "add" in each)
    info: dict[str, Any] = next((each["commitInfo"] for each in actions if "commitInfo" in each), {})
    return Logged(version, int(mine[-1]), _told(info.get("userMetadata")), files)


def _told(text: str | None) -> dict[str, Any]:
    """What a writer told, nothing if it was another's."""
    try:
        found = json.loads(text or "{}")
    except ValueError:
        return {}
    payload = found.get(TOLD) if isinstance(found, dict) else None
    return payload if isinstance(payload, dict) else {}
