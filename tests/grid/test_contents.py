"""The digest of a content is the same wherever it was sent to, and its size covers what it keeps in memory."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given

from sparkjet_grid.contents import Content, check_batch, check_schema, digest_of, size_of
from sparkjet_grid.errors import MalformedError
from tests.grid.batches import FILE, NESTED, ROWS, batches, file_of, rows_of, sent


@given(batches())
def test_a_batch_that_was_sent_has_the_digest_and_size_of_one_that_was_sent_on(batch: pa.RecordBatch) -> None:
    once = sent(batch)
    twice = sent(once)
    assert once.equals(batch)
    assert digest_of([once]) == digest_of([twice])
    assert size_of(once) == size_of(twice)
    check_batch(once)


@given(batches(), batches())
def test_batches_with_other_values_have_another_digest(one: pa.RecordBatch, other: pa.RecordBatch) -> None:
    # But for values under a null, which Arrow keeps and equals() does not compare.
    if not one.equals(other):
        assert digest_of([sent(one)]) != digest_of([sent(other)])


def digest(kind: pa.DataType, values: list[object]) -> str:
    return digest_of([sent(pa.record_batch([pa.array(values, kind)], names=["a"]))])


def test_nulls_and_rows_without_a_byte_are_in_the_digest() -> None:
    assert digest(pa.int64(), [0, None]) != digest(pa.int64(), [None, 0])
    assert digest(pa.null(), [None]) != digest(pa.null(), [None, None])
    assert digest(pa.binary(), [b"xy", b"z"]) != digest(pa.binary(), [b"x", b"yz"])


def test_a_digest_says_how_it_was_computed() -> None:
    # Kept in records: another value for the same rows would make every member's copy wrong.
    assert digest(pa.int64(), [1, 2, 3]) == "xxh3-64:9b59f1fc059e3d7f"


def test_content_counts_its_rows_and_depends_on_the_order_of_its_batches() -> None:
    first, second = rows_of(3), rows_of(2, start=3)
    content = Content.of(ROWS, [first, second])
    assert (content.rows, content.size) == (5, size_of(first) + size_of(second))
    assert content.digest != Content.of(ROWS, [second, first]).digest


def test_a_digest_that_is_known_is_not_computed() -> None:
    assert Content.of(ROWS, [rows_of(3)], "known").digest == "known"


def test_an_empty_batch_takes_memory_too() -> None:
    assert size_of(sent(rows_of(0))) >= 1024


def test_what_a_message_holds_beside_its_columns_is_counted() -> None:
    whole = pa.record_batch({"small": [1], "large": [bytes(100_000)]})
    part = sent(whole).select(["small"])
    # The other column is gone, and yet its bytes are kept as long as this one is.
    assert part.nbytes < 100
    assert size_of(part) > 100_000


REFUSED = [
    pa.dictionary(pa.int32(), pa.string()),
    pa.list_(pa.dictionary(pa.int32(), pa.string())),
    pa.dense_union([pa.field("a", pa.int64())]),
    pa.string_view(),
    pa.list_view(pa.int64()),
    pa.run_end_encoded(pa.int32(), pa.int64()),
    pa.uuid(),
]


@pytest.mark.parametrize("kind", REFUSED, ids=str)
def test_types_that_refer_to_other_places_are_refused(kind: pa.DataType) -> None:
    with pytest.raises(MalformedError, match="column 'c' has the type"):
        check_schema(pa.schema([("a", pa.int64()), ("c", kind)]))


def test_plain_and_nested_types_are_held() -> None:
    for schema in (ROWS, FILE, NESTED):
        check_schema(schema)


def test_offsets_that_lead_out_of_a_buffer_are_refused() -> None:
    whole = file_of(bytes(77_777))
    before, _, after = whole.serialize().to_pybytes().rpartition((77_777).to_bytes(4, "little"))
    # The end of the only value.
    forged = before + (99_999_999).to_bytes(4, "little") + after
    batch = pa.ipc.read_record_batch(pa.py_buffer(forged), FILE)
    with pytest.raises(MalformedError, match="not valid"):
        check_batch(batch)
