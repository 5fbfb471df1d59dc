"""Common to maps and journals: the place of each in its grid, its only writer, and its versions."""

from __future__ import annotations

import re
from typing import ClassVar

import msgspec
import pyarrow as pa
from typing_extensions import Self

from sparkjet_grid.errors import AnalysisError
from sparkjet_grid.messages import Held

_NAME = re.compile(r"[^/\0\s][^/\0]{0,199}")


def split_uri(uri: str) -> tuple[str, str, str]:
    """The scheme, members and name of a location in a grid; without a scheme there is only a name.

    >>> split_uri("grid://10.0.0.1:5710/orders#2"), split_uri("grid:///orders"), split_uri("orders")
    (('grid', '10.0.0.1:5710', 'orders#2'), ('grid', '', 'orders'), ('', '', 'orders'))
    """
    # Not urlsplit(): it cuts names at # and ?, and raises its own error for a lone bracket.
    scheme, found, rest = uri.partition("://")
    if not found:
        scheme, _, name = uri.rpartition(":")
        return scheme.lower(), "", name.strip("/")
    members, _, name = rest.partition("/")
    return scheme.lower(), members, name.strip("/")


class Place(msgspec.Struct, frozen=True):
    """The place of a map or a journal in its grid.

    Attributes:
        name: Of the map or journal.
        kind: What users call it.
        directory: Of all of its kind, apart from the homes of queries.
    """

    name: str
    kind: ClassVar[str] = ""
    directory: ClassVar[str] = ""

    @classmethod
    def of(cls, name: str, option: str) -> Self:
        """The place of a name given by a user in an option."""
        if _NAME.fullmatch(name) is None:
            raise AnalysisError(
                f'{option}: "{name}" is not a name of a {cls.kind}: one word without "/", as in '
                "grid://10.0.0.1:5710/orders."
            )
        return cls(name)

    def __str__(self) -> str:
        return f'{self.kind} "{self.name}"'

    @property
    def root(self) -> str:
        """The directory of everything that belongs to it."""
        return f"{self.directory}/{self.name}"

    @property
    def versions(self) -> str:
        """The directory of its slots."""
        return f"{self.root}/versions"

    @property
    def writer(self) -> str:
        """The slot that names its only writer."""
        return f"{self.root}/writer"

    def slot(self, number: int) -> str:
        """The slot that makes a version visible."""
        return f"{self.versions}/{number:012d}"

    def layers(self, transaction: str = "") -> str:
        """The directory of entries with rows: those of one transaction, or all."""
        return f"{self.root}/layers/{transaction}{transaction and '/'}"

    @property
    def manifests(self) -> str:
        """The directory of the manifests of all versions."""
        return f"{self.root}/manifests/"

    def manifest(self, number: int, transaction: str) -> str:
        """The name of the manifest that a transaction writes for a version."""
        return f"{self.manifests}{number:012d}-{transaction}"

    def leases(self, holder: str = "") -> str:
        """The directory of leases: those of one holder, which for a map is the number of a version, or all."""
        return f"{self.root}/leases/{holder}{holder and '/'}"


class MapPlace(Place, frozen=True):
    """The place of a map."""

    kind: ClassVar[str] = "map"
    directory: ClassVar[str] = ".maps"


class JournalPlace(Place, frozen=True):
    """The place of a journal."""

    kind: ClassVar[str] = "journal"
    directory: ClassVar[str] = ".journals"


class Writer(msgspec.Struct, frozen=True, array_like=True):
    """The only writer of a map or a journal: an output of a query."""

    query: str
    output: str


class Version(msgspec.Struct, frozen=True, kw_only=True):
    """One version of a map or a journal, as its manifest has it.

    Attributes:
        number: Counts the versions, from 1.
        epoch: The newest epoch of the query that is in it.
        clock: Microseconds of the epoch's clock.
        watermark: Of the epoch, in microseconds since 1970; None if there was none.
        query: Id of the query that wrote it.
        output: Name of the query's output.
        run: Of the driver that wrote it.
        keys: The key columns; none where tasks take turns.
        arrow_schema: Of the rows, as Arrow serializes it.
        spark_schema: The same in Spark's JSON.
        ahead: Microseconds by which ``clock`` is ahead of the query's, which was set back.
    """

    number: int
    epoch: int
    clock: int
    watermark: int | None
    query: str
    output: str
    run: str
    keys: tuple[str, ...]
    arrow_schema: bytes
    spark_schema: str
    ahead: int = 0

    @property
    def schema(self) -> pa.Schema:
        """The schema of the rows."""
        return pa.ipc.read_schema(pa.py_buffer(self.arrow_schema))

    @property
    def writer(self) -> Writer:
        """The writer of this version."""
        return Writer(self.query, self.output)

    def held(self) -> list[Held]:
        """All entries that it names."""
        raise NotImplementedError
