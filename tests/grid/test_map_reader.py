"""Reading a map of members on loopback: one whole epoch or another, whatever is written and lost meanwhile."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from sparkjet_grid import map_reader, map_store, version_store
from sparkjet_grid.contents import Content
from sparkjet_grid.entries import Entries, Key
from sparkjet_grid.errors import AnalysisError, LostRowsError, MalformedError, ReleasedError, UnreachableError
from sparkjet_grid.files import write_files
from sparkjet_grid.finding import rows_of
from sparkjet_grid.map_keys import hash_of, text_of
from sparkjet_grid.map_layers import EXPIRES, GONE, HASH, layer_schema, merged
from sparkjet_grid.map_reader import EPOCH, WATERMARK, Map
from sparkjet_grid.map_store import MapStore
from sparkjet_grid.messages import FindRows, Held, Lookup
from sparkjet_grid.reader_leases import LEASE, LeaseBook
from tests.faults.waiting import until
from tests.grid.grids import Grid, grid_of
from tests.grid.maps import MapWriter

# A capability as a whole, with the matrices.
pytestmark = [pytest.mark.crash, pytest.mark.interpreted]


@pytest.fixture(scope="module")
def grid(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Grid]:
    with grid_of(tmp_path_factory.mktemp("grid")) as grid:
        yield grid


@pytest.fixture
def writer(grid: Grid, request: pytest.FixtureRequest) -> MapWriter:
    return MapWriter(grid.client(), request.node.name)


@pytest.fixture
def reader(grid: Grid, writer: MapWriter) -> Map:
    return reader_of(grid, writer.name)


def reader_of(grid: Grid, name: str) -> Map:
    return Map("", name, client=grid.client())


def scanned(map_: Map) -> dict[str, int]:
    return {row["k"]: row["n"] for row in map_.scan().read_all().to_pylist()}


def number(text: str) -> dict[str, int | None]:
    return {f"k{each}": each for each in map(int, text.split())}


def test_rows_are_read_by_key_and_as_a_whole(writer: MapWriter, reader: Map) -> None:
    writer.write(3, {f"k{n}": n for n in range(500)})
    writer.write(5, {"k7": 70, "k8": None, "new": 1})
    assert reader.get("k7") == {"k": "k7", "n": 70}
    assert reader.get("k8") is None
    assert reader.get("nobody") is None
    wanted = ["k1", "k8", "new", "k499", "k1"]
    assert {key: row["n"] for key, row in reader.get_all(wanted).items()} == {"k1": 1, "new": 1, "k499": 499}
    assert (reader.epoch, reader.watermark) == (5, 5000)
    assert scanned(reader) == writer.expected[5]


def test_a_scan_has_the_columns_and_rows_that_were_asked_for_and_says_of_which_epoch(
    writer: MapWriter, reader: Map
) -> None:
    writer.write(1, {f"k{n}": n for n in range(20)})
    found = reader.scan(["n"], pc.field("k") == "k5")
    assert found.schema.names == ["n"]
    assert found.schema.metadata == {EPOCH: b"1", WATERMARK: b"1000"}
    assert found.read_all().to_pylist() == [{"n": 5}]
    with pytest.raises(AnalysisError, match=r"the map has no 'm'; Known: k, n"):
        reader.scan(["m"])
    for wrong in (pc.field("m") > 5, pc.field("k") > 5, pc.field("n") + 1, "n > 5"):
        with pytest.raises(AnalysisError, match=r"filter: .* does not fit the columns k, n"):
            reader.scan(filter=wrong)
    with pytest.raises(AnalysisError, match=r"key: unhashable type: 'list'. A key is a value, or a tuple"):
        reader.get(["k5"])
    assert writer.client.entries(writer.store.place.leases()) == []


def test_a_scan_is_what_duckdb_and_pandas_take(writer: MapWriter, reader: Map) -> None:
    writer.write(1, {f"k{n}": n for n in range(20)})
    assert duckdb.from_arrow(reader.scan(["n"])).sum("n").fetchall() == [(190,)]
    assert sorted(reader.scan(["n"]).read_pandas()["n"]) == [*range(20)]
    assert writer.client.entries(writer.store.place.leases()) == []


def test_rows_come_in_messages_of_limited_size(grid: Grid) -> None:
    schema = layer_schema(pa.schema([("k", pa.string()), ("v", pa.binary())]))
    texts = [text_of([f"k{n}"], ["text"]) for n in range(9)]
    rows = [
        {HASH: hash_of(text), GONE: False, EXPIRES: None, "k": f"k{n}", "v": bytes(n << 20)}
        for n, text in enumerate(texts)
    ]
    table = merged([pa.Table.from_pylist(rows, schema)], ["k"], 0, is_oldest=True)
    client = grid.client()
    [held] = client.put([client.entry("large", schema, table.to_batches(), 0)])
    lookup = Lookup(0, [held.name], [(place, hash_of(text), text) for place, text in enumerate(texts)])
    found = client.find(["k"], [lookup])
    assert {
        place: len(content) >> 20
        for each in found
        for place, content in zip(each.places, each.rows.column("v").to_pylist(), strict=True)
    } == {place: place for place in range(9)}
    assert len(found) > 5


def test_rows_of_large_layers_are_not_put_together() -> None:
    """A column has room for two gigabytes of text: the member could not answer."""
    entries, schema = Entries(4 << 30), layer_schema(pa.schema([("k", pa.string())]))
    lookups = []
    for partition, key in enumerate(["a", "b"]):
        text = text_of([key], ["text"])
        table = pa.Table.from_pylist([{HASH: hash_of(text), GONE: False, EXPIRES: None, "k": key}], schema)
        with entries.reserve() as room:
            room.take(800 << 20)
            room.store(Key(partition, "layer"), Content.of(schema, table.to_batches(), size=800 << 20))
        lookups.append(Lookup(partition, ["layer"], [(partition, hash_of(text), text)]))
    assert [answer.places for answer in rows_of(entries, FindRows(["k"], lookups))] == [[], [0], [1]]


def test_any_number_of_keys_and_long_ones_are_looked_up(writer: MapWriter, reader: Map) -> None:
    short = {f"k{n}": n for n in range(60_000)}
    long = {f"{n}{'ä' * (1 << 20)}": n for n in range(9)}
    writer.write(1, short | long)
    assert {key: row["n"] for key, row in reader.get_all([*short, *long]).items()} == short | long


def test_many_keys_come_from_one_epoch_while_others_are_written(
    writer: MapWriter, reader: Map, monkeypatch: pytest.MonkeyPatch
) -> None:
    epochs = iter(range(1, 100))

    def write() -> None:
        epoch = next(epochs)
        writer.write(epoch, dict.fromkeys((f"k{n}" for n in range(300)), epoch))

    write()
    for module in (map_reader, map_store):
        monkeypatch.setattr(module, "KEYS", 100)
    client, find = reader._store.client, reader._store.client.find

    def found_between_epochs(columns: list[str], lookups: list[Lookup]) -> object:
        for _ in range(3):
            write()
        return find(columns, lookups)

    monkeypatch.setattr(client, "find", found_between_epochs)
    assert [row["n"] for row in reader.get_all([f"k{n}" for n in range(300)]).values()] == [1] * 300
    assert reader.epoch == 1
    assert client.entries(writer.store.place.leases()) == []


def test_layers_have_batches_of_limited_size(writer: MapWriter, reader: Map, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    entry = writer.client.entry

    def counted(name: str, schema: pa.Schema, batches: list[pa.RecordBatch], partition: int | None = None) -> object:
        # Layers alone: a manifest is in a partition of its own choice.
        sizes.extend(batch.nbytes for batch in batches if partition is not None)
        return entry(name, schema, batches, partition)

    monkeypatch.setattr(version_store, "_BATCH", 1000)
    monkeypatch.setattr(writer.client, "entry", counted)
    for epoch in (1, 2):
        writer.write(epoch, {f"k{n}": n + epoch for n in range(3000)})
    assert max(sizes) < 2000
    assert (len(reader.get_all(writer.expected[2])), scanned(reader)) == (3000, writer.expected[2])


def test_rows_of_a_part_are_those_that_arrow_has(grid: Grid) -> None:
    schema = pa.schema([("k", pa.string()), ("n", pa.timestamp("us", "UTC"))])
    writer = MapWriter(grid.client(), "far", rows=schema)
    year_10000 = 253_402_300_800_000_000
    writer.write(1, {"a": year_10000, "b": 0, "c": None})
    reader = reader_of(grid, "far")
    manifest, _ = reader.planned()
    rows = pa.Table.from_batches(reader.part(manifest, [*reader.version().layers]), schema).sort_by("k")
    assert (rows.column("k").to_pylist(), rows.column("n").cast(pa.int64()).to_pylist()) == (
        ["a", "b"],
        [year_10000, 0],
    )
    assert [*reader.part(manifest, [])] == []


def test_what_is_not_a_layer_is_not_searched(grid: Grid) -> None:
    client = grid.client()
    [held] = write_files(client, {"home/record": b"content"})
    with pytest.raises(MalformedError, match="is not a layer of a map"):
        client.find(["k"], [Lookup(held.partition, [held.name], [(0, 0, "1:a")])])


def test_nothing_is_seen_before_the_slot_is_put(writer: MapWriter, reader: Map) -> None:
    manifest = writer.prepare(1, {"a": 1})
    with pytest.raises(AnalysisError, match="has no map"):
        reader.get("a")
    writer.publish(manifest)
    assert reader.get("a") == {"k": "a", "n": 1}


def test_a_map_that_is_not_there_is_named_with_the_nearest_one(writer: MapWriter, grid: Grid) -> None:
    writer.write(1, {"a": 1})
    with pytest.raises(AnalysisError, match=f'no map "{writer.name}s"; did you mean "{writer.name}"'):
        reader_of(grid, f"{writer.name}s").get("a")


def test_an_epoch_that_is_held_stays_and_goes_with_its_lease(writer: MapWriter, grid: Grid) -> None:
    client = grid.client()
    writer.write(1, {"a": 1, "b": 1})
    held = Map("", writer.name, client=client)
    with held.held():
        for epoch in range(2, 8):
            writer.write(epoch, {"a": epoch, "c": epoch})
        assert (held.get("a"), scanned(held)) == ({"k": "a", "n": 1}, writer.expected[1])
    assert held.get("a") == {"k": "a", "n": 7}
    writer.write(8, {"a": 8})
    # Of the epochs before the newest two nothing is left.
    assert set(writer.store._manifests().values()) == {7, 8}
    versions = [version for version in map(writer.store.at, (7, 8)) if version is not None]
    named = {layer.name for version in versions for layer in version.held()}
    assert {each.name for each in client.entries(writer.store.place.layers())} == named


def test_a_lease_that_is_not_renewed_ends_and_the_error_names_the_epoch(writer: MapWriter, grid: Grid) -> None:
    writer.write(4, {"a": 1})
    reader = reader_of(grid, writer.name)
    with reader.held():
        assert reader._held is not None
        # As in a process that sleeps.
        reader._held[1].leave()
        for epoch in range(5, 9):
            writer.write(epoch, {"a": epoch})
        assert reader.get("a") == {"k": "a", "n": 1}
        writer.now = LEASE + 1
        writer.write(9, {"a": 9})
        with pytest.raises(ReleasedError, match=r"epoch 4 of map .* is no longer held"):
            reader.get("a")
        with pytest.raises(ReleasedError, match="epoch 4"):
            reader.scan().read_all()


def test_a_map_that_was_removed_under_its_reader_is_not_taken_for_lost_nor_for_released(
    writer: MapWriter, grid: Grid
) -> None:
    writer.write(1, number("1 2"))
    reader = reader_of(grid, writer.name)
    with reader.held():
        writer.store.remove()
        with pytest.raises(ReleasedError, match=r"of which epoch 1 was read, was removed\. Read it from the start"):
            reader.get("k1")
        # There is a version of this number again.
        again = MapWriter(grid.client(), writer.name, query="another")
        again.write(1, number("1 3"))
        with pytest.raises(ReleasedError, match="was removed, and is written by query another now"):
            reader.scan().read_all()
    assert scanned(reader) == again.expected[1]


def test_a_lease_that_is_renewed_never_ends(writer: MapWriter, grid: Grid) -> None:
    writer.write(1, {"a": 1})
    reader = reader_of(grid, writer.name)
    with reader.held():
        assert reader._held is not None
        lease = reader._held[1]
        for epoch in range(2, 6):
            writer.write(epoch, {"a": epoch})
            writer.now += LEASE * 0.9
            before, lease._taken = lease._taken, lease._take()
            reader._store.client.remove([before.key])
        assert reader.get("a") == {"k": "a", "n": 1}


def test_an_epoch_is_read_by_its_number_as_long_as_it_is_visible(writer: MapWriter, reader: Map) -> None:
    for epoch in (1, 2, 4):
        writer.write(epoch, {"a": epoch})
    with reader.held(2):
        assert reader.get("a") == {"k": "a", "n": 2}
    with pytest.raises(ReleasedError, match=r"epoch 1 .* visible are 2, 4"), reader.held(1):
        pass


def test_what_is_held_inside_of_what_is_held_leaves_that_as_it_was(writer: MapWriter, reader: Map) -> None:
    for epoch in (1, 2):
        writer.write(epoch, {"a": epoch})
    with reader.held():
        with reader.held(1):
            assert (reader.get("a"), reader.epoch) == ({"k": "a", "n": 1}, 1)
        writer.write(3, {"a": 3})
        assert (reader.get("a"), scanned(reader)) == ({"k": "a", "n": 2}, {"a": 2})
    assert reader.get("a") == {"k": "a", "n": 3}
    assert writer.client.entries(writer.store.place.leases()) == []


def test_a_scan_reads_what_its_lease_is_on_whatever_others_read(
    writer: MapWriter, reader: Map, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer.write(1, {"a": 1})
    leased = Map.taken

    def meanwhile(map_: Map, epoch: int | None = None) -> object:
        found = leased(map_, epoch)
        writer.write(2, {"a": 2})
        # In another thread.
        assert map_.get("a") == {"k": "a", "n": 2}
        return found

    monkeypatch.setattr(Map, "taken", meanwhile)
    rows = reader.scan()
    for epoch in (3, 4, 5):
        writer.write(epoch, {"a": epoch})
    assert rows.read_all().to_pylist() == [{"k": "a", "n": 1}]


def test_reads_in_parts_share_one_lease_though_no_writer_removes_any(writer: MapWriter, reader: Map) -> None:
    writer.write(1, {"a": 1})
    leases = writer.store.place.leases()
    for _ in range(3):
        manifest, version = reader.planned()
        for partition in version.layers:
            assert [row for batch in reader.part(manifest, [partition]) for row in batch.to_pylist()] == [
                {"k": "a", "n": 1}
            ]
    assert len(writer.client.entries(leases)) == 1
    for epoch in (2, 3, 4):
        writer.write(epoch, {"a": epoch})
        assert [each["n"] for batch in reader.part(manifest, [*version.layers]) for each in batch.to_pylist()] == [1]
    writer.now += LEASE + 1
    writer.write(5, {"a": 5})
    writer.now += LEASE + 1
    writer.write(6, {"a": 6})
    assert writer.client.entries(leases) == []
    with pytest.raises(ReleasedError, match=r"epoch 1 of map .* is no longer held"):
        list(reader.part(manifest, [*version.layers]))


class Meanwhile(MapStore):
    """The versions of a map, for a driver beside which another one goes on right after it has listed them."""

    def __init__(self, store: MapStore, then: Callable[[], object]) -> None:
        super().__init__(store.client, store.place)
        self._then = then

    def numbers(self) -> list[int]:
        found = super().numbers()
        then, self._then = self._then, lambda: None
        then()
        return found


def test_a_start_beside_a_driver_that_goes_on_leaves_what_readers_hold(writer: MapWriter, reader: Map) -> None:
    for epoch in (1, 2):
        writer.write(epoch, {"a": epoch, "b": 0})
    with reader.held(1):
        decided = writer.prepare(3, {"a": 3})
        Meanwhile(writer.store, lambda: writer.publish(decided)).undo(lambda name: name < "000002", [decided])
        assert scanned(reader) == {"a": 1, "b": 0}
    assert scanned(reader) == {"a": 3, "b": 0}


def test_a_driver_that_was_taken_over_removes_nothing_of_its_successor(writer: MapWriter, reader: Map) -> None:
    for epoch in (1, 2):
        writer.write(epoch, {"a": epoch, "b": 0})
    with reader.held(1):

        def taken_over() -> None:
            for epoch in (3, 4, 5):
                writer.write(epoch, {"a": epoch})

        Meanwhile(writer.store, taken_over).clean(LeaseBook(lambda: writer.now))
        assert scanned(reader) == {"a": 1, "b": 0}
    assert scanned(reader) == {"a": 5, "b": 0}


def test_a_process_that_was_paused_while_it_looked_takes_no_lease_for_given_up() -> None:
    now = [0.0]
    book = LeaseBook(lambda: now[0])

    lease = Held(0, "leases/7/r/1", 0, 0, "")

    def listed(pause: float) -> list[Held]:
        now[0] += pause
        return [lease]

    assert book.inspect(lambda: listed(pause=300)) == ([lease], [])
    assert book.inspect(lambda: listed(pause=300)) == ([lease], [])
    now[0] += LEASE + 1
    assert book.inspect(lambda: listed(pause=0)) == ([], [lease.key])


def test_a_lease_is_not_renewed_for_a_read_that_has_failed(
    writer: MapWriter, reader: Map, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(number: int) -> None:
        raise UnreachableError(f"nobody says what version {number} is")

    writer.write(1, {"a": 1})
    version = reader.version()
    monkeypatch.setattr(reader, "version", lambda _: version)
    monkeypatch.setattr(reader._store, "manifest_at", failing)
    with pytest.raises(UnreachableError), reader.held():
        pass
    until(lambda: "grid-lease-of-map" not in {each.name for each in threading.enumerate()}, "the end of its thread", 5)


def test_what_was_read_stays_read_where_a_lease_cannot_be_given_up(
    writer: MapWriter, reader: Map, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: object) -> None:
        raise UnreachableError("a member is paused")

    writer.write(1, {"a": 1})
    monkeypatch.setattr(reader._store.client, "remove", failing)
    assert scanned(reader) == {"a": 1}


def test_rows_expire_by_the_clock_of_the_epoch(writer: MapWriter, reader: Map) -> None:
    writer.write(1, {"a": 1, "b": 2}, clock=100, lasts=50)
    writer.write(2, {"b": 3}, clock=120, lasts=50)
    assert scanned(reader) == {"a": 1, "b": 3}
    writer.write(3, {"c": 4}, clock=150)
    assert (reader.get("a"), scanned(reader)) == (None, {"b": 3, "c": 4})


def test_each_read_sees_one_epoch_while_others_are_written(writer: MapWriter, grid: Grid) -> None:
    keys = [f"k{n}" for n in range(40)]
    writer.write(1, dict.fromkeys(keys, 1))
    failures: list[object] = []
    over = threading.Event()

    def read() -> None:
        reader = reader_of(grid, writer.name)
        while not over.is_set():
            one, all_ = {row["n"] for row in reader.get_all(keys).values()}, set(scanned(reader).values())
            if len(one) != 1 or len(all_) != 1:
                failures.append((one, all_))

    threads = [threading.Thread(target=read) for _ in range(2)]
    for thread in threads:
        thread.start()
    for epoch in range(2, 16):
        writer.write(epoch, dict.fromkeys(keys, epoch))
    over.set()
    for thread in threads:
        thread.join()
    assert failures == []


def test_rows_are_read_from_those_that_are_left(tmp_path_factory: pytest.TempPathFactory) -> None:
    with grid_of(tmp_path_factory.mktemp("killed")) as grid:
        writer = MapWriter(grid.client(), "m")
        writer.write(1, {f"k{n}": n for n in range(200)})
        reader = reader_of(grid, "m")
        for epoch, _ in enumerate(range(2), 2):
            grid.kill(grid.members[-1])
            assert scanned(reader) == writer.expected[epoch - 1]
            assert len(reader.get_all(f"k{n}" for n in range(200))) == 200
            writer.write(epoch, {"k1": epoch * 100})
            grid.start(f"another-{epoch}")
            grid.settle()
        assert scanned(reader) == writer.expected[3]


def test_what_is_lost_is_named_with_partitions_and_epochs(tmp_path_factory: pytest.TempPathFactory) -> None:
    with grid_of(tmp_path_factory.mktemp("lost")) as grid:
        writer = MapWriter(grid.client(patience=3.0), "m")
        writer.write(17, {f"k{n}": n for n in range(200)})
        prepared = writer.prepare(18, {"k1": 2})
        key = next(layer.key for layer in writer.store.newest().held())  # type: ignore[union-attr]
        for member in grid.members:
            member.entries.remove([key])
        said = rf'map "m" has lost partitions {key.partition} of the grid, with rows of epochs up to 17'
        reader = Map("", "m", client=grid.client(patience=3.0))
        with pytest.raises(LostRowsError, match=said):
            reader.scan().read_all()
        with pytest.raises(LostRowsError, match=said):
            reader.get_all(f"k{n}" for n in range(200))
        with pytest.raises(LostRowsError, match=said):
            writer.publish(prepared)
        assert writer.store.numbers() == [1]


def test_a_map_of_which_the_manifest_is_lost_says_how_it_is_built_again(
    grid: Grid, writer: MapWriter, reader: Map
) -> None:
    writer.write(1, {"a": 1})
    manifest = writer.store.manifest_at(1)
    assert manifest is not None
    for member in grid.members:
        member.entries.remove([manifest.key])
    said = (
        f"has lost partitions {manifest.partition} of the grid, with what says where .* version 1 are.*start the query"
    )
    with pytest.raises(LostRowsError, match=said):
        reader.get("a")


def test_a_process_reads_it_that_has_neither_sparkjet_nor_spark(grid: Grid, writer: MapWriter) -> None:
    writer.write(3, {"a": 1, "b": 2})
    program = """
import sys
class Refused:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"sparkjet", "pyspark", "py4j", "pandas", "kazoo"}:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Refused())
from sparkjet_grid.errors import AnalysisError, GridError, StorageError
from sparkjet_grid.map_reader import Map
uri, name, token = sys.argv[1:]
map_ = Map(uri, name, token_file=token)
print(map_.get("a"), map_.scan().read_all().num_rows, map_.epoch)
map_.close()
try:
    Map(uri, "nothing", token_file=token).get("a")
except AnalysisError as error:
    print(isinstance(error, ValueError), error)
print(issubclass(GridError, StorageError), GridError("[SPARKJET_GRID.MOVED] it has moved"))
"""
    given = f"grid://{grid.addresses[0]}", writer.name, str(grid.access.token_file)
    found = subprocess.run([sys.executable, "-c", program, *given], capture_output=True, text=True, check=False)
    read, unknown, told = found.stdout.splitlines() or [found.stderr] * 3
    assert read == "{'k': 'a', 'n': 1} 2 3"
    assert unknown.startswith('True [SPARKJET_ANALYSIS] name: the grid has no map "nothing"; ')
    assert (told, found.stderr) == ("True [SPARKJET_GRID] it has moved", "")


def test_the_address_of_a_grid_is_not_that_of_a_map() -> None:
    with pytest.raises(AnalysisError, match="name of the map or journal is the next argument"):
        Map("grid://127.0.0.1:5710/orders", "orders")
    with pytest.raises(AnalysisError, match='"a/b" is not a name of a map'):
        Map("grid://127.0.0.1:5710", "a/b")
