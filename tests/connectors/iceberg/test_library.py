"""Tables by their directory: what readers are told of the newest version."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparkjet.connectors.iceberg.library import PathTable
from sparkjet.storage.posix_directory import PosixDirectory


class Metadata:
    """Of Java's, as text."""

    def property(self, _: str, default: str) -> str:
        return default


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PathTable:
    parser = {"toJson": lambda _: "{}", "getFileExtension": lambda _: ".metadata.json"}
    monkeypatch.setattr(
        "sparkjet.connectors.iceberg.library.static_method", lambda _, name: parser[name.rpartition(".")[2]]
    )
    (tmp_path / "metadata").mkdir()
    return PathTable(None, PosixDirectory(tmp_path))  # type: ignore[arg-type]


def test_a_hint_is_whole_whoever_writes_it_at_once(
    table: PathTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hint = tmp_path / "metadata" / "version-hint.text"
    begin = Path.open
    once = [lambda: table._put(10, Metadata())]

    def opened(path: Path, mode: str = "r") -> object:
        file = begin(path, mode)
        if path.name.endswith(hint.name) and once:
            # Another process is here between its opening the file and its writing it.
            once.pop()()
        return file

    monkeypatch.setattr(Path, "open", opened)
    assert table._put(9, Metadata())
    assert not once
    monkeypatch.undo()
    assert hint.read_text() in {"9", "10"}


def test_a_writer_that_slept_until_its_version_was_removed_tells_of_the_newest(
    table: PathTable, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hint = tmp_path / "metadata" / "version-hint.text"
    begin = Path.open

    def others() -> None:
        assert table._put(10, Metadata())
        (tmp_path / "metadata" / "v9.metadata.json").unlink()

    once = [others]

    def opened(path: Path, mode: str = "r") -> object:
        if path.name.endswith(hint.name) and once:
            once.pop()()
        return begin(path, mode)

    monkeypatch.setattr(Path, "open", opened)
    assert table._put(9, Metadata())
    monkeypatch.undo()
    assert hint.read_text() == "10"


def test_a_hint_that_cannot_be_written_takes_nothing_back(
    table: PathTable, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "metadata" / "version-hint.text").mkdir()
    assert table._put(1, Metadata())
    assert (tmp_path / "metadata" / "v1.metadata.json").read_text() == "{}"
    assert "version-hint.text is left as it was" in caplog.text
