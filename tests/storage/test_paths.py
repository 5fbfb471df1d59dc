"""Locations that are accepted, and the put-if-absent that decisions rely on."""

from __future__ import annotations

import os
import resource
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from sparkjet.errors import AnalysisError
from sparkjet.storage.paths import check_put_if_absent, local_path, make_directories, put_if_absent, remove_temporaries
from tests.durable import recorded


@pytest.mark.parametrize(
    ("location", "path"),
    [("/data/out", "/data/out"), ("file:///data/a%20b", "/data/a b"), ("file:/data/a?b#c", "/data/a?b#c")],
)
def test_plain_paths_and_file_uris_are_accepted(location: str, path: str) -> None:
    assert local_path(location, "path") == Path(path)


def test_a_host_is_refused_which_is_a_directory_with_a_slash_too_few() -> None:
    with pytest.raises(AnalysisError, match=r'path: .*"file:///data/a b/out", or "file:///a b/out" without the host'):
        local_path("file://data/a%20b/out", "path")


@pytest.mark.parametrize("link", ["nothing", "itself"])
def test_a_link_to_nothing_is_refused_before_anything_is_created(tmp_path: Path, link: str) -> None:
    place = tmp_path / "itself"
    place.symlink_to(tmp_path / link)
    with pytest.raises(AnalysisError, match=r'path: "[^"]*/out" cannot hold decisions: (No such file|Too many levels)'):
        check_put_if_absent(place / "out", "path", create=False)


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


def test_every_new_level_survives_a_power_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with recorded(tmp_path, monkeypatch) as cut:
        make_directories(tmp_path / "a" / "b" / "c")
        put_if_absent(tmp_path / "a" / "b" / "c" / "slot", b"x")
        assert cut.lost() == []
        (tmp_path / "a" / "d").mkdir()
        assert cut.lost() == ["a/d"]
        make_directories(tmp_path / "a" / "d")
        assert cut.lost() == []


@pytest.mark.parametrize("step", ["write", "fsync", "link", "sync"])
def test_a_put_that_fails_leaves_no_temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    def full(*arguments: object, **options: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        if step == "write":
            resource.setrlimit(resource.RLIMIT_FSIZE, (10, resource.RLIM_INFINITY))
        elif step == "fsync":
            patched.setattr(os, "fsync", full)
        elif step == "link":
            patched.setattr(os, "link", full)
        else:
            patched.setattr("sparkjet.storage.paths.sync_path", full)
        try:
            with pytest.raises(OSError, match=r"File too large|No space left"):
                put_if_absent(tmp_path / "slot", b"x" * 100)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert [path.name for path in tmp_path.iterdir()] == (["slot"] if step == "sync" else [])


def test_a_put_that_fails_while_it_writes_says_where(tmp_path: Path) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, resource.RLIM_INFINITY))
    try:
        with pytest.raises(OSError, match=rf"{tmp_path}/\.slot"):
            put_if_absent(tmp_path / "slot", b"x" * 100)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def test_what_a_crash_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    names = [".000000000007.json.4711-0a1b2c3d", ".000000001.json.1-ffffffff", ".probe-01234567-0a1b2c3d"]
    others = ["000000000007.json", ".snapshot", ".nfs000000000001", ".hidden.json", "a.4711-0a1b2c3d"]
    for name in [*names, *others]:
        (tmp_path / name).touch()
    remove_temporaries(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {*others, ".probe-01234567-0a1b2c3d"}
    check_put_if_absent(tmp_path, "path")
    assert {path.name for path in tmp_path.iterdir()} == set(others)


def test_queries_that_start_at_once_test_one_directory_without_disturbing_each_other(tmp_path: Path) -> None:
    def check(_: int) -> None:
        for _ in range(10):
            check_put_if_absent(tmp_path / "nothing" / "there", "path", create=False)

    with ThreadPoolExecutor(16) as starts:
        list(starts.map(check, range(16)))
    assert list(tmp_path.iterdir()) == []


def test_a_put_whose_temporary_is_taken_for_a_leftover_is_done_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link, calls = os.link, []

    def robbed(source: Path, target: Path) -> None:
        calls.append(source)
        if len(calls) == 1:
            remove_temporaries(tmp_path)
        link(source, target)

    monkeypatch.setattr(os, "link", robbed)
    assert put_if_absent(tmp_path / "slot", b"x")
    assert [path.name for path in tmp_path.iterdir()] == ["slot"]
    assert len(calls) == 2


def test_a_put_into_a_directory_that_is_gone_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="gone"):
        put_if_absent(tmp_path / "gone" / "slot", b"x")


@pytest.mark.parametrize("name", ["nowhere/slot", "proc"])
def test_a_put_where_no_file_can_be_created_ends(tmp_path: Path, name: str) -> None:
    path = Path("/proc/slot") if name == "proc" else tmp_path / name
    with pytest.raises(FileNotFoundError):
        put_if_absent(path, b"decision")
