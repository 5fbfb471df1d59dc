"""The small disk: full and read-only on command, usable again afterwards, gone at the end."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.disk import PAGE, Disk


@pytest.fixture
def disk(root: Path) -> Iterator[Disk]:
    """A mounted disk."""
    with Disk(root / "small", megabytes=1) as disk:
        yield disk


def write(path: Path, pages: int) -> None:
    """Fails with an OSError if there is no room."""
    path.write_bytes(bytes(pages * PAGE))


@pytest.mark.parametrize("spare", [0, 2])
def test_a_full_disk_takes_what_is_spared_and_no_more(disk: Disk, spare: int) -> None:
    disk.fill(spare)
    write(disk.path / "fits", spare)
    with pytest.raises(OSError, match=os.strerror(errno.ENOSPC)):
        write(disk.path / "more", 1)
    disk.free()
    write(disk.path / "more", 100)


def test_a_read_only_disk_takes_nothing(disk: Disk) -> None:
    disk.make_read_only()
    with pytest.raises(OSError, match=os.strerror(errno.EROFS)):
        write(disk.path / "file", 0)
    disk.make_writable()
    write(disk.path / "file", 1)


def test_a_file_that_is_open_for_writing_is_waited_for(disk: Disk) -> None:
    with pytest.raises(AssertionError, match="remounted"), (disk.path / "file").open("wb"):
        disk.make_read_only(0.1)


def test_it_is_gone_at_the_end_though_a_file_is_open(root: Path) -> None:
    with Disk(root / "small") as disk:
        file = (disk.path / "file").open("wb")
    with file:
        assert not disk.path.is_mount()
        assert list(disk.path.iterdir()) == []
