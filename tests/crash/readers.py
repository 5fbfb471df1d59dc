"""Readers of a query's files, without Spark and without the query."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pyarrow as pa

from sparkjet.sinks.manifest import MANIFEST_DIRECTORY, Manifest
from sparkjet.snapshots import DirectoryStore
from sparkjet.snapshots.record import Record
from sparkjet.snapshots.record_log import RecordLog
from sparkjet.storage.posix_directory import as_directory
from tests.crash.feeds import Event, read_events
from tests.crash.jobs import Place
from tests.crash.replay import RESULTS, Row, Rules

if TYPE_CHECKING:
    from sparkjet.storage.directory import Directory


def listed(directory: Path) -> list[Path]:
    """Data files as a plain reader finds them: without names or folders that begin with ``_`` or ``.``."""
    found = directory.rglob("*") if directory.is_dir() else []
    visible = (path for path in found if not re.search(r"(^|/)[_.]", path.relative_to(directory).as_posix()))
    return sorted(path for path in visible if path.is_file())


def published(directory: Path) -> dict[int, list[Path]]:
    """Data files as ``sparkjet.read_files`` finds them, by epoch."""
    entries = [entry for manifest in Manifest.all_of(directory) for entry in manifest.entries()]
    found: dict[int, list[Path]] = {}
    for entry in entries:
        found.setdefault(entry.epoch, []).extend(directory / file for file in entry.files)
    # Those of a function of foreachBatch, which has no manifest.
    found |= {int(each.name.partition("-")[2]): listed(each) for each in directory.glob("epoch-*")}
    return found


def result_rows(files: Sequence[Path], rules: Rules, output: str = RESULTS) -> Counter[Row]:
    """Rows of an output, as :meth:`tests.crash.replay.Rules.results` has them."""
    if not rules.windowed:
        return _rows(files, [f'"{name}"' for name in rules.outputs[output]])
    window, *others = rules.outputs[output]
    columns = [f'epoch_us("{window}"."start")', f'epoch_us("{window}"."end")']
    return _rows(files, [*columns, *(f'"{name}"' for name in others)])


def arrow_rows(table: pa.Table, rules: Rules) -> Counter[Row]:
    """Rows of a table or a map as :func:`result_rows` has those of files; windows are two columns."""
    names = [*rules.outputs[RESULTS]]
    names[:1] = ["start", "end"] if rules.windowed else names[:1]
    columns = [f'epoch_us("{name}")' if rules.windowed and name in {"start", "end"} else f'"{name}"' for name in names]
    return Counter(duckdb.from_arrow(table).project(", ".join(columns)).fetchall())


def late_rows(files: Sequence[Path], rules: Rules) -> Counter[Row]:
    """Rows of the late-rows sink, as :func:`tests.crash.replay.replay` writes them."""
    columns = [f'epoch_us("{name}")' if name == rules.time else f'"{name}"' for name in rules.late_columns]
    return _rows(files, [*columns, "_substream", "epoch_us(_watermark)", "_reason"])


def newest_record(place: Place) -> Record:
    """The record that the query would continue from."""
    newest = RecordLog(DirectoryStore(place.snapshots)).newest()
    assert newest is not None
    return newest[1]


def newest_checkpoint(place: Place) -> Path:
    """Spark's checkpoint of the last run."""
    return max(place.checkpoints.iterdir(), key=lambda path: int(path.name))


def recorded_batches(place: Place, rules: Rules, source: int = 0) -> list[list[Event]]:
    """The batches that one of Spark's file sources has recorded, read from the feed's files again."""
    files: dict[str, int] = {}
    for log in (newest_checkpoint(place) / "sources" / str(source)).iterdir():
        if re.fullmatch(r"\d+(\.compact)?", log.name):
            entries = (json.loads(line) for line in log.read_text().splitlines()[1:])
            files |= {entry["path"]: entry["batchId"] for entry in entries}
    count = max(files.values()) + 1
    batches: list[list[Event]] = [[] for _ in range(count)]
    for uri, batch in files.items():
        batches[batch] += read_events(Path(uri.removeprefix("file://")), rules.time)
    return batches


def strays(place: Place) -> list[str]:
    """The orphans, none of which may be left at the end: prepared files, deltas and blobs that no record names."""
    staged = [str(path.relative_to(place.root)) for path in place.root.glob(f"*/{MANIFEST_DIRECTORY}/*/*/staging/*")]
    stored = [f"{folder}/{name}" for folder in ("state", "blobs") for name in place.snapshots.below(folder).names()]
    kept = newest_record(place).names()
    return sorted(path for path in staged + stored if path.rpartition("/")[2] not in kept)


def half_published(place: Place, epoch: int) -> bool:
    """Whether an epoch is in the middle of its commits: some of its files are visible, some still prepared."""
    outs = [directory.parent for directory in place.root.glob(f"*/{MANIFEST_DIRECTORY}")]
    seen = [path for out in outs for path in listed(out) if f"part-{epoch:09d}-" in path.name]
    waiting = [path for out in outs for path in (out / MANIFEST_DIRECTORY).glob(f"*/*/staging/*-{epoch:09d}-*")]
    return bool(seen and waiting)


def fingerprints(directory: Directory | Path) -> dict[str, str]:
    """Every file below a directory with a hash of its content."""
    found = as_directory(directory)
    return {name: hashlib.sha256(found.read(name)).hexdigest() for name in found.files()}


def _rows(files: Sequence[Path], columns: Sequence[str]) -> Counter[Row]:
    if not files:
        return Counter()
    with duckdb.connect() as db:
        query = f"SELECT {', '.join(columns)} FROM read_parquet(?)"
        return Counter(db.execute(query, [[str(file) for file in files]]).fetchall())
