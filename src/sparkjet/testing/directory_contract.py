"""The contract of directories as a suite that every implementation passes, including yours.

Inherit :class:`DirectoryContract` in a pytest test class and give it a fixture ``target``::

    class TestMyDirectory(DirectoryContract):
        @pytest.fixture
        def target(self):
            place = new_empty_place()
            return DirectoryUnderTest(
                MyDirectory(place),
                again=lambda: MyDirectory(place),
                losing=lambda: MyDirectory(place, transport=losing_answers),
                held=lambda arrive: MyDirectory(place, transport=held_until(arrive)),
            )
"""

from __future__ import annotations

import threading
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest

from sparkjet.storage.directory import Directory, Replacing

DRIVERS = 4
"""Number of drivers that want the same name."""
NAMES = 15
"""Number of names that they want."""
LARGE = 200_000
"""Size in bytes of contents that are not written in one piece."""


@dataclass
class DirectoryUnderTest:
    """An empty directory, and what happens to it from outside."""

    directory: Directory
    again: Callable[[], Directory]
    """Creates another object for the same place, like another driver."""
    losing: Callable[[], Directory]
    """Creates one whose next request that puts a file arrives, but whose response is lost."""
    held: Callable[[threading.Event], Directory]
    """Creates one whose requests that put a file arrive only when the event is set."""


def _put_or_found(directory: Directory, name: str, content: bytes) -> bool:
    """Do what a driver does: if the name is taken, check whether it was itself."""
    return directory.put(name, content) or directory.read(name) == content


class DirectoryContract:
    """Tests that each implementation's test class inherits; it provides the fixture ``target``.

    Attributes:
        RACES: Number of names for which drivers race, and of files read while they are removed; fewer if each takes
            seconds.
    """

    RACES = NAMES

    def test_a_file_is_put_once_and_whole(self, target: DirectoryUnderTest) -> None:
        target.directory.create()
        assert target.directory.put("a", b"first")
        assert not target.directory.put("a", b"second")
        assert not target.again().put("a", b"third")
        assert target.directory.read("a") == target.again().read("a") == b"first"
        assert target.directory.put("empty", b"")
        assert target.again().read("empty") == b""

    def test_of_several_drivers_one_puts_and_nobody_reads_half(self, target: DirectoryUnderTest) -> None:
        target.directory.create()
        drivers = [target.again() for _ in range(DRIVERS)]
        together = threading.Barrier(DRIVERS)
        contents = [bytes([65 + driver]) * LARGE for driver in range(DRIVERS)]
        wins: dict[str, list[int]] = {f"slot{number}": [] for number in range(self.RACES)}
        read: dict[str, set[bytes]] = {name: set() for name in wins}
        failures: list[Exception] = []

        def race(driver: int) -> None:
            try:
                for name, winners in wins.items():
                    together.wait(60)
                    if drivers[driver].put(name, contents[driver]):
                        winners.append(driver)
                    # The losers immediately read what has won.
                    read[name].add(drivers[driver].read(name))
            except threading.BrokenBarrierError:
                return
            except Exception as failure:  # noqa: BLE001 - the test fails of it below
                failures.append(failure)
                together.abort()

        with ThreadPoolExecutor(DRIVERS + 1) as beside:
            done = threading.Event()
            looking = beside.submit(_look, target.again(), read, done)
            try:
                list(beside.map(race, range(DRIVERS)))
            finally:
                done.set()
            looking.result()
        assert failures == []
        for name, winners in wins.items():
            assert len(winners) == 1
            assert read[name] == {contents[winners[0]]}

    def test_a_driver_that_lost_the_answer_finds_out_by_reading(self, target: DirectoryUnderTest) -> None:
        target.directory.create()
        assert _put_or_found(target.losing(), "ours", b"ours")
        assert target.again().read("ours") == b"ours"
        assert not _put_or_found(target.again(), "ours", b"theirs")
        # Taken by another, and the response that says so is lost too.
        assert target.again().put("taken", b"theirs")
        assert not _put_or_found(target.losing(), "taken", b"ours")
        assert target.again().read("ours") == b"ours"
        assert target.again().read("taken") == b"theirs"

    def test_a_put_that_arrives_late_does_not_overwrite(self, target: DirectoryUnderTest) -> None:
        target.directory.create()
        arrive = threading.Event()
        with ThreadPoolExecutor(1) as beside:
            late = beside.submit(target.held(arrive).put, "slot", b"late")
            try:
                assert target.again().put("slot", b"early")
            finally:
                arrive.set()
            assert not late.result(60)
        assert target.directory.read("slot") == b"early"

    def test_what_was_put_is_listed_at_once(self, target: DirectoryUnderTest) -> None:
        assert target.directory.names() == []
        assert target.directory.files() == {}
        target.directory.create()
        below = target.directory.below("deep/er")
        below.create()
        for number in range(5):
            target.directory.put(f"{number}", b"x" * number)
            assert sorted(target.again().names()) == sorted([*map(str, range(number + 1)), *_folders(target, "deep")])
        below.put("leaf", b"leaf")
        assert target.again().files() == {**{f"{n}": n for n in range(5)}, "deep/er/leaf": 4}
        assert below.files() == {"leaf": 4}
        assert target.again().below("deep").names() == ["er"]
        assert target.again().below("deep/er/leaf").names() == []
        assert [target.directory.exists(name) for name in ("deep/er/leaf", "4", "5", "deep/none")] == [
            True,
            True,
            False,
            False,
        ]

    def test_a_missing_file_is_not_found(self, target: DirectoryUnderTest) -> None:
        target.directory.create()
        with pytest.raises(FileNotFoundError):
            target.directory.read("a")
        with pytest.raises(FileNotFoundError):
            target.directory.open("a").close()
        with pytest.raises(FileNotFoundError):
            target.directory.rename("a", "b")

    def test_files_come_back_as_they_were_written(self, target: DirectoryUnderTest) -> None:
        target.directory.create()
        for name, content in (("empty", b""), ("bytes", bytes(range(256))), ("large", b"\r\n\0" * LARGE)):
            target.directory.write(name, content)
            again = target.again()
            assert again.read(name) == content
            assert again.checksum(name) == zlib.crc32(content)
            with again.open(name) as file:
                assert file.read() == content
                file.seek(2)
                assert file.read(3) == content[2:5]

    def test_what_is_removed_is_gone_and_nothing_else(self, target: DirectoryUnderTest) -> None:
        target.directory.create()
        target.directory.below("tree/of").create()
        for name in ("a", "ab", "tree/of/files", "tree/a"):
            target.directory.write(name, b"x")
        target.directory.remove("a")
        # Another driver may have been faster.
        target.directory.remove("a")
        target.directory.remove("tree/of")
        assert target.again().files() == {"ab": 1, "tree/a": 1}
        assert target.directory.put("a", b"again")
        target.directory.below("tree").remove()
        assert sorted(target.again().files()) == ["a", "ab"]

    def test_removed_files_are_gone_and_missing_ones_do_not_matter(self, target: DirectoryUnderTest) -> None:
        target.directory.create()
        target.directory.below("d").create()
        names = [f"d/{number}" for number in range(5)]
        for name in (*names, "stays"):
            target.directory.write(name, b"content")
        target.directory.remove_files([])
        target.directory.remove_files(["missing", *names[:3], "d/missing"])
        assert set(target.again().files()) == {*names[3:], "stays"}

    def test_a_reader_of_what_another_removes_reads_all_or_nothing(self, target: DirectoryUnderTest) -> None:
        target.directory.create()
        whole = b"w" * LARGE
        started, reads = threading.Event(), list[bytes | None]()

        def read(name: str) -> bytes | None:
            try:
                return target.again().read(name)
            except FileNotFoundError:
                return None

        def read_until_all_are_gone() -> None:
            last: list[bytes | None] = [whole]
            while whole in last:
                last = [read(f"{number}") for number in range(self.RACES)]
                reads.extend(last)
                started.set()

        for number in range(self.RACES):
            target.directory.write(f"{number}", whole)
        with ThreadPoolExecutor(1) as beside:
            reading = beside.submit(read_until_all_are_gone)
            started.wait(60)
            for number in reversed(range(self.RACES)):
                target.directory.remove(f"{number}")
            reading.result(60)
        assert reads[0] == whole
        assert set(reads) <= {whole, None}
        assert target.again().names() == []

    def test_a_renamed_file_has_one_name(self, target: DirectoryUnderTest) -> None:
        target.directory.create()
        target.directory.below("staged").create()
        target.directory.write("staged/a", b"rows")
        target.directory.sync(["staged/a"])
        target.directory.rename("staged/a", "part=1/a")
        target.directory.sync(["part=1/a"], contents=False)
        assert target.again().files() == {"part=1/a": 4}
        # A driver that continues after a crash renames again.
        with pytest.raises(FileNotFoundError):
            target.again().rename("staged/a", "part=1/a")
        assert target.again().read("part=1/a") == b"rows"

    def test_a_file_takes_the_place_of_another_one(self, target: DirectoryUnderTest) -> None:
        directory = target.directory
        if not isinstance(directory, Replacing):
            pytest.skip("in this place no file is replaced")
        for each in ("staged", "part=1"):
            target.directory.below(each).create()
        for content in (b"longer rows", b"rows"):
            target.directory.write("staged/a", content)
            directory.replace("staged/a", "part=1/a")
            assert target.again().read("part=1/a") == content
        target.directory.remove("staged")
        assert target.again().files() == {"part=1/a": 4}

    def test_it_is_known_by_where_it_is(self, target: DirectoryUnderTest) -> None:
        here = target.directory.resolved()
        assert target.again().resolved() == here
        assert target.directory.below("a/b").resolved() == f"{here}/a/b"
        target.directory.create()
        target.directory.put("a", b"")
        assert target.again().resolved() == here

    def test_a_start_checks_the_place_and_leaves_nothing(self, target: DirectoryUnderTest) -> None:
        target.again().below("home").check("checkpointLocation", create=False)
        assert target.directory.files() == {}
        target.again().below("home").check("checkpointLocation")
        target.again().below("home").sweep()
        assert target.directory.files() == {}
        assert target.directory.below("home").put("slot", b"x")


def _look(reader: Directory, read: dict[str, set[bytes]], done: threading.Event) -> None:
    """Read alongside the writers: whatever is there at all is complete."""
    while not done.is_set():
        for name in reader.names():
            if name in read:
                read[name].add(reader.read(name))


def _folders(target: DirectoryUnderTest, name: str) -> list[str]:
    """A directory without files, if such a thing exists."""
    return [name] if target.directory.exists(name) else []
