"""Objects that users print say what they are."""

from __future__ import annotations

import inspect

import pytest

import sparkjet as sj
from sparkjet.api.aggregate_rows import GroupedResults
from sparkjet.api.frame_methods import NaFunctions
from sparkjet.api.grouped import GroupedStream, KeyedStream, LateStream, WindowedStream
from sparkjet.api.writer import StreamWriter
from sparkjet.engine.held_tables import HeldTable
from sparkjet.plan.static_tables import RenewedTable

PUBLIC = [getattr(sj, name) for name in sj.__all__ if inspect.isclass(getattr(sj, name))]
OF_METHODS = [
    GroupedStream,
    GroupedResults,
    HeldTable,
    KeyedStream,
    LateStream,
    NaFunctions,
    RenewedTable,
    StreamWriter,
    WindowedStream,
]


@pytest.mark.parametrize("kind", [*PUBLIC, *OF_METHODS])
def test_every_public_class_has_one(kind: type) -> None:
    is_protocol = getattr(kind, "_is_protocol", False)
    assert is_protocol or kind.__repr__ is not object.__repr__


def test_of_clocks() -> None:
    assert repr(sj.ManualClock(10)) == "ManualClock(10)"
    assert repr(sj.SystemClock()) == "SystemClock()"
