"""The driver's local directory for data derived from a home that is not on this machine."""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import tempfile
from pathlib import Path


def local_directory(home: str) -> Path:
    """A directory of this user, the same for every driver of a home on this machine.

    It is a convenience that the next start finds it again: the start may then see that the home has lost records. Below
    the temporary directory anybody may create the name first, so a directory that is not ours alone is not used.
    """
    digest = hashlib.sha256(home.encode()).hexdigest()[:16]
    path = Path(tempfile.gettempdir(), f"sparkjet-{os.getuid()}-{digest}")
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)
    found = path.lstat()
    is_ours = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077
    return path if is_ours else Path(tempfile.mkdtemp(prefix="sparkjet-"))
