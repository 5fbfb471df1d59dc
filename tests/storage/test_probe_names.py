"""Probes of others are left alone, and those of crashes are removed some day."""

from __future__ import annotations

import time

from sparkjet.storage.probe_names import is_left_behind, probe_name


def aged(name: str, seconds: int) -> str:
    """A probe's name as it was made some time ago."""
    return name.replace(f"{int(name[7:15], 16):08x}", f"{int(time.time()) - seconds:08x}", 1)


def test_a_probe_is_left_behind_after_two_days_and_so_are_its_parts() -> None:
    name = probe_name()
    parts = f".{name}.4711-0a1b2c3d", f".{name}.{'0' * 32}"
    for each in (name, *parts):
        assert not is_left_behind(each)
        assert not is_left_behind(aged(each, 100_000))
        assert is_left_behind(aged(name, 200_000))
    assert is_left_behind(f".{aged(name, 200_000)}.4711-0a1b2c3d")


def test_no_two_are_the_same_and_other_files_are_none() -> None:
    assert len({probe_name() for _ in range(100)}) == 100
    for other in ("probe-65000000-0a1b2c3d", ".probe-65000000", ".probe", "000000000001.json", ".snapshot"):
        assert not is_left_behind(other)
