"""Notes of open pages: who can read them, and when they go."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from sparkjet.monitoring.open_pages import Note, OpenPage, open_pages
from sparkjet.monitoring.open_pages import _looked_at as looked_at
from sparkjet.storage.local_directory import local_directory

PAGE = OpenPage(os.getpid(), "http://127.0.0.1:41027/", "secret")
KILLED = """
import os, pathlib, signal, sys
from sparkjet.monitoring.open_pages import Note, OpenPage, open_pages
place = pathlib.Path(sys.argv[1])
note = Note(OpenPage(os.getpid(), "http://127.0.0.1:1/", "x"), place)
assert len(open_pages(place)) == 2
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_note_is_this_users_alone_and_goes_with_the_page(tmp_path: Path) -> None:
    note = Note(PAGE, tmp_path)
    assert open_pages(tmp_path) == [PAGE]
    assert open_pages(tmp_path)[0].url == "http://127.0.0.1:41027/#token=secret"
    assert "secret" not in repr(PAGE)
    (file,) = tmp_path.iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    note.remove()
    assert open_pages(tmp_path) == []


def test_looking_again_leaves_no_directories_where_the_name_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    looked_at.cache_clear()
    # As another user may leave it there.
    local_directory("pages:").chmod(0o755)
    try:
        assert [open_pages() for _ in range(3)] == [[]] * 3
        assert len([*tmp_path.iterdir()]) == 2
    finally:
        looked_at.cache_clear()


def test_the_note_of_a_killed_process_is_removed(tmp_path: Path) -> None:
    note = Note(PAGE, tmp_path)
    killed = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], capture_output=True, text=True, check=False)
    assert killed.returncode < 0, killed.stderr
    assert len([*tmp_path.iterdir()]) == 2
    assert open_pages(tmp_path) == [PAGE]
    assert len([*tmp_path.iterdir()]) == 1
    note.remove()
