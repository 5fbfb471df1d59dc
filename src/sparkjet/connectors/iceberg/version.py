"""Versions of Iceberg tables: the state of a table, our part of it, and what a commit makes of it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from sparkjet.connectors.iceberg.heard import TOLD
from sparkjet.errors import SinkError
from sparkjet.known_types import known

_NUMBER = re.compile(r"(?:.*/)?v(\d+)(?:\.[a-z]+)?\.metadata\.json(?:\.gz)?")
_OWN = re.compile(r"(?:.*/)?snap-\d+-\d+-([0-9a-f-]{36})\.avro")
"""A manifest list, with the prefix of the names of its commit's manifests."""
MAIN = "main"
"""The branch for readers who do not ask for one."""


class _Told(msgspec.Struct):
    """The required part of the information about an epoch; there is more."""

    epoch: int
    transaction: str
    run: str


@dataclass(frozen=True)
class Version:
    """A version of a table.

    Attributes:
        schema: Its schema, as Iceberg's JSON.
        spec: Its partitioning, as Iceberg's JSON.
        specs: The ids of all specs that it knows.
        properties: The table's properties.
        data: The location of its files.
        java: Iceberg's table.
        transaction: The transaction by which its next metadata is made.
        base: Its metadata.
        format: The version of Iceberg's format in which it is written.
    """

    schema: Mapping[str, Any]
    spec: Mapping[str, Any]
    specs: tuple[int, ...]
    properties: Mapping[str, str]
    data: str
    java: Any
    transaction: Any
    base: Any
    format: int = 2

    @property
    def number(self) -> int:
        """The number of its metadata, for a table by path."""
        found = number_of(str(self.base.metadataFileLocation()))
        if found is None:
            message = f"{self.base.metadataFileLocation()} is not the metadata of a table that is named by its path."
            raise ValueError(message)
        return found

    @property
    def uuid(self) -> str:
        """The table's UUID, which stays the same whatever is changed."""
        return str(self.base.uuid())

    @property
    def branches(self) -> list[str]:
        """The names of its branches; a table without snapshots has none."""
        return [str(name) for name, reference in self.base.refs().items() if reference.isBranch()]

    def has_branch(self, name: str) -> bool:
        """Whether it has a branch; does not search the tags, of which a table may have thousands."""
        found = self.base.ref(name)
        return found is not None and bool(found.isBranch())

    def last(self, application: str) -> dict[str, Any] | None:
        """An application's property about its newest epoch; None if there is none."""
        text = self.properties.get(application)
        found = None if text is None else _told(text)
        if text is not None and found is None:
            message = (
                f"The property {application} of Iceberg's table {self.base.location()} is {text[:200]!r}, which no "
                "query has written: somebody has changed it. Unset it, and the snapshots are asked what was added: "
                f"ALTER TABLE … UNSET TBLPROPERTIES ('{application}')."
            )
            raise SinkError(message)
        return found

    def ancestors(self, branch: str = MAIN) -> Iterator[dict[str, Any]]:
        """Our information in the snapshots that led to a branch, the newest first; those of others have none."""
        snapshot = head(self.base, branch)
        while snapshot is not None:
            # Writers of the first format version need not give one.
            found = _told((snapshot.summary() or {}).get(TOLD))
            if found is not None:
                yield found
            parent = snapshot.parentId()
            snapshot = None if parent is None else self.base.snapshot(parent)


def number_of(file: str) -> int | None:
    """The number of a version by the name of its metadata, for a table by path; None for any other file.

    >>> number_of("v12.gz.metadata.json"), number_of("/t/metadata/v3.metadata.json"), number_of("version-hint.text")
    (12, 3, None)
    """
    found = _NUMBER.fullmatch(file)
    return None if found is None else int(found[1])


def head(metadata: Any, branch: str) -> Any:
    """The newest snapshot of a branch; None if there is none."""
    if branch == MAIN:
        return metadata.currentSnapshot()
    found = metadata.ref(branch)
    return None if found is None else metadata.snapshot(found.snapshotId())


def added_snapshots(metadata: Any) -> list[Any]:
    """The snapshots that metadata has and its base version does not; one, or none."""
    return [each.snapshot() for each in metadata.changes() if each.getClass().getSimpleName() == "AddSnapshot"]


def written_for(version: Version, metadata: Any) -> list[str]:
    """Files that Iceberg wrote for metadata made from a version, and that its new snapshot names; the list last."""
    found = []
    for snapshot in added_snapshots(metadata):
        manifests = snapshot.allManifests(version.java.io())
        found += [str(each.path()) for each in manifests if each.snapshotId() == snapshot.snapshotId()]
        found.append(str(snapshot.manifestListLocation()))
    return found


def merged_away(written: list[str]) -> list[str]:
    """The manifests that Iceberg wrote and then merged into one named by a snapshot, by :func:`written_for`.

    Iceberg numbers the manifests of a commit, and removes unneeded ones when it commits itself.

    >>> list_of = "/t/metadata/snap-7-1-0b5e2f8a-5cd1-4a6e-9d5c-0d7a5c1c3f10.avro"
    >>> merged_away(["/t/metadata/0b5e2f8a-5cd1-4a6e-9d5c-0d7a5c1c3f10-m1.avro", list_of])
    ['/t/metadata/0b5e2f8a-5cd1-4a6e-9d5c-0d7a5c1c3f10-m0.avro']
    """
    *manifests, list_of = written or [""]
    found = _OWN.fullmatch(list_of)
    if found is None:
        return []
    own = re.compile(rf"(.*/{found[1]}-m)(\d+)(\.\w+)")
    named = [each for each in map(own.fullmatch, manifests) if each is not None]
    numbers = {int(each[2]) for each in named}
    return [f"{named[0][1]}{number}{named[0][3]}" for number in range(max(numbers, default=0)) if number not in numbers]


def _told(text: str | None) -> dict[str, Any] | None:
    """The information, None if it is not ours."""
    try:
        msgspec.json.decode(text or "", type=known(_Told))
    except msgspec.DecodeError:
        return None
    return dict(json.loads(text or ""))
