"""The directory for the tests in this folder."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.faults.disk import Disk, NoDiskError
from tests.servers.fixtures import available


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A directory in which small disks can be mounted; if mounting fails, the test is skipped or, in CI, fails."""
    with ExitStack() as stack:
        available(lambda: stack.enter_context(Disk(tmp_path / "tried")), NoDiskError)
    return tmp_path
