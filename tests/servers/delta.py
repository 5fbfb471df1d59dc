"""Delta Kernel's jars, for the shared session and those of other processes."""

from __future__ import annotations

from pathlib import Path

from tests.servers.programs import TARGET, jars


def kernel(folder: Path = TARGET) -> list[Path]:
    """The jars; the first call loads them through Maven (3 MB).

    Raises:
        NoProgramError: Saying what to install.
    """
    return sorted(jars(Path(__file__).with_suffix(".xml"), folder).glob("*.jar"))
