"""Pins: what they keep, whatever a driver removes meanwhile."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkjet.cli import main
from sparkjet.errors import AnalysisError, RecoveryError, StorageError
from sparkjet.snapshots import Delta, DirectoryStore
from sparkjet.snapshots.copying import copy_newest
from sparkjet.snapshots.pins import Pin, Pins
from sparkjet.snapshots.record import EpochKind, Record, RollingSettings, SavedStage
from sparkjet.snapshots.record_log import RETAINED_SLOTS, TRIMMED, RecordLog
from sparkjet.storage.posix_directory import PosixDirectory
from tests.snapshots.records import NO_WATERMARKS

MINUTE = 60_000_000


def record(epoch: int, *names: str) -> Record:
    """A record at a minute of the clock, with the state that has these names."""
    deltas = [Delta(name, ["0.parquet"], 1, 0, 0) for name in names]
    return Record(
        kind=EpochKind.BATCH,
        query="q",
        takeover=0,
        run="r",
        epoch=epoch,
        fingerprint={},
        clock=epoch * MINUTE,
        watermarks=NO_WATERMARKS,
        stages={"s": SavedStage(RollingSettings(), None, deltas, {}, {})},
        early_at={},
        spark=None,
        transactions=[],
    )


class Driver:
    """Writes records of which each names two deltas, its own and the one before, and cleans as the engine does."""

    def __init__(self, directory: Path, retention: int | None = None) -> None:
        self.place = directory / "snapshots"
        self.store = DirectoryStore(PosixDirectory(self.place))
        self.store.open("checkpointLocation")
        self.log = RecordLog(self.store, retention)
        self.epoch = -1

    def decide(self) -> Record:
        """Write the next record; what it no longer names is there until :meth:`clean`."""
        self.epoch += 1
        self.store.put_blob(f"000000-{self.epoch:09d}", b"rows")
        written = record(self.epoch, *(f"000000-{each:09d}" for each in (self.epoch - 1, self.epoch) if each >= 0))
        self.log.append(self.epoch, written)
        return written

    def clean(self, written: Record) -> None:
        """Remove what the record before named alone."""
        if self.epoch > 1:
            self.log.clean([f"000000-{self.epoch - 2:09d}"], written)

    def run(self, epochs: int) -> None:
        """Some epochs."""
        for _ in range(epochs):
            self.clean(self.decide())


def test_a_pin_keeps_what_its_record_names_and_every_record_since(tmp_path: Path) -> None:
    driver = Driver(tmp_path)
    driver.run(5)
    pins = Pins(driver.store)
    assert pins.put("before-v2", 7) == Pin("before-v2", 4, 4, 7)
    driver.run(3 * RETAINED_SLOTS)
    assert driver.store.slots() == list(range(4, driver.epoch + 1))
    assert pins.record(4).names() <= {*driver.store.names()}
    assert len(driver.store.names()) == 2 + 2
    pins.remove("before-v2")
    driver.run(TRIMMED)
    assert len(driver.store.slots()) <= RETAINED_SLOTS + TRIMMED
    # What only the pin has kept goes with the next start, as all that no record names.
    driver.log.clean(driver.store.names(), pins.record(driver.epoch))
    assert {*driver.store.names()} == pins.record(driver.epoch).names()


ACTS = st.lists(st.sampled_from(["decide", "clean"]), max_size=3)


@given(st.lists(ACTS, max_size=6))
def test_a_pin_is_whole_wherever_a_driver_goes_on_while_it_is_set(
    tmp_path_factory: pytest.TempPathFactory, acts: list[list[str]]
) -> None:
    driver = Driver(tmp_path_factory.mktemp("pins"))
    driver.run(3)
    uncleaned: list[Record] = []

    def go_on() -> None:
        for act in acts.pop(0) if acts else ():
            if act == "decide":
                uncleaned.append(driver.decide())
            elif uncleaned:
                driver.clean(uncleaned.pop())

    class Interleaved(DirectoryStore):
        """Around each of its calls the driver takes some steps."""

        def slots(self) -> list[int]:
            go_on()
            return super().slots()

        def put_pin(self, slot: int, name: str, content: bytes) -> bool:
            go_on()
            return super().put_pin(slot, name, content)

    pin = Pins(Interleaved(PosixDirectory(driver.place))).put("p", 0)
    for written in uncleaned:
        driver.clean(written)
    driver.run(2)
    assert Pins(driver.store).record(pin.slot).names() <= {*driver.store.names()}


@pytest.mark.parametrize("epochs", [0, 1])
def test_of_two_pins_of_one_name_at_once_one_wins(tmp_path: Path, epochs: int) -> None:
    driver = Driver(tmp_path)
    driver.run(3)
    firsts: list[Pin] = []

    class Slow(DirectoryStore):
        """Another process pins once the name was found to be free, and the driver goes on."""

        def slots(self) -> list[int]:
            if firsts:
                driver.run(1)
            else:
                firsts.append(Pins(driver.store).put("p", 1))
                driver.run(epochs)
            return super().slots()

    with pytest.raises(AnalysisError, match=r'there is a pin "p" already'):
        Pins(Slow(PosixDirectory(driver.place))).put("p", 0)
    assert Pins(driver.store).all() == firsts


@pytest.mark.parametrize("name", ["", "a/b", "../up", ".hidden", "-flag", "x" * 101, "a b", "é"])
def test_a_name_that_cannot_be_one_is_refused(tmp_path: Path, name: str) -> None:
    driver = Driver(tmp_path)
    driver.run(1)
    with pytest.raises(AnalysisError, match="cannot be a name: it begins with a letter or a digit"):
        Pins(driver.store).put(name, 0)


def test_faults_of_a_pin_are_reported(tmp_path: Path) -> None:
    driver = Driver(tmp_path)
    pins = Pins(driver.store)
    with pytest.raises(RecoveryError, match=r'there is no record of a query yet, so nothing to pin as "p"'):
        pins.put("p", 0)
    driver.run(1)
    with pytest.raises(AnalysisError, match=r'there is no pin "p"; nothing is pinned'):
        pins.remove("p")
    pins.put("p", 0)
    with pytest.raises(AnalysisError, match=r'there is a pin "p" already. Remove it first'):
        pins.put("p", 0)
    with pytest.raises(AnalysisError, match=r'there is no pin "q"; .*Known: p'):
        pins.get("q")
    pins_of_it = tmp_path / "snapshots" / "pins"
    pins_of_it.rename(tmp_path / "aside")
    # As on a disk that is read-only, of which root knows nothing.
    pins_of_it.write_text("")
    with pytest.raises(
        StorageError, match=r'pin: "q" cannot be set or removed: (File exists|Not a directory) \(".*pins'
    ):
        pins.put("q", 0)
    pins_of_it.unlink()
    (tmp_path / "aside").rename(pins_of_it)
    [file] = (tmp_path / "snapshots" / "pins").iterdir()
    file.write_text("{}")
    with pytest.raises(RecoveryError, match=r'The pin "p" of record 0 cannot be read'):
        pins.all()


def test_pins_that_are_older_than_their_limit_are_removed_by_the_clock_of_the_query(tmp_path: Path) -> None:
    driver = Driver(tmp_path, 10 * MINUTE)
    driver.run(1)
    pins = Pins(driver.store)
    pins.put("first", 0)
    driver.run(8)
    pins.put("second", 8 * MINUTE)
    assert [pin.name for pin in pins.all()] == ["first", "second"]
    driver.run(4)
    assert [pin.name for pin in pins.all()] == ["second"]


def test_a_pin_of_a_copy_stays_and_one_that_was_given_up_is_passed_over(tmp_path: Path) -> None:
    driver, home, copy = Driver(tmp_path / "a"), PosixDirectory(tmp_path / "a"), PosixDirectory(tmp_path / "b")

    def bring_up() -> int:
        for name in driver.log.pins.record(driver.epoch).names():
            home.below(f"snapshots/state/{name}").create()
            home.below(f"snapshots/state/{name}").write("0.parquet", b"rows")
        return copy_newest(home, copy)[0]

    driver.run(3)
    bring_up()
    there = DirectoryStore(copy.below("snapshots"))
    kept = Pins(there).put("kept", 0)
    there.put_pin(0, "given-up", b'{"name":"given-up","slot":0,"epoch":0,"at":0}')
    driver.run(3)
    assert bring_up() == driver.epoch
    names = driver.log.pins.record(driver.epoch).names() | Pins(there).record(kept.slot).names()
    assert {*there.names()} == names


def test_commands_pin_list_and_remove(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Driver(tmp_path).run(2)
    home = str(tmp_path)
    assert main(["snapshots", "pin", home, "before-v2", "--json"]) == 0
    pinned = json.loads(capsys.readouterr().out)
    assert (pinned["pin"], pinned["record"], pinned["epoch"]) == ("before-v2", 1, 1)
    assert main(["snapshots", "ls", home]) == 0
    assert f"pinned as before-v2 since {pinned['since']}, epoch 1" in capsys.readouterr().out
    # Whoever was setting it was killed after the query had gone on.
    DirectoryStore(tmp_path / "snapshots").put_pin(0, "lost", b'{"name":"lost","slot":0,"epoch":0,"at":0}')
    DirectoryStore(tmp_path / "snapshots").trim(1)
    assert main(["snapshots", "ls", home]) == 0
    assert "record 0: missing, pinned as lost" in capsys.readouterr().out
    assert main(["snapshots", "rm", home, "lost"]) == 0
    assert main(["snapshots", "rm", home, "before-v2"]) == 0
    capsys.readouterr()
    assert main(["snapshots", "ls", home, "--json"]) == 0
    [told] = json.loads(capsys.readouterr().out)
    assert (told["pins"], told["bytes"]) == ([], len(DirectoryStore(tmp_path / "snapshots").read(1)))
    assert main(["snapshots", "rm", home, "before-v2"]) == 1
    assert 'there is no pin "before-v2"' in capsys.readouterr().err
