"""The directory for the tests in this folder."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.faults.disk import Disk, NoDiskError
from tests.servers.fixtures import REQUIRED


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A directory in which small disks can be mounted; if mounting fails, the test is skipped or, in CI, fails."""
    try:
        with Disk(tmp_path / "tried"):
            return tmp_path
    except NoDiskError as error:
        if os.environ.get(REQUIRED):
            raise
        pytest.skip(str(error))
