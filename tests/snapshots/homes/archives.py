"""Archives of homes, which hold a placeholder instead of the directory that they were written in.

Records, Spark's logs and the handles of files name absolute paths. They are all text without lengths or checksums of
its own, so that one directory can be put in another's place.
"""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

HOMES = Path(__file__).parent
KINDS = ("stopped", "decided")
PLACEHOLDER = b"/sparkjet-kept-home"


def archive(query: str, kind: str) -> str:
    """Name of the archive of a query's home; there was one query at first."""
    return f"{kind}.tar.xz" if query == "shops" else f"{query}-{kind}.tar.xz"


def pack(root: Path, target: Path) -> None:
    """Archive what a query has left in a directory, but for its feed."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(target, "w:xz") as archived:
        for path in sorted(path for path in root.rglob("*") if not path.is_relative_to(root / "feed")):
            entry = tarfile.TarInfo(path.relative_to(root).as_posix())
            if path.is_dir():
                entry.type, entry.mode = tarfile.DIRTYPE, 0o755
                archived.addfile(entry)
            elif path.suffix != ".crc":
                # Hadoop's checksums would no longer be those of the files that have the placeholder.
                content = path.read_bytes().replace(str(root).encode(), PLACEHOLDER)
                entry.size = len(content)
                archived.addfile(entry, io.BytesIO(content))


def unpack(packed: Path, root: Path) -> None:
    """Put an archived home into a directory, as if it had been written there."""
    with tarfile.open(packed) as archived:
        archived.extractall(root, filter="data")
    for path in root.rglob("*"):
        if path.is_file() and PLACEHOLDER in path.read_bytes():
            path.write_bytes(path.read_bytes().replace(PLACEHOLDER, str(root).encode()))
