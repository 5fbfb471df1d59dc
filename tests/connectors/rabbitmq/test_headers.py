"""Headers as text: every value that AMQP has, and whatever a client makes of it."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from pika.data import decode_table, encode_table

from sparkjet.connectors.rabbitmq.headers import text_of

SINGLE: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.text(),
    st.binary(),
    st.datetimes(timezones=st.just(dt.timezone.utc), min_value=dt.datetime(1970, 1, 2)).map(
        lambda at: at.replace(microsecond=0)
    ),
    st.integers(-(2**31), 2**31 - 1).map(lambda units: Decimal(units) / 1000),
)
VALUES = st.recursive(SINGLE, lambda each: st.lists(each) | st.dictionaries(st.text(max_size=20), each), max_leaves=9)


@given(st.dictionaries(st.text(max_size=20), VALUES))
def test_whatever_a_header_has_becomes_text(headers: dict[str, Any]) -> None:
    pieces: list[bytes] = []
    encode_table(pieces, headers)
    decoded, _ = decode_table(b"".join(pieces), 0)
    for name, value in decoded.items():
        found = text_of(value)
        assert found is None if headers[name] is None else isinstance(found, str)
        assert pa.array([found], pa.string()).to_pylist() == [found]
        if isinstance(headers[name], str):
            assert found == headers[name]
