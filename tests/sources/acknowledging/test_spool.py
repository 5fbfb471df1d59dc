"""The spool: any range has its rows every time, until they are removed, and a full disk is an error."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkjet.sources.acknowledging.spool import CHUNK, Spool, UnrepresentableError

SCHEMA = pa.schema([pa.field("id", pa.string()), pa.field("body", pa.binary())])


def append(spool: Spool, *positions: int) -> None:
    spool.append(positions[0], [(f"m{each}", b"%d" % each) for each in positions])


def found(spool: Spool, start: int, end: int) -> list[tuple[str, bytes]]:
    return [(row["id"], row["body"]) for batch in spool.read(start, end) for row in batch.to_pylist()]


def rows(*positions: int) -> list[tuple[str, bytes]]:
    return [(f"m{each}", b"%d" % each) for each in positions]


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    (tmp_path / "spool").mkdir()
    return Spool(tmp_path / "spool", SCHEMA)


@given(cuts=st.lists(st.integers(1, 6), max_size=6), start=st.integers(0, 40), length=st.integers(0, 40))
def test_a_range_has_the_rows_of_its_positions_however_they_came(
    tmp_path_factory: pytest.TempPathFactory, cuts: list[int], start: int, length: int
) -> None:
    spool = Spool(tmp_path_factory.mktemp("spool"), SCHEMA)
    position = 0
    for cut in cuts:
        append(spool, *range(position, position + cut))
        position += cut
    expected = rows(*range(start, min(start + length, position)))
    assert found(spool, start, start + length) == expected
    assert found(spool, start, start + length) == expected
    spool.remove(start)
    assert found(spool, start, start + length) == expected
    spool.close()


def test_files_go_with_their_last_row_and_the_directory_with_the_spool(spool: Spool, tmp_path: Path) -> None:
    append(spool, 0, 1)
    append(spool, 2, 3)
    both = spool.size
    spool.remove(1)
    assert spool.size == both
    spool.remove(2)
    spool.remove(2)
    assert 0 < spool.size < both
    assert spool.size == sum(path.stat().st_size for path in (tmp_path / "spool").iterdir())
    assert found(spool, 0, 9) == rows(2, 3)
    spool.close()
    spool.close()
    assert list(tmp_path.iterdir()) == []


def test_large_values_are_in_separate_files_as_arrow_ends_at_2_gb(spool: Spool, tmp_path: Path) -> None:
    bodies = [b"", b"x" * (CHUNK // 2), b"y" * CHUNK, b"z", b"z"]
    spool.append(5, [(f"m{number}", body) for number, body in enumerate(bodies, 5)])
    assert [len(batch) for batch in spool.read(5, 10)] == [2, 1, 2]
    assert [row[1] for row in found(spool, 5, 10)] == bodies
    spool.close()
    assert list(tmp_path.iterdir()) == []


BAD: dict[str, tuple[object, object]] = {
    "no UTF-8": (b"\xff", b""),
    "no character": ("\ud800", b""),
    "no text": (7, b""),
    "no bytes": ("m", object()),
}


@pytest.mark.parametrize("bad", BAD)
def test_a_row_that_its_columns_cannot_hold_is_named_and_nothing_is_stored(spool: Spool, bad: str) -> None:
    append(spool, 0, 1)
    with pytest.raises(UnrepresentableError, match=r"^column (id|body) cannot hold .* \(.*\)$") as raised:
        spool.append(2, [("m2", b"x" * CHUNK), ("m3", b"x"), BAD[bad]])
    assert raised.value.row == 2
    assert found(spool, 0, 9) == rows(0, 1)
    append(spool, 2)
    assert found(spool, 0, 9) == rows(0, 1, 2)


@pytest.mark.crash
def test_a_full_disk_stores_nothing_and_leaves_nothing(tmp_path: Path) -> None:
    from tests.mounts import small_disk

    with small_disk(tmp_path / "disk", 4) as disk:
        (tmp_path / "disk" / "spool").mkdir()
        spool = Spool(tmp_path / "disk" / "spool", SCHEMA)
        append(spool, 0, 1)
        disk.fill()
        with pytest.raises(OSError, match="No space left"):
            spool.append(2, [("m2", b"x" * 1_000_000)])
        assert found(spool, 0, 9) == rows(0, 1)
        disk.free()
        append(spool, 2)
        assert found(spool, 0, 9) == rows(0, 1, 2)
        spool.close()
