"""How the rows of an epoch are divided into parts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from sparkjet.connectors.kafka.division import names_of, parts_of
from sparkjet.errors import SinkError
from sparkjet.storage.posix_directory import PosixDirectory


def handle_of(home: Path, *files: list[bytes]) -> dict[str, Any]:
    """Files of an outbox with these values."""
    listed = []
    for number, values in enumerate(files):
        parquet.write_table(pa.table({"value": values}), home / f"{number}", use_dictionary=False)
        listed.append([f"{number}", (home / f"{number}").stat().st_size, 0])
    return {"files": listed, "rows": sum(map(len, files))}


@pytest.mark.parametrize(
    ("few", "most", "size", "parts"),
    [
        (5, 9, 1, [[[0, 1, 3], 5]]),
        (4, 9, 1, [[[0], 2], [[1], 1], [[3], 2]]),
        (0, 2, 1, [[[0, 3], 4], [[1], 1]]),
        (0, 1, 1, [[[0, 1, 3], 5]]),
        # A few kilobytes once they are compressed; the driver would read them alone.
        (5, 9, 20 << 20, [[[0], 2], [[1], 1], [[3], 2]]),
    ],
)
def test_few_and_small_rows_are_one_part_and_others_one_for_each_file_with_rows(
    tmp_path: Path, few: int, most: int, size: int, parts: list[Any]
) -> None:
    row = b"x" * size
    handle = handle_of(tmp_path, [row, row], [row], [], [row, row])
    assert parts_of(PosixDirectory(tmp_path), handle, most, few) == parts
    handle["parts"] = parts
    assert sorted(name for number in range(len(parts)) for name in names_of(handle, number)) == ["0", "1", "3"]


def test_files_that_lack_rows_are_not_decided(tmp_path: Path) -> None:
    handle = handle_of(tmp_path, [b"a", b"b"])
    with pytest.raises(SinkError, match="has 2 rows of 3"):
        parts_of(PosixDirectory(tmp_path), handle | {"rows": 3}, 4, 0)
