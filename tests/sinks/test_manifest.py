"""The manifest of the files sink: whole epochs, never going back."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from sparkjet.sinks.manifest import COMPACT_EVERY, Manifest, ManifestEntry


def entry(epoch: int) -> ManifestEntry:
    return ManifestEntry(epoch, [f"part-{epoch}"], "parquet", {"type": "struct", "fields": []}, {})


def files(manifest: Manifest) -> list[str]:
    return [file for each in manifest.entries() for file in each.files]


def test_entries_come_in_the_order_of_epochs(tmp_path: Path) -> None:
    manifest = Manifest(tmp_path, "q", "results")
    for epoch in (1, 2, 5):
        manifest.add(entry(epoch))
    assert files(manifest) == ["part-1", "part-2", "part-5"]
    assert [manifest.contains(epoch) for epoch in (1, 3, 5)] == [True, False, True]


def test_adding_an_epoch_twice_changes_nothing(tmp_path: Path) -> None:
    manifest = Manifest(tmp_path, "q", "results")
    manifest.add(entry(1))
    manifest.add(ManifestEntry(1, ["other"], "parquet", {}, {}))
    assert files(manifest) == ["part-1"]


def test_compaction_keeps_every_file_and_few_entries(tmp_path: Path) -> None:
    manifest = Manifest(tmp_path, "q", "results")
    for epoch in range(1, 4 * COMPACT_EVERY + 10):
        manifest.add(entry(epoch))
    assert files(manifest) == [f"part-{epoch}" for epoch in range(1, 4 * COMPACT_EVERY + 10)]
    assert len(list(tmp_path.rglob("*.*"))) <= COMPACT_EVERY + 1


@settings(max_examples=20, deadline=None, derandomize=True)
@given(late=st.integers(1, 3 * COMPACT_EVERY))
def test_a_driver_that_wakes_up_late_takes_nothing_back(late: int, tmp_path_factory: object) -> None:
    directory = tmp_path_factory.mktemp("out")  # type: ignore[attr-defined]
    manifest = Manifest(directory, "q", "results")
    for epoch in range(1, 3 * COMPACT_EVERY + 5):
        manifest.add(entry(epoch))
    before = files(manifest)
    manifest.add(entry(late))
    assert files(manifest) == before


def test_manifests_of_several_queries_are_found(tmp_path: Path) -> None:
    Manifest(tmp_path, "q1", "results").add(entry(1))
    Manifest(tmp_path, "q2", "late").add(entry(2))
    assert [files(manifest) for manifest in Manifest.all_of(tmp_path)] == [["part-1"], ["part-2"]]
