"""Record batches for tests of the grid: as a writer has them, and as members get them."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import strategies as st

ROWS = pa.schema([("key", pa.int64()), ("at", pa.timestamp("us")), ("state", pa.binary())])
FILE = pa.schema([("content", pa.binary())])


def rows_of(count: int, start: int = 0, size: int = 10) -> pa.RecordBatch:
    """A batch of rows, unlike one with another start."""
    numbers = range(start, start + count)
    state = [number.to_bytes(size, "big") for number in numbers]
    return pa.record_batch([pa.array(numbers), pa.array(numbers, pa.timestamp("us")), pa.array(state)], schema=ROWS)


def file_of(content: bytes) -> pa.RecordBatch:
    """A small file."""
    return pa.record_batch([pa.array([content])], schema=FILE)


def sent(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A batch after it was written and read as Arrow's IPC format."""
    return pa.ipc.read_record_batch(batch.serialize(), batch.schema)


NESTED = pa.schema(
    [
        ("number", pa.int32()),
        ("text", pa.string()),
        ("flag", pa.bool_()),
        ("list", pa.list_(pa.int16())),
        ("struct", pa.struct([("a", pa.float64()), ("b", pa.binary())])),
        ("map", pa.map_(pa.string(), pa.int64())),
        ("nothing", pa.null()),
    ]
)


def _pairs(found: dict[str, int]) -> list[tuple[str, int]]:
    return [*found.items()]


_VALUES = st.fixed_dictionaries(
    {
        "number": st.none() | st.integers(-(2**31), 2**31 - 1),
        "text": st.none() | st.text(max_size=5),
        "flag": st.none() | st.booleans(),
        "list": st.none() | st.lists(st.none() | st.integers(-9, 9), max_size=3),
        "struct": st.none() | st.fixed_dictionaries({"a": st.none() | st.just(1.5), "b": st.none() | st.binary()}),
        "map": st.none()
        | st.dictionaries(st.text(max_size=3), st.integers(0, 9), max_size=2).map(lambda d: [*d.items()]),
        "nothing": st.none(),
    }
)


@st.composite
def batches(draw: st.DrawFn) -> pa.RecordBatch:
    """A batch with nested columns and nulls, perhaps a slice of a longer one."""
    rows = draw(st.lists(_VALUES, max_size=12))
    whole = pa.RecordBatch.from_pylist(rows, NESTED)
    start = draw(st.integers(0, len(rows)))
    return whole.slice(start, draw(st.integers(0, len(rows) - start)))
