"""The log of a Delta table: which of its versions have our transactions, and what they added."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

if TYPE_CHECKING:
    from sparkjet.storage.directory import Directory

TOLD = "sparkjet"
"""Our member of ``userMetadata``: a description of the transaction."""


@dataclass(frozen=True)
class Logged:
    """A transaction of an application, as found in a version of the table.

    Attributes:
        version: Version of the table.
        number: Number of the transaction.
        told: Its writer's description.
        files: The names of the files it added.
    """

    version: int
    number: int
    told: dict[str, Any]
    files: frozenset[str]


def newest(log: Directory, version: int, application: str, number: int) -> tuple[list[Logged], bool]:
    """The newest transactions of an application, back to one with a smaller number."""
    found: list[Logged] = []
    for each in range(version, -1, -1):
        try:
            content = log.read(file_of(each))
        except FileNotFoundError:
            return found, False
        logged = _of(content, each, application)
        if logged is not None:
            found.append(logged)
            if logged.number < number:
                break
    return found, True


def file_of(version: int) -> str:
    """The name of a version's file.

    >>> file_of(7)
    '00000000000000000007.json'
    """
    return f"{version:020d}.json"


def metadata(payload: Mapping[str, Any]) -> str:
    """The metadata of a version about the epoch that wrote it."""
    return json.dumps({TOLD: payload})


def _of(content: bytes, version: int, application: str) -> Logged | None:
    actions = [json.loads(line) for line in content.splitlines() if line.strip()]
    mine = [each["txn"]["version"] for each in actions if each.get("txn", {}).get("appId") == application]
    if not mine:
        return None
    files = frozenset(unquote(each["add"]["path"]) for each in actions if "add" in each)
    info: dict[str, Any] = next((each["commitInfo"] for each in actions if "commitInfo" in each), {})
    return Logged(version, int(mine[-1]), told_in(info.get("userMetadata")), files)


def told_in(text: str | None) -> dict[str, Any]:
    """A writer's description, empty if the writer was not ours."""
    try:
        found = json.loads(text or "{}")
    except ValueError:
        return {}
    payload = found.get(TOLD) if isinstance(found, dict) else None
    return payload if isinstance(payload, dict) else {}
