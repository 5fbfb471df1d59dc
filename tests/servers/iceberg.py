"""Iceberg's jar, for the shared session and those of other processes."""

from __future__ import annotations

from pathlib import Path

from tests.servers.programs import TARGET, jars


def library(folder: Path = TARGET) -> list[Path]:
    """The jar; the first call loads it through Maven (50 MB).

    Raises:
        NoProgramError: Saying what to install.
    """
    return sorted(jars(Path(__file__).with_suffix(".xml"), folder).glob("*.jar"))
