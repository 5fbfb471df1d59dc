"""Fixtures of the tests of commands."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparkjet_grid.access import create_token


@pytest.fixture
def token(tmp_path: Path) -> Path:
    create_token(tmp_path / "token")
    return tmp_path / "token"
