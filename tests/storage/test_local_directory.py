"""Data derived from a remote home is in a directory that nobody else has created."""

from __future__ import annotations

import stat
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from sparkjet.storage import local_directory as of_homes
from sparkjet_grid import embedded as of_grids

# The grid has it too, as it imports nothing of sparkjet.
pytestmark = pytest.mark.parametrize("local_directory", [of_homes.local_directory, of_grids.local_directory])


@pytest.fixture(autouse=True)
def _temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


def test_a_home_has_the_same_one_at_every_start_and_others_have_others(local_directory: Callable[[str], Path]) -> None:
    first = local_directory("s3a://bucket/home")
    assert local_directory("s3a://bucket/home") == first
    assert local_directory("s3a://bucket/other") != first
    assert stat.S_IMODE(first.stat().st_mode) == 0o700


@pytest.mark.parametrize("trap", ["link", "open"])
def test_one_that_another_may_write_is_not_used(
    tmp_path: Path, trap: str, local_directory: Callable[[str], Path]
) -> None:
    expected = local_directory("s3a://bucket/home")
    expected.rmdir()
    if trap == "link":
        (tmp_path / "elsewhere").mkdir()
        expected.symlink_to(tmp_path / "elsewhere")
    else:
        expected.mkdir()
        expected.chmod(0o777)
    found = local_directory("s3a://bucket/home")
    assert found != expected
    assert stat.S_IMODE(found.stat().st_mode) == 0o700
