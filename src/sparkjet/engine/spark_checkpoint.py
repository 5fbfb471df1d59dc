"""Spark's checkpoint directory: derived from the record, rebuilt for every run."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

from sparkjet.errors import RecoveryError
from sparkjet.snapshots.record import SparkPosition
from sparkjet.spark_line import LINE
from sparkjet.storage.paths import sync_path

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sparkjet.snapshots import SnapshotStore

_SECOND_LOG = (4, 2)
"""The first version line of Spark that writes offsets by the sources' names, and can read them."""
VOID = "-"
"""Stands in Spark's log for a source that no batch has read."""
_COMMITTED = 'v1\n{"nextBatchWatermarkMs":0}'
"""Spark's commit of a batch without a watermark."""
REFUSED = "refused"
"""File next to Spark's with the number of the batch that a stop has left to the next run."""


class SparkCheckpoint:
    """One run's checkpoint directory, as Spark's micro-batch engine lays it out.

    Every run gets a separate directory, rebuilt from the newest record: a driver that was taken over can only write
    into its own, and there is only one way to start, whatever state the old directory is in.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def query_id(self) -> str | None:
        """The query id in ``metadata``, None if there is none yet or a crash left half of the file."""
        try:
            return str(json.loads((self.directory / "metadata").read_text())["id"])
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            return None

    def last(self, log: str, below: int | None = None) -> int | None:
        """The highest batch id in ``offsets`` or ``commits``, of those below another one."""
        folder = self.directory / log
        ids = [int(path.name) for path in folder.iterdir() if path.name.isdecimal()] if folder.is_dir() else []
        return max((number for number in ids if below is None or number < below), default=None)

    def end_offsets(self, batch: int) -> dict[str, str]:
        """The end offset of each source in a batch as written by Spark, by the source's number or name."""
        return _offsets((self.directory / "offsets" / str(batch)).read_text())

    def refuse(self, batch: int) -> None:
        """Note that a batch was not run, although Spark may mark it as done in ``commits``."""
        path = self.directory / REFUSED
        path.write_text(str(batch))
        sync_path(path)
        sync_path(self.directory)

    def refused(self) -> int | None:
        """The batch that was refused, None if there is none or a crash left half of the file."""
        try:
            return int((self.directory / REFUSED).read_text())
        except (FileNotFoundError, ValueError):
            return None

    def capture(self, batch: int, previous: SparkPosition | None, store: SnapshotStore, prefix: str) -> SparkPosition:
        """Copy what a rebuild needs, while batch ``batch`` runs.

        Spark has written ``offsets/N`` and ``sources`` by then, but not ``commits/N``. Files of ``sources`` are
        written once, so those that the previous record names are not copied again.
        """
        files = {"metadata": (self.directory / "metadata").read_text()}
        for name in (f"offsets/{batch - 1}", f"offsets/{batch}", f"commits/{batch - 1}"):
            path = self.directory / name
            if path.is_file():
                files[name] = path.read_text()
        known = previous.sources if previous is not None else {}
        sources = {}
        for number, path in enumerate(self.source_files()):
            name = path.relative_to(self.directory).as_posix()
            sources[name] = known.get(name) or f"{prefix}-source{number}"
            if name not in known:
                store.put_blob(sources[name], path.read_bytes())
        return SparkPosition(batch=batch, files=files, sources=sources)

    def rebuild(
        self, query: str, position: SparkPosition | None, store: SnapshotStore, *, repeats: bool = True
    ) -> None:
        """Fill a new directory so that Spark continues after the position's batch, and first ``repeats`` it."""
        self.directory.mkdir(parents=True, exist_ok=False)
        files = dict(position.files) if position is not None else {}
        if position is not None and not repeats:
            files[f"commits/{position.batch}"] = files.get(f"commits/{position.batch - 1}", _COMMITTED)
        files["metadata"] = json.dumps({"id": query})
        for name, text in files.items():
            self._write(name, text.encode())
        for name, blob in (position.sources if position is not None else {}).items():
            self._write(name, store.read_blob(blob))
        sync_path(self.directory)

    def _write(self, name: str, content: bytes) -> None:
        path = self.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)

    def source_files(self) -> list[Path]:
        """Files below ``sources`` that a restart reads: of a compacting log, the newest compaction and what follows.

        Iceberg's source keeps where it began in ``offsets/0``.
        """
        files = []
        for folder in _visible(self.directory / "sources"):
            names = []
            for path in _visible(folder) if folder.is_dir() else [folder]:
                if path == folder / "offsets" and _visible(path) == [path / "0"]:
                    files.append(path / "0")
                    continue
                if path == folder or not path.is_file() or not re.fullmatch(r"\d+(\.compact)?", path.name):
                    message = (
                        f"a source keeps {path.relative_to(self.directory).as_posix()} in {self.directory}. sparkjet "
                        "saves numbered files below sources/<number>/ only, so a restart would miss this one. Nothing "
                        "was decided. Let a separate Spark query read this source, and read its output here."
                    )
                    raise RecoveryError(message)
                names.append(path.name)
            compactions = [int(name.partition(".")[0]) for name in names if name.endswith(".compact")]
            floor = max(compactions, default=-1)
            files += [
                folder / name
                for name in sorted(names, key=lambda n: (int(n.partition(".")[0]), n))
                if int(name.partition(".")[0]) > floor or name == f"{floor}.compact"
            ]
        return files


def _visible(folder: Path) -> list[Path]:
    """The files in a directory, except checksums and half-written files, whose names Hadoop begins with a dot."""
    return sorted(path for path in folder.glob("*") if not path.name.startswith("."))


def ends_of(position: SparkPosition) -> dict[str, str]:
    """The end offset of each source in the position's batch, by the source's number or name."""
    return _offsets(position.files[f"offsets/{position.batch}"])


def starts_of(position: SparkPosition) -> dict[str, str]:
    """The offset at which the position's batch began for each source; empty for the first batch."""
    text = position.files.get(f"offsets/{position.batch - 1}")
    return {} if text is None else _offsets(text)


def with_sources(position: SparkPosition, moved: Sequence[tuple[str, tuple[str, int] | None]]) -> SparkPosition:
    r"""The position for a query with other sources: a checkpoint made from it lets Spark continue with these.

    Spark refuses an offset log with a different number of sources, and reads a source from its beginning if the log has
    no offset for it.

    Args:
        position: The position.
        moved: The number or name of each source, in order, and the previous one with its position; None for an added
            source.

    >>> position = SparkPosition(7, {"offsets/7": "v1\n{}\n5\n6"}, {"sources/1/7": "blob"})
    >>> with_sources(position, [("0", ("1", 1)), ("1", None)])
    SparkPosition(batch=7, files={'offsets/7': 'v1\n{}\n6\n-'}, sources={'sources/0/7': 'blob'})
    """
    files = {
        path: _with_offsets(text, moved) if path.startswith("offsets/") else text
        for path, text in position.files.items()
    }
    folders: dict[str, str] = {}
    for place, (name, before) in enumerate(moved):
        if before is not None:
            # For a source with a name, version lines of Spark differ in which of the two its folder has.
            folders |= {str(before[1]): str(place), before[0]: name}
    sources = {}
    for path, blob in position.sources.items():
        above, folder, file = path.split("/", 2)
        if folder in folders:
            sources[f"{above}/{folders[folder]}/{file}"] = blob
    return SparkPosition(position.batch, files, sources)


def _with_offsets(text: str, moved: Sequence[tuple[str, tuple[str, int] | None]]) -> str:
    offsets, (version, metadata, *_) = _offsets(text), text.splitlines()
    found = [(name, VOID if before is None else offsets.get(before[0], VOID)) for name, before in moved]
    lines = [offset if version == "v1" else f"{name}:{offset}" for name, offset in found]
    return "\n".join([version, metadata, *lines])


def planned_at(position: SparkPosition) -> int:
    """The time at which Spark planned the position's batch, in microseconds: ``current_timestamp()`` in its sources."""
    _, metadata, *_ = position.files[f"offsets/{position.batch}"].splitlines()
    return int(json.loads(metadata)["batchTimestampMs"]) * 1000


def same_offsets(position: SparkPosition, current: SparkCheckpoint) -> bool:
    """Whether the batch that Spark runs ends where the recorded batch with the same number ended."""
    recorded = position.files.get(f"offsets/{position.batch}")
    return recorded is not None and _offsets(recorded) == current.end_offsets(position.batch)


def check_readable(position: SparkPosition, line: tuple[int, int] = LINE) -> None:
    """Refuse a home that a newer Spark has written if this one could not read its offset log."""
    versions = {text.partition("\n")[0] for name, text in position.files.items() if name.startswith("offsets/")}
    if "v2" in versions and line < _SECOND_LOG:
        message = (
            f"Spark {'.'.join(map(str, line))} cannot go on from this home: its sources have names (readStream.name), "
            "or spark.sql.streaming.offsetLog.formatVersion was 2. Start the query with Spark 4.2 or later."
        )
        raise RecoveryError(message)


def check_agreement(
    current: SparkCheckpoint, query: str | None, batch: int | None, takeover: int | None, *, ahead: int = 0
) -> None:
    """Refuse to start if Spark's checkpoint knows more than the record, or belongs to another query."""
    found = current.query_id()
    offsets, commits = current.last("offsets"), current.last("commits")
    if query is None:
        if offsets is not None:
            message = (
                f"{current.directory} has batch {offsets}, but the home of this query has no record. Restore a copy of "
                "it, or start from scratch with another checkpointLocation (in a grid: queryId)."
            )
            raise RecoveryError(message)
        return
    if found is not None and found != query:
        message = f"{current.directory} belongs to query {found}, the snapshot store to {query}. Do not mix them."
        raise RecoveryError(message)
    if takeover is not None and int(current.directory.name) > takeover:
        message = (
            f"{current.directory} was made by a later takeover, but the newest record is of takeover "
            f"{takeover}: records are missing. Restore the newest copy of the home; going on would reuse "
            "transaction names."
        )
        raise RecoveryError(message)
    recorded = -1 if batch is None else batch
    known = recorded + ahead
    # It was not run, so no record can have it; the next run gets it again.
    refused = commits == recorded + 1 == current.refused()
    if (commits is not None and commits > known and not refused) or (offsets is not None and offsets > known + 1):
        message = (
            f"{current.directory} has offsets of batch {offsets} and a commit of batch {commits}, but the newest "
            f"record is of batch {batch}: records are missing. Restore the newest copy of the home; going on would "
            "publish rows twice."
        )
        raise RecoveryError(message)


def _offsets(text: str) -> dict[str, str]:
    r"""The offsets of a file in ``offsets``, by source: a version, metadata, and a line for each source.

    >>> _offsets('v1\n{}\n{"logOffset":4}\n-')
    {'0': '{"logOffset":4}', '1': '-'}
    >>> _offsets('v2\n{}\nclicks:{"logOffset":4}\n10:-')
    {'clicks': '{"logOffset":4}', '10': '-'}
    """
    version, _, *lines = text.splitlines()
    if version == "v1":
        return {str(number): offset for number, offset in enumerate(lines)}
    if version == "v2":
        # The JSON of an offset has colons, a name has none.
        return {source: offset for source, _, offset in (line.partition(":") for line in lines)}
    message = (
        f"Spark's offset log has version {version!r}, this version of sparkjet reads v1 and v2. Unset "
        "spark.sql.streaming.offsetLog.formatVersion, or upgrade sparkjet."
    )
    raise RecoveryError(message)
