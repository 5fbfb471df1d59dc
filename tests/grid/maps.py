"""Maps written without Spark: what the sink's tasks and its driver do, for tests of readers and members."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from sparkjet_grid.client import GridClient
from sparkjet_grid.map_keys import hash_of, text_of
from sparkjet_grid.map_layers import EXPIRES, GONE, HASH, layer_schema
from sparkjet_grid.map_store import MapStore, following, write_layers
from sparkjet_grid.map_version import MapVersion
from sparkjet_grid.messages import Held
from sparkjet_grid.places import MapPlace, Writer
from sparkjet_grid.reader_leases import LeaseBook

ROWS = pa.schema([("k", pa.string()), ("n", pa.int64())])
_SPARK_SCHEMA = (
    '{"type":"struct","fields":[{"name":"k","type":"string","nullable":true,"metadata":{}},'
    '{"name":"n","type":"long","nullable":true,"metadata":{}}]}'
)
Changes = Mapping[str, int | None]
"""New values by key; None where it is deleted."""


@dataclass
class MapWriter:
    """The writer of a map of one text key ``k`` and one value ``n``.

    Attributes:
        client: Of the grid.
        name: Of the map.
        now: What its leases are measured by.
        rows: The schema of ``k`` and ``n``.
        query: Who writes it.
    """

    client: GridClient
    name: str
    now: float = 0.0
    rows: pa.Schema = ROWS
    query: str = "q"
    expected: dict[int, dict[str, int]] = field(default_factory=dict)
    """The rows of each epoch."""

    def __post_init__(self) -> None:
        self.store = MapStore(self.client, MapPlace(self.name))
        self.book = LeaseBook(lambda: self.now)

    def prepare(self, epoch: int, changes: Changes, *, clock: int = 0, lasts: int | None = None) -> Held:
        """Write an epoch, which nobody sees; returns its manifest."""
        base = self.store.newest()
        count = len(self.client.state().rows)
        rows: dict[int, list[dict[str, object]]] = {}
        for key, value in changes.items():
            hash_ = hash_of(text_of([key], ["text"]))
            expires = None if lasts is None else clock + lasts
            row: dict[str, object] = {HASH: hash_, GONE: value is None, EXPIRES: expires, "k": key, "n": value}
            rows.setdefault(hash_ % count, []).append(row)
        deltas = {each: pa.Table.from_pylist(of_one, layer_schema(self.rows)) for each, of_one in rows.items()}
        # Names end with the run, so that those of two writers differ.
        transaction = f"000001-{epoch:09d}-0-{self.query}"
        written = write_layers(self.client, self.store.place, transaction, deltas, base, ["k"], clock)
        version = MapVersion(
            number=base.number + 1 if base is not None else 1,
            epoch=epoch,
            clock=clock,
            watermark=epoch * 1000,
            query=self.query,
            output="results",
            run="",
            keys=("k",),
            arrow_schema=self.rows.serialize().to_pybytes(),
            spark_schema=_SPARK_SCHEMA,
            partitions=count,
            layers=following(base, written),
        )
        return self.store.write(version, transaction)

    def publish(self, manifest: Held) -> None:
        """Make it visible, and remove what is old."""
        assert self.store.claim(Writer(self.query, "results")).query == self.query
        assert self.store.publish(manifest)
        self.store.clean(self.book)

    def write(self, epoch: int, changes: Changes, **settings: int) -> None:
        """Both, and remember what a reader of the epoch is to see."""
        self.publish(self.prepare(epoch, changes, **settings))
        rows = {**self.expected.get(max(self.expected, default=0), {}), **changes}
        self.expected[epoch] = {key: value for key, value in rows.items() if value is not None}
