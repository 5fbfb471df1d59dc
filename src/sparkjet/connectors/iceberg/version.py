"""Versions of Iceberg tables: what the table is, what ours it has, and what a commit makes of it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from sparkjet.errors import SinkError
from sparkjet.known_types import known

_NUMBER = re.compile(r"(?:.*/)?v(\d+)(?:\.[a-z]+)?\.metadata\.json(?:\.gz)?")
_OWN = re.compile(r"(?:.*/)?snap-\d+-\d+-([0-9a-f-]{36})\.avro")
"""A list of manifests, with what the names of its commit's manifests begin with."""
TOLD = "sparkjet"
"""Entry of a snapshot's summary that is ours."""
MAIN = "main"
"""The branch that readers see who ask for none."""


class _Told(msgspec.Struct):
    """What is told of an epoch has this, and more."""

    epoch: int
    transaction: str
    run: str


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
        format: The version of Iceberg's format that it is written in.
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
        """The number of its metadata, of a table by its path."""
        found = number_of(str(self.base.metadataFileLocation()))
        if found is None:
            message = f"{self.base.metadataFileLocation()} is no metadata of a table by its path."
            raise ValueError(message)
        return found

    @property
    def uuid(self) -> str:
        """The table's own, which stays whatever is changed of it."""
        return str(self.base.uuid())

    @property
    def branches(self) -> list[str]:
        """Their names; a table without snapshots has none."""
        return [str(name) for name, reference in self.base.refs().items() if reference.isBranch()]

    def has_branch(self, name: str) -> bool:
        """Whether it has a branch; of a table with thousands of tags, they are not looked through."""
        found = self.base.ref(name)
        return found is not None and bool(found.isBranch())

    def last(self, application: str) -> dict[str, Any] | None:
        """What the property of an application tells of its newest epoch; None if there is none."""
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
        """What the snapshots tell that led to a branch, the newest first; those of others tell nothing."""
        snapshot = head(self.base, branch)
        while snapshot is not None:
            # Writers of the first format need not give one.
            found = _told((snapshot.summary() or {}).get(TOLD))
            if found is not None:
                yield found
            parent = snapshot.parentId()
            snapshot = None if parent is None else self.base.snapshot(parent)


def number_of(file: str) -> int | None:
    """The number of a version by the name of its metadata, of a table by its path; None if it is another file.

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
    """The snapshots that metadata has and the version that it was made from has not; one, or none."""
    return [each.snapshot() for each in metadata.changes() if each.getClass().getSimpleName() == "AddSnapshot"]


def written_for(version: Version, metadata: Any) -> list[str]:
    """The files that Iceberg wrote for metadata made from a version, and that its new snapshot names; the list last."""
    found = []
    for snapshot in added_snapshots(metadata):
        manifests = snapshot.allManifests(version.java.io())
        found += [str(each.path()) for each in manifests if each.snapshotId() == snapshot.snapshotId()]
        found.append(str(snapshot.manifestListLocation()))
    return found


def merged_away(written: list[str]) -> list[str]:
    """The manifests that Iceberg wrote and then merged into one of those that a snapshot names, by :func:`written_for`.

    Iceberg counts the manifests of a commit, and removes what it does not need where it commits itself.

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
    """What was told, None if it is not ours."""
    try:
        msgspec.json.decode(text or "", type=known(_Told))
    except msgspec.DecodeError:
        return None
    return dict(json.loads(text or ""))


def branch_of(handle: Mapping[str, Any]) -> str:
    """The branch that an epoch is for: handles of older records name none."""
    return str(handle.get("branch", MAIN))
