"""Versions of Iceberg tables: what the table is, what ours it has, and what a commit makes of it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

_NUMBER = re.compile(r"/v(\d+)(?:\.[a-z]+)?\.metadata\.json(?:\.gz)?$")
TOLD = "sparkjet"
"""Entry of a snapshot's summary that is ours."""


@dataclass(frozen=True)
class Version:
    """A version of a table.

    Attributes:
        schema: Its schema, as Iceberg's JSON.
        spec: By which it is partitioned, as Iceberg's JSON.
        specs: The ids of all specs that it knows.
        properties: Of the table.
        data: The location of its files.
        java: Iceberg's table.
        transaction: By which its next metadata is made.
        base: Its metadata.
    """

    schema: Mapping[str, Any]
    spec: Mapping[str, Any]
    specs: tuple[int, ...]
    properties: Mapping[str, str]
    data: str
    java: Any
    transaction: Any
    base: Any

    @property
    def number(self) -> int:
        """The number of its metadata, of a table by its path."""
        found = _NUMBER.search(str(self.base.metadataFileLocation()))
        if found is None:
            message = f"{self.base.metadataFileLocation()} is no metadata of a table by its path."
            raise ValueError(message)
        return int(found[1])

    @property
    def format(self) -> int:
        """The version of Iceberg's format that it has."""
        return int(self.base.formatVersion())

    @property
    def uuid(self) -> str:
        """The table's own, which stays whatever is changed of it."""
        return str(self.base.uuid())

    def last(self, application: str) -> dict[str, Any] | None:
        """What the property of an application tells of its newest epoch; None if there is none."""
        return _told(self.properties.get(application))

    def ancestors(self) -> Iterator[dict[str, Any]]:
        """What the snapshots tell that led to this version, the newest first; those of others tell nothing."""
        snapshot = self.base.currentSnapshot()
        while snapshot is not None:
            # Writers of the first format need not give one.
            found = _told((snapshot.summary() or {}).get(TOLD))
            if found is not None:
                yield found
            parent = snapshot.parentId()
            snapshot = None if parent is None else self.base.snapshot(parent)


def written_for(version: Version, metadata: Any) -> list[str]:
    """The files that Iceberg wrote for the newest snapshot of metadata made from a version."""
    snapshot = metadata.currentSnapshot()
    manifests = snapshot.allManifests(version.java.io())
    own = [str(each.path()) for each in manifests if each.snapshotId() == snapshot.snapshotId()]
    return [*own, str(snapshot.manifestListLocation())]


def _told(text: str | None) -> dict[str, Any] | None:
    """What was told, None if it is not ours."""
    try:
        found = json.loads(text or "")
    except ValueError:
        return None
    return found if isinstance(found, dict) else None
