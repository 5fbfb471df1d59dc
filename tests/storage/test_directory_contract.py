"""The POSIX directory keeps the contract of directories, and the suite finds what breaks it."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from pathlib import Path

import pytest

from sparkjet.storage.posix_directory import PosixDirectory
from sparkjet.testing.directory_contract import DirectoryContract, DirectoryUnderTest
from tests.storage.posix_target import posix_target


class TestContract(DirectoryContract):
    @pytest.fixture
    def target(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DirectoryUnderTest:
        return posix_target(tmp_path / "new" / "place", monkeypatch)


class Overwriting(PosixDirectory):
    def put(self, name: str, content: bytes) -> bool:
        is_free = not self.exists(name)
        super().remove(name)
        super().put(name, content)
        return is_free


class InPlace(PosixDirectory):
    """Has one winner, whom readers can watch writing."""

    watched = threading.Event()

    def put(self, name: str, content: bytes) -> bool:
        try:
            with (self.path / name).open("xb", buffering=0) as file:
                file.write(content[:1])
                self.watched.wait(60)
                file.write(content[1:])
        except FileExistsError:
            return False
        return True

    def read(self, name: str) -> bytes:
        content = super().read(name)
        self.watched.set()
        return content


class Hopeful(PosixDirectory):
    """Takes what is there for its own."""

    def put(self, name: str, content: bytes) -> bool:
        super().put(name, content)
        return self.exists(name)


class Forgetful(PosixDirectory):
    """Lists what it knew at first."""

    _known: list[str] | None = None

    def names(self) -> list[str]:
        found = super().names()
        if Forgetful._known is None:
            Forgetful._known = found
        return Forgetful._known


class Lenient(PosixDirectory):
    def read(self, name: str) -> bytes:
        return super().read(name) if self.exists(name) else b""


class Keeping(PosixDirectory):
    """Removes only what was there when somebody asked."""

    def remove(self, name: str = "") -> None:
        if (self.path / name).is_file():
            super().remove(name)


class Strict(PosixDirectory):
    """Does not expect a missing file."""

    def remove_files(self, names: Iterable[str]) -> None:
        for name in names:
            (self.path / name).unlink()


class Prefixes(PosixDirectory):
    """Removes as a store with prefixes does that forgets the slash."""

    def remove(self, name: str = "") -> None:
        for each in self.path.glob(f"{name}*") if name else ():
            PosixDirectory(each).remove()
        if not name:
            super().remove()


class Copying(PosixDirectory):
    def rename(self, source: str, target: str) -> None:
        content = self.read(source)
        (self.path / target).parent.mkdir(parents=True, exist_ok=True)
        self.write(target, content)


class Polite(PosixDirectory):
    """Replaces nothing, as a rename on HDFS."""

    def replace(self, source: str, target: str) -> None:
        if not self.exists(target):
            super().replace(source, target)


class Shorter(PosixDirectory):
    def write(self, name: str, content: bytes) -> None:
        super().write(name, content[:100_000])


class Halved(PosixDirectory):
    """Empties a file before it goes."""

    def read(self, name: str) -> bytes:
        return super().read(name) if self.exists(name) else b"w"


class Leaving(PosixDirectory):
    def below(self, name: str) -> PosixDirectory:
        return Leaving(self.path / name)

    def check(self, option: str, *, create: bool = True) -> None:
        super().check(option)
        self.write("probe", b"")


RACE = "test_of_several_drivers_one_puts_and_nobody_reads_half"


@pytest.mark.parametrize(
    ("kind", "test"),
    [
        (Overwriting, "test_a_file_is_put_once_and_whole"),
        (Overwriting, "test_a_put_that_arrives_late_does_not_overwrite"),
        (Overwriting, RACE),
        (InPlace, RACE),
        (Hopeful, "test_a_driver_that_lost_the_answer_finds_out_by_reading"),
        (Halved, "test_a_reader_of_what_another_removes_reads_all_or_nothing"),
        (Forgetful, "test_what_was_put_is_listed_at_once"),
        (Lenient, "test_a_missing_file_is_not_found"),
        (Keeping, "test_what_is_removed_is_gone_and_nothing_else"),
        (Strict, "test_removed_files_are_gone_and_missing_ones_do_not_matter"),
        (Prefixes, "test_what_is_removed_is_gone_and_nothing_else"),
        (Copying, "test_a_renamed_file_has_one_name"),
        (Polite, "test_a_file_takes_the_place_of_another_one"),
        (Shorter, "test_files_come_back_as_they_were_written"),
        (Leaving, "test_a_start_checks_the_place_and_leaves_nothing"),
    ],
)
def test_violations_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[PosixDirectory], test: str
) -> None:
    suite, target = DirectoryContract(), posix_target(tmp_path / "place", monkeypatch, kind)
    # A reader may also meet a file that is gone.
    with pytest.raises((AssertionError, pytest.fail.Exception, FileNotFoundError)):
        getattr(suite, test)(target)
