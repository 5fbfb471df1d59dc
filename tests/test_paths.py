"""Locations that are accepted, and the put-if-absent that decisions rest on."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sparkjet.errors import AnalysisError
from sparkjet.paths import check_put_if_absent, local_path, put_if_absent


@pytest.mark.parametrize(
    ("location", "path"),
    [("/data/out", "/data/out"), ("file:///data/a%20b", "/data/a b"), ("file:/data/out", "/data/out")],
)
def test_plain_paths_and_file_uris_are_accepted(location: str, path: str) -> None:
    assert local_path(location, "path") == Path(path)


@pytest.mark.parametrize("location", ["s3a://bucket/x", "hdfs://host/x", "abfss://x@y/z", "gs://b"])
def test_other_schemes_are_refused_by_name(location: str) -> None:
    with pytest.raises(AnalysisError, match=location.partition(":")[0]):
        local_path(location, "checkpointLocation")


def test_an_empty_location_is_refused() -> None:
    with pytest.raises(AnalysisError, match="empty"):
        local_path("", "path")


def test_of_many_writers_exactly_one_puts(tmp_path: Path) -> None:
    target = tmp_path / "slot"
    contents = [f"writer {i}".encode() * 1000 for i in range(32)]
    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(lambda content: put_if_absent(target, content), contents))
    assert won.count(True) == 1
    assert target.read_bytes() == contents[won.index(True)]
    assert [path.name for path in tmp_path.iterdir()] == ["slot"]


def test_a_file_system_without_hard_links_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_links(source: object, target: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_links)
    with pytest.raises(AnalysisError, match=r"checkpointLocation.*hard links"):
        check_put_if_absent(tmp_path, "checkpointLocation")


def test_a_file_system_that_overwrites_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def replace(source: Path, target: Path) -> None:
        source.replace(target)
        source.touch()

    monkeypatch.setattr(os, "link", replace)
    with pytest.raises(AnalysisError, match="overwrites"):
        check_put_if_absent(tmp_path, "checkpointLocation")


def test_a_path_below_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(AnalysisError, match="cannot hold decisions"):
        check_put_if_absent(tmp_path / "file" / "below", "path")
