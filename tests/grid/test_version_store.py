"""The memory of versions, which several threads read at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, cast

import msgspec
import pyarrow as pa

from sparkjet_grid.connections import Fetched
from sparkjet_grid.contents import Digest
from sparkjet_grid.map_store import MapStore
from sparkjet_grid.map_version import MapVersion
from sparkjet_grid.messages import Held
from sparkjet_grid.places import MapPlace

if TYPE_CHECKING:
    from sparkjet_grid.client import GridClient


class Manifests:
    """A client whose grid has all versions."""

    def get(self, manifest: Sequence[Held]) -> Iterator[Fetched]:
        for held in manifest:
            content = pa.record_batch({"content": pa.array([*encoded(int(held.name))], pa.uint8())})
            yield Fetched(held.key, content.schema, [content], Digest())


def encoded(number: int) -> bytes:
    version = MapVersion(
        number=number,
        epoch=1,
        clock=0,
        watermark=None,
        query="q",
        output="results",
        run="",
        keys=("k",),
        arrow_schema=b"",
        spark_schema="",
        partitions=1,
        layers={},
    )
    return msgspec.msgpack.encode(version)


class Interrupted(str):
    """A name of which the second look is after that of another thread."""

    __slots__ = ("looks", "meanwhile")
    looks: int
    meanwhile: Callable[[], object]

    def __hash__(self) -> int:
        self.looks = getattr(self, "looks", 0) + 1
        if self.looks == 2:
            self.meanwhile()
        return super().__hash__()


def test_a_version_is_read_that_another_thread_forgets() -> None:
    store = MapStore(cast("GridClient", Manifests()), MapPlace("m"))
    assert store.decoded(held("1")).number == 1
    name = Interrupted("1")
    name.meanwhile = lambda: [store.decoded(held(str(number))) for number in range(2, 12)]
    assert store.decoded(held(name)).number == 1


def held(name: str) -> Held:
    return Held(0, name, 1, 1, "")
