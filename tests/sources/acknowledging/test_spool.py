"""The spool: any range has its rows every time, until they are removed, and a full disk is an error."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkjet.sources.acknowledging.spool import Spool

SCHEMA = pa.schema([pa.field("id", pa.string()), pa.field("body", pa.binary())])


def append(spool: Spool, *positions: int) -> None:
    spool.append(positions, [[f"m{each}" for each in positions], [b"%d" % each for each in positions]])


def found(spool: Spool, start: int, end: int) -> list[tuple[str, bytes]]:
    return [(row["id"], row["body"]) for batch in spool.read(start, end) for row in batch.to_pylist()]


def rows(*positions: int) -> list[tuple[str, bytes]]:
    return [(f"m{each}", b"%d" % each) for each in positions]


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    (tmp_path / "spool").mkdir()
    return Spool(tmp_path / "spool", SCHEMA)


@given(
    cuts=st.lists(st.lists(st.booleans(), min_size=1, max_size=6), max_size=6),
    start=st.integers(0, 40),
    length=st.integers(0, 40),
)
def test_a_range_has_the_rows_of_its_positions_however_they_came(
    tmp_path_factory: pytest.TempPathFactory, cuts: list[list[bool]], start: int, length: int
) -> None:
    spool = Spool(tmp_path_factory.mktemp("spool"), SCHEMA)
    stored: list[int] = []
    position = 0
    for cut in cuts:
        # False: a message that was dropped, which has a position and no row.
        kept = [position + index for index, keep in enumerate(cut) if keep]
        position += len(cut)
        if kept:
            append(spool, *kept)
            stored += kept
    expected = rows(*(each for each in stored if start <= each < start + length))
    assert found(spool, start, start + length) == expected
    assert found(spool, start, start + length) == expected
    spool.remove(start)
    assert found(spool, start, start + length) == expected
    spool.close()


def test_files_go_with_their_last_row_and_the_directory_with_the_spool(spool: Spool, tmp_path: Path) -> None:
    append(spool, 0, 1)
    append(spool, 4, 5)
    both = spool.size
    spool.remove(1)
    assert spool.size == both
    spool.remove(2)
    spool.remove(2)
    assert 0 < spool.size < both
    assert spool.size == sum(path.stat().st_size for path in (tmp_path / "spool").iterdir())
    assert found(spool, 0, 9) == rows(4, 5)
    spool.close()
    spool.close()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.crash
def test_a_full_disk_stores_nothing_and_leaves_nothing(tmp_path: Path) -> None:
    from tests.mounts import small_disk

    with small_disk(tmp_path / "disk", 4) as disk:
        (tmp_path / "disk" / "spool").mkdir()
        spool = Spool(tmp_path / "disk" / "spool", SCHEMA)
        append(spool, 0, 1)
        disk.fill()
        with pytest.raises(OSError, match="No space left"):
            spool.append([2], [["m2"], [b"x" * 1_000_000]])
        assert found(spool, 0, 9) == rows(0, 1)
        disk.free()
        append(spool, 2)
        assert found(spool, 0, 9) == rows(0, 1, 2)
        spool.close()
