"""Which reads of maps are exchanged in what an epoch computes; without Spark."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from sparkjet.connectors.grid.map_source import MANIFEST, MapSettings
from sparkjet.engine import map_reads
from sparkjet.engine.map_reads import MapReads
from sparkjet.plan.static_tables import MapTable


class Opened:
    """A map of which nothing is there but what it is called."""

    cluster = "c"
    is_visible, released = True, 0

    def __init__(self, settings: MapSettings) -> None:
        self.named = settings.location.name, settings.epoch

    def taken(self, epoch: int | None) -> Any:
        assert epoch == self.named[1]
        assert self.is_visible
        lease = SimpleNamespace(leave=lambda: None, release=self.release)
        version = SimpleNamespace(epoch=1, number=1, spark_schema=b'{"type": "struct", "fields": []}')
        return SimpleNamespace(version=version, lease=lease, manifest=[*self.named])

    def release(self) -> None:
        type(self).released += 1

    def close(self) -> None: ...


class Reader:
    """Collects the options of a read that takes the place of another one."""

    def __init__(self) -> None:
        self.found: dict[str, str] = {}

    def options(self, **given: str) -> Reader:
        self.found |= given
        return self

    def option(self, name: str, value: str) -> Reader:
        self.found[name] = value
        return self

    def format(self, _: str) -> Reader:
        return self

    def schema(self, _: object) -> Reader:
        return self

    def load(self) -> dict[str, str]:
        return self.found


def read_of(reads: MapReads, options: Mapping[str, str], monkeypatch: pytest.MonkeyPatch) -> dict[str, str] | None:
    """The options of what takes the place of a read, None if it stays."""

    def exchanged(frame: object, name: str, read: Callable[[Mapping[str, str]], Any]) -> Any:
        del frame, name
        return read(options)

    monkeypatch.setattr(map_reads, "exchanged", exchanged)
    found: Any = reads.fixed(SimpleNamespace(sparkSession=SimpleNamespace(read=Reader())))  # type: ignore[arg-type]
    return found


@pytest.fixture(autouse=True)
def _without_a_grid(monkeypatch: pytest.MonkeyPatch) -> None:
    def opened(settings: MapSettings) -> Opened:
        return Opened(settings)

    monkeypatch.setattr(MapSettings, "open", opened)
    monkeypatch.setattr(Opened, "is_visible", True)
    monkeypatch.setattr(Opened, "released", 0)


def reads_of(*reads: dict[str, str]) -> MapReads:
    found = MapReads([MapTable(None, [*reads])])  # type: ignore[arg-type]
    found.chosen(1, {})
    return found


def test_what_this_epoch_has_already_stays_as_persisted_rows_have_it(monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"path": "grid://a:1/orders"}
    reads = reads_of(options)
    pinned = read_of(reads, options, monkeypatch)
    assert pinned == {**options, MANIFEST.name: '["orders",null]'}
    assert read_of(reads, pinned, monkeypatch) is None


def test_a_map_that_only_a_table_of_each_epoch_reads_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    reads = reads_of({"path": "grid://a:1/orders"})
    assert read_of(reads, {"path": "grid://a:1/prices"}, monkeypatch) is None


def test_an_epoch_of_a_map_is_not_taken_for_a_map_that_is_called_so(monkeypatch: pytest.MonkeyPatch) -> None:
    of_epoch, of_name = {"path": "grid://a:1/orders", "epoch": "5"}, {"path": "grid://a:1/orders@5"}
    reads = reads_of(of_epoch, of_name)
    assert (read_of(reads, of_epoch, monkeypatch) or {})[MANIFEST.name] == '["orders",5]'
    assert (read_of(reads, of_name, monkeypatch) or {})[MANIFEST.name] == '["orders@5",null]'


def test_an_epoch_of_a_map_that_is_asked_for_is_held_until_the_query_ends() -> None:
    reads = MapReads([MapTable(None, [{"path": "grid://a:1/orders", "epoch": "5"}])])  # type: ignore[arg-type]
    [first] = reads.chosen(1, {}).values()
    # By then the map has gone on, and shows newer ones alone.
    Opened.is_visible = False
    [second] = reads.chosen(2, {}).values()
    assert (first.epoch, second.epoch, second.manifest) == (1, 2, first.manifest)
    assert Opened.released == 0
