"""The manifest of the file sink: whole epochs, never going back, wherever a driver dies."""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sparkjet.errors import StorageError
from sparkjet.sinks.manifest import MANIFEST_DIRECTORY, Manifest, ManifestEntry
from sparkjet.sinks.manifest_listing import FANOUT, LEVELS

QUIET = settings(max_examples=40, deadline=None, derandomize=True)
BEGINNINGS = [1, FANOUT - 2, FANOUT**2 - 3, FANOUT**3 - 3, FANOUT**LEVELS - 20]
"""Epochs after which blocks of one or several levels end."""


class _CrashError(Exception):
    """Represents the death of the driver."""


@pytest.fixture
def place() -> Iterator[Path]:
    with directory() as made:
        yield Path(made)


def directory() -> tempfile.TemporaryDirectory[str]:
    """In memory if possible: every entry is synced, which takes long on a disk."""
    memory = Path("/dev/shm")  # noqa: S108 - a directory of its own is made there
    return tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None)


def entry(epoch: int, committed: int | None = None) -> ManifestEntry:
    return ManifestEntry(epoch, [f"part-{epoch}"], "parquet", {"type": "struct", "fields": []}, {}, committed)


def files(manifest: Manifest) -> list[str]:
    return [file for each in manifest.entries() for file in each.files]


def names(epochs: list[int]) -> list[str]:
    return [f"part-{epoch}" for epoch in epochs]


def on_disk(place: Path) -> list[Path]:
    return [path for path in place.rglob("*") if path.is_file()]


def dying_at(change: int) -> Callable[[], None]:
    """Dies after a number of changes on disk; survives if there are fewer."""
    seen = [0]

    def between() -> None:
        seen[0] += 1
        if seen[0] == change:
            raise _CrashError

    return between


def test_entries_come_in_the_order_of_epochs(place: Path) -> None:
    manifest = Manifest(place, "q", "results")
    for epoch in (1, 2, 5):
        manifest.add(entry(epoch))
    assert files(manifest) == ["part-1", "part-2", "part-5"]
    assert [manifest.contains(epoch) for epoch in (1, 3, 5)] == [True, False, True]
    assert manifest.newest() == 5


def test_an_empty_manifest_has_nothing(place: Path) -> None:
    manifest = Manifest(place, "q", "results")
    assert (manifest.entries(), manifest.newest(), manifest.contains(1)) == ([], None, False)


def test_adding_an_epoch_twice_changes_nothing(place: Path) -> None:
    manifest = Manifest(place, "q", "results")
    manifest.add(entry(1))
    manifest.add(ManifestEntry(1, ["other"], "parquet", {}, {}))
    assert files(manifest) == ["part-1"]


def test_entries_keep_their_shape_and_time_through_merges(place: Path) -> None:
    manifest = Manifest(place, "q", "results")
    added = []
    for epoch in range(1, FANOUT**2 + 20):
        schema = {"type": "struct", "fields": [{"name": f"n{epoch // 10}"}]}
        told = {"watermark": epoch} if epoch % 3 else None
        files = [f"{epoch}"] if epoch % 4 else []
        added.append(ManifestEntry(epoch, files, "csv", schema, {"sep": str(epoch // 7)}, epoch * 5, None, told))
        # What only the newest epochs tell goes when they are merged.
        manifest.add(msgspec.structs.replace(added[-1], progress=told and {**told, "offsets": {"0": "x" * 99}}))
    found = manifest.entries()
    assert [each.progress and {"watermark": each.progress["watermark"]} for each in found] == [
        each.progress for each in added
    ]
    assert [msgspec.structs.replace(each, progress=None) for each in found] == [
        msgspec.structs.replace(each, progress=None) for each in added
    ]
    assert max(path.stat().st_size for path in on_disk(place)) < 99 * FANOUT**2
    last = manifest.last()
    assert last is not None
    assert (last.epoch, last.progress) == (275, {"watermark": 275, "offsets": {"0": "x" * 99}})


def test_an_entry_is_written_once_a_level_and_files_stay_few(place: Path) -> None:
    manifest = Manifest(place, "q", "results")
    count, most, seen = 3 * FANOUT**2 + 10, 0, {}
    for epoch in range(1, count):
        manifest.add(entry(epoch))
        present = {path.name: path.stat().st_size for path in on_disk(place)}
        most, seen = max(most, len(present)), {**seen, **present}
    assert files(manifest) == names(list(range(1, count)))
    assert most <= 2 * FANOUT + 3
    single = msgspec.json.encode(entry(count))
    assert sum(seen.values()) <= count * 3 * len(single)


@QUIET
@given(late=st.integers(1, 3 * FANOUT))
def test_a_driver_that_wakes_up_late_takes_nothing_back(late: int) -> None:
    with directory() as place:
        manifest = Manifest(Path(place), "q", "results")
        for epoch in range(1, 3 * FANOUT + 5):
            manifest.add(entry(epoch))
        before = files(manifest)
        manifest.add(ManifestEntry(late, ["other"], "parquet", {}, {}))
        assert files(manifest) == before


def test_manifests_of_several_queries_are_found(place: Path) -> None:
    Manifest(place, "q1", "results").add(entry(1))
    Manifest(place, "q2", "late").add(entry(2))
    assert [files(manifest) for manifest in Manifest.all_of(place)] == [["part-1"], ["part-2"]]


@QUIET
@given(
    first=st.sampled_from(BEGINNINGS),
    steps=st.lists(
        st.tuples(st.integers(1, 40) | st.just(1), st.integers(0, 12), st.integers(0, 300)), min_size=1, max_size=60
    ),
)
def test_adds_crashes_late_writers_and_readers_give_the_plain_list(
    first: int, steps: list[tuple[int, int, int]]
) -> None:
    """Each step is a gap between epochs, a change after which the driver dies, and an old epoch to add again."""
    with directory() as where:
        place, published = Path(where), []
        reader = Manifest(place, "q", "results")
        epoch = first
        for gap, crash, again in steps:
            published.append(epoch)
            with suppress(_CrashError):
                Manifest(place, "q", "results", dying_at(crash)).add(entry(epoch))
            assert files(reader) == names(published)
            if crash:
                # The next driver finds it published, or publishes it.
                if not reader.contains(epoch):
                    reader.add(entry(epoch))
                late = published[again % len(published)]
                with suppress(_CrashError):
                    Manifest(place, "q", "results", dying_at(again % 7)).add(entry(late))
                assert files(reader) == names(published)
            assert all(reader.contains(each) for each in published)
            assert not reader.contains(epoch + 1)
            assert reader.newest() == epoch
            epoch += gap


@QUIET
@given(
    first=st.sampled_from(BEGINNINGS),
    old=st.integers(0, 20),
    steps=st.lists(st.tuples(st.integers(1, 20), st.integers(0, 5), st.integers(0, 12)), min_size=1, max_size=50),
    retention=st.integers(1, 60),
    step=st.integers(0, 10),
)
def test_what_expires_is_old_enough_published_and_never_comes_back(
    first: int, old: int, steps: list[tuple[int, int, int]], retention: int, step: int
) -> None:
    """Entries without a time stay; the others expire from the oldest on, in steps, wherever a driver dies."""
    with directory() as where:
        place, clock, epoch = Path(where), 1000, first
        reader = Manifest(place, "q", "results")
        times: dict[int, int | None] = {}
        for _ in range(old):
            times[epoch] = None
            reader.add(entry(epoch))
            epoch += 1
        gone: set[str] = set()
        for gap, passed, crash in steps:
            clock += passed
            times[epoch] = clock
            with suppress(_CrashError):
                dying = Manifest(place, "q", "results", dying_at(crash))
                dying.add(entry(epoch, clock))
                dying.expire(clock - retention, step)
            here = set(files(reader))
            left = set(names(list(times))) - here
            assert here <= set(names(list(times)))
            assert gone <= left
            gone = left
            for each, time in times.items():
                name = f"part-{each}"
                assert time is not None or name in here
                assert time is None or time < clock - retention or name in here
                assert crash or time is None or time >= clock - retention - step or name not in here
            assert all(reader.contains(each) for each in times)
            assert reader.newest() == epoch
            epoch += gap


def test_what_expires_is_read_in_steps(place: Path) -> None:
    manifest = Manifest(place, "q", "results")
    markers = set()
    for epoch in range(1, 400):
        manifest.add(entry(epoch, epoch))
        manifest.expire(epoch - 160, 10)
        markers |= {path.name for path in place.rglob("*.expired")}
        assert len(list(place.rglob("*.expired"))) == 1
    assert len(markers) == 1 + (399 - 160) // 10
    assert files(manifest) == names(list(range(1 + max(int(name[:9]) for name in markers), 400)))


def test_a_clock_that_was_ahead_keeps_nothing_for_longer_and_loses_nothing_earlier(place: Path) -> None:
    """Epoch 2 was published by a clock a year ahead; all others a second apart."""
    manifest, year = Manifest(place, "q", "results"), 365 * 86_400

    def looked(now: int) -> list[str]:
        manifest.expire(now - 16, 1, now=now)
        return files(manifest)

    for epoch, time in ((1, 1), (2, year), (3, 3)):
        manifest.add(entry(epoch, time))
    assert looked(17) == names([1, 2, 3])
    assert looked(18) == names([2, 3])
    assert looked(20) == []
    # As the first one that stays when it was looked at by that clock.
    manifest.add(entry(4, year + 10))
    assert looked(year + 20) == names([4])
    manifest.add(entry(5, 25))
    assert looked(41) == names([4, 5])
    assert looked(42) == []


def test_names_that_are_not_a_manifests_are_left_alone(place: Path) -> None:
    manifest = Manifest(place, "q", "results")
    manifest.add(entry(1))
    folder = place / MANIFEST_DIRECTORY / "q" / "results" / "manifest"
    foreign = {".nfs0000000000000001", ".snapshot", "lost+found", "notes.json", "1-2.json", "3.segment"}
    for name in foreign:
        (folder / name).touch()
    (folder / ".000000001.json.4711-0a1b2c3d").touch()
    for epoch in range(2, 3 * FANOUT):
        manifest.add(entry(epoch))
    manifest.remove_leftovers()
    assert files(manifest) == names(list(range(1, 3 * FANOUT)))
    assert foreign <= {path.name for path in folder.iterdir()}
    assert not list(folder.glob(".*json*"))


def test_a_listing_that_misses_a_segment_and_what_it_replaces_is_done_over(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = Manifest(place, "q", "results")
    for epoch in range(1, FANOUT + 2):
        manifest.add(entry(epoch))
    listdir, passes = os.listdir, iter([[f"{FANOUT:09d}.json"], [f"{FANOUT:09d}.json", f"{FANOUT + 1:09d}.json"]])
    monkeypatch.setattr(os, "listdir", lambda folder: next(passes, None) or listdir(folder))
    assert files(manifest) == names(list(range(1, FANOUT + 2)))


def test_a_reader_beside_a_writer_sees_every_epoch_up_to_some(place: Path) -> None:
    reader = Manifest(place, "q", "results")
    last = 2 * FANOUT**2

    def write() -> None:
        for epoch in range(1, last + 1):
            Manifest(place, "q", "results").add(entry(epoch))

    writer = threading.Thread(target=write)
    writer.start()
    looks = 0
    while writer.is_alive():
        found = files(reader)
        assert found == names(list(range(1, len(found) + 1)))
        looks += 1
    writer.join()
    assert looks > 1
    assert files(reader) == names(list(range(1, last + 1)))


@pytest.mark.parametrize("content", [b"", b"{", b"{}", b"[1,2,[]]\n", b"\xff\xfe", b"null"])
def test_a_damaged_piece_is_named(place: Path, content: bytes) -> None:
    manifest = Manifest(place, "query", "results")
    for epoch in range(1, FANOUT + 2):
        manifest.add(entry(epoch))
    for piece in ("000000000-000000015.segment", "000000016.json"):
        [file] = place.rglob(piece)
        whole = file.read_bytes()
        file.write_bytes(content)
        with pytest.raises(StorageError, match=rf"{piece} is damaged.* epochs \d+ to \d+: .*Restore it"):
            manifest.entries()
        file.write_bytes(whole)
    assert files(manifest) == names(list(range(1, FANOUT + 2)))
