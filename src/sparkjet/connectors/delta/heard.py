"""Progress that the writers of a Delta table announced up to a version, from its log, for those who read its stream."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
from pyarrow import parquet

from sparkjet.connectors.delta.log import file_of, told_in
from sparkjet.errors import SourceError
from sparkjet.known_types import known
from sparkjet.sinks.naming import BEGINNING
from sparkjet.sources.carrying import warn_of_others
from sparkjet.time import MIN, Heard

if TYPE_CHECKING:
    from sparkjet.storage.directory import Directory

_COMMIT = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint(?:\.(\d{10})\.(\d{10})|\.[0-9a-f-]{36})?\.(parquet|json)")
"""Checkpoints of one file, of several parts, or of version 2, whose sidecar files are elsewhere."""
_CHANGES = "add", "remove"
_WATERMARK = "/watermark"


class _End(msgspec.Struct, frozen=True):
    """The end of a batch of Delta's connector: a position in a version, or in all rows of it and those below.

    An index below 0 is before the version's first row.
    """

    reservoirId: str
    reservoirVersion: int
    isStartingVersion: bool = False


class DeltaWriters:
    """The writers of a table, heard by a stream of its connector.

    Only commits up to the end of a batch count, and who had written before is in the last :class:`Heard`: a batch that
    is run again hears the same.

    Args:
        log: The table's ``_delta_log``.
        rereads: Whether the stream delivers rows of versions that change files; otherwise it skips these, or fails.
        changes: Whether it delivers the changes themselves, deletions as well.
    """

    def __init__(self, log: Directory, *, rereads: bool = False, changes: bool = False) -> None:
        self._log, self._rereads, self._changes = log, rereads, changes

    def heard(self, offset: Any, before: Heard | None) -> Heard | None:
        """The progress announced up to the end of a batch; None in the middle of the rows with which a stream begins.

        Args:
            offset: The end, from its JSON.
            before: What had been told up to an earlier one.

        Raises:
            SourceError: The log does not say it.
        """
        end = msgspec.convert(offset, known(_End))
        if end.isStartingVersion:
            # All epochs are mixed up there.
            return None
        # In the middle of a version its watermark is not reached, and at its beginning neither.
        version = end.reservoirVersion - 1
        if before is None or before.table != end.reservoirId:
            # Whatever was written up to the first end cannot be late, so others up to there do not count.
            return msgspec.structs.replace(self._begun(end.reservoirId, version), others=[])
        try:
            found = self._later(before, version)
        except FileNotFoundError:
            # The stream goes on behind versions that it has lost (failOnDataLoss=false).
            begun = self._begun(end.reservoirId, version)
            found = msgspec.structs.replace(begun, others=[*dict.fromkeys([*before.others, *begun.others])])
        warn_of_others(str(self._log), found.others[len(before.others) :])
        return found

    def _later(self, before: Heard, version: int) -> Heard:
        writers, others = dict(before.writers), dict.fromkeys(before.others)
        for number in range(before.version + 1, version + 1):
            commit = self._commit(number)
            writers |= commit.told
            if commit.other is not None:
                others[commit.other] = None
        return Heard(table=before.table, version=max(version, before.version), writers=writers, others=[*others])

    def _begun(self, table: str, version: int) -> Heard:
        """The same without anything known before."""
        names = self._log.names()
        commits = {int(match[1]) for name in names if (match := _COMMIT.fullmatch(name))}
        checkpoints = _checkpoints(names)
        below = max((each for each in checkpoints if each <= version), default=-1)
        above = min((each for each in checkpoints if each > version), default=None)
        if all(number in commits for number in range(below + 1, version + 1)):
            writers = self._checkpointed(checkpoints[below]) if below >= 0 else {}
            found = self._later(Heard(table=table, version=below, writers=writers), version)
        elif above is not None:
            # Of who has written since, the checkpoint has a later watermark: their next version tells theirs.
            writers = self._checkpointed(checkpoints[above])
            for number in range(version + 1, above + 1):
                since = self._commit(number).told if number in commits else writers
                writers |= dict.fromkeys(since, MIN)
            found = Heard(table=table, version=version, writers=writers)
        else:
            message = (
                f"carried: {self._log} has neither all commits up to version {version} nor a checkpoint, so it does "
                "not say how far the table's writers were. Start with a newer version (startingVersion), or use a lag."
            )
            raise SourceError(message)
        # Who comes later in what is there already is waited for: others' watermarks say nothing of these rows.
        newest = max(checkpoints, default=-1)
        later = self._checkpointed(checkpoints[newest]).keys() if newest > version else set()
        for number in commits:
            later |= self._commit(number).told.keys() if number > max(newest, version) else set()
        return msgspec.structs.replace(found, writers=dict.fromkeys(later, MIN) | found.writers)

    def _commit(self, version: int) -> _Commit:
        lines = self._log.read(file_of(version)).splitlines()
        return _Commit.of(
            (json.loads(line) for line in lines if line.strip()), rereads=self._rereads, changes=self._changes
        )

    def _checkpointed(self, files: Sequence[str]) -> dict[str, int | None]:
        """The writers in a checkpoint: those without a watermark may have one later."""
        found: dict[str, int] = {}
        for name in files:
            found |= {each["appId"]: each["version"] for each in self._transactions(name)}
        writers: dict[str, int | None] = {}
        for application, number in found.items():
            writer = application.removeprefix(BEGINNING)
            if writer == application:
                continue
            if writer.count("/") > 1 and writer.endswith(_WATERMARK):
                writers[writer.removesuffix(_WATERMARK)] = number
            else:
                writers.setdefault(writer, MIN)
        return writers

    def _transactions(self, name: str) -> Iterator[dict[str, Any]]:
        if name.endswith(".json"):
            actions = (json.loads(line) for line in self._log.read(name).splitlines() if line.strip())
            yield from (each["txn"] for each in actions if "txn" in each)
            return
        with self._log.open(name) as file, parquet.ParquetFile(file) as opened:
            if "txn" in opened.schema_arrow.names:
                for batch in opened.iter_batches(columns=["txn"]):
                    # Nearly all rows are of files, and have none.
                    yield from (each for each in batch.column(0).drop_null().to_pylist() if each["appId"])


@dataclass(frozen=True)
class _Commit:
    """The statement of a version about its writer.

    Attributes:
        told: The watermark of an output of ours; empty for others.
        other: Who else has added rows.
    """

    told: dict[str, int | None]
    other: str | None

    @staticmethod
    def of(actions: Iterable[Mapping[str, Any]], *, rereads: bool, changes: bool) -> _Commit:
        found = list(actions)
        info: Mapping[str, Any] = next((each["commitInfo"] for each in found if "commitInfo" in each), {})
        told = told_in(info.get("userMetadata"))
        if "query" in told:
            return _Commit({f"{told['query']}/{told['output']}": told.get("watermark")}, None)
        # What only moves rows, such as OPTIMIZE, says of each file that it changes no data.
        adds, removes = (any(each[kind].get("dataChange", True) for each in found if kind in each) for kind in _CHANGES)
        # A deleted row comes again in a feed of changes, with its old event time.
        delivers = (adds or removes) if changes else adds and (rereads or not removes)
        if not delivers:
            return _Commit({}, None)
        by = info.get("engineInfo") or info.get("clientVersion") or "an unknown engine"
        return _Commit({}, f"{info.get('operation')} by {by}")


def _checkpoints(names: Iterable[str]) -> dict[int, list[str]]:
    """The files of each whole checkpoint, by its version.

    >>> parts = [f"{7:020}.checkpoint.{part:010}.{2:010}.parquet" for part in (1, 2)]
    >>> [*_checkpoints(parts)], [*_checkpoints(parts[:1])], [*_checkpoints([f"{3:020}.checkpoint.parquet"])]
    ([7], [], [3])
    """
    whole: dict[int, list[str]] = {}
    parts: dict[tuple[int, int], list[str]] = {}
    for name in names:
        found = _CHECKPOINT.fullmatch(name)
        if found is None:
            continue
        if found[2] is None:
            whole[int(found[1])] = [name]
        else:
            parts.setdefault((int(found[1]), int(found[3])), []).append(name)
    return {version: each for (version, count), each in parts.items() if len(each) == count} | whole
