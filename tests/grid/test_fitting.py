"""Columns as Spark writes them, with the types of a map."""

from __future__ import annotations

import pyarrow as pa
import pytest

from sparkjet_grid.fitting import _nullable, fitted

UTC, LOCAL = pa.timestamp("us", "UTC"), pa.timestamp("us", "Asia/Kathmandu")


def of_spark(moment: pa.DataType) -> pa.Array:
    """A struct that is null, with nulls in a field that is declared to have none."""
    fields = [pa.field("at", moment, nullable=False), pa.field("n", pa.int64())]
    children = [pa.array([None, 5, None, 7], moment), pa.array([None, 6, None, None], pa.int64())]
    validity = pa.array([False, True, False, True]).buffers()[1]
    return pa.Array.from_buffers(pa.struct(fields), 4, [validity], children=children)


def nested(moment: pa.DataType) -> list[pa.Array]:
    structs = of_spark(moment)
    lists = pa.field("element", structs.type, nullable=False)
    maps = pa.map_(pa.string(), pa.field("value", structs.type, nullable=False))
    return [
        structs,
        structs.slice(1, 2),
        pa.ListArray.from_arrays(pa.array([0, 2, None, 4]), structs, type=pa.list_(lists)),
        pa.MapArray.from_arrays(pa.array([0, 2, 4]), pa.array(["a", "b", "c", "d"]), structs, type=maps),
    ]


@pytest.mark.parametrize("place", range(4))
@pytest.mark.parametrize("moment", [UTC, LOCAL])
def test_a_struct_that_is_null_may_have_nulls_in_fields_that_have_none(moment: pa.DataType, place: int) -> None:
    given, wanted = pa.chunked_array([nested(moment)[place]] * 2), nested(UTC)[place]
    schema = pa.schema([("v", wanted.type)])
    found = fitted(pa.table({"v": given}), schema)
    assert found.schema == schema
    found.validate(full=True)
    assert found.column(0).to_pylist() == wanted.to_pylist() * 2


@pytest.mark.parametrize("place", range(4))
@pytest.mark.parametrize("moment", [UTC, LOCAL])
def test_a_batch_without_rows_is_one_still(moment: pa.DataType, place: int) -> None:
    """Its first chunk is taken."""
    rows = pa.table({"v": nested(moment)[place].slice(0, 0)})
    declared = nested(UTC)[place].type
    for kind in (declared, _nullable(declared)):
        assert fitted(rows, pa.schema([("v", kind)])).column(0).chunk(0) == pa.array([], kind)
