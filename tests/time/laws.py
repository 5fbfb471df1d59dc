"""Shared by the laws of the time core."""

from __future__ import annotations

import json
from typing import Any

import msgspec
from hypothesis import settings
from hypothesis import strategies as st

from sparkjet.time import (
    PolicySettings,
    carried,
    limiting_lag,
    limiting_lag_and_delay,
    limiting_lag_and_lull,
    limiting_real_time_lag,
    limiting_timestamp_and_wall_clock_lag,
)

law = settings(derandomize=True, deadline=None, max_examples=150)

TIMES = st.integers(-60, 60)
PASSING = st.integers(0, 12)

ANY_POLICY: st.SearchStrategy[PolicySettings] = st.one_of(
    st.builds(limiting_lag, st.integers(0, 9)),
    st.builds(limiting_lag_and_delay, st.integers(0, 9), st.integers(5, 12), st.integers(1, 5)),
    st.builds(limiting_lag_and_lull, st.integers(0, 9), st.integers(0, 9)),
    st.builds(limiting_timestamp_and_wall_clock_lag, st.integers(0, 9), st.integers(0, 9)),
    st.builds(limiting_real_time_lag, st.integers(0, 9)),
    st.builds(carried, st.builds(limiting_lag_and_lull, st.integers(0, 9), st.integers(0, 9))),
)


def through_json(snapshot: Any) -> Any:
    """A snapshot as it comes back from a file."""
    return json.loads(msgspec.json.encode(snapshot))
