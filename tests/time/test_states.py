from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from sparkjet.errors import RecoveryError
from sparkjet.time.states import StateReader


class Numbered(msgspec.Struct, frozen=True):
    n: int


class Flagged(msgspec.Struct, frozen=True):
    flag: bool
    n: int | None
    slots: list[int]


read = StateReader(Numbered, "a counter")
read_flagged = StateReader(Flagged, "a counter")


@pytest.mark.parametrize("snapshot", [{}, {"other": 1}, {"n": "7"}, {"n": 7.0}, {"n": True}, {"n": None}])
def test_an_entry_of_another_kind_is_refused(snapshot: Any) -> None:
    with pytest.raises(RecoveryError, match=r"snapshot of a counter.*\bn\b"):
        read(snapshot)


@pytest.mark.parametrize("snapshot", [None, 7, [], Flagged(flag=True, n=1, slots=[])])
def test_what_is_not_a_snapshot_of_it_is_refused(snapshot: Any) -> None:
    with pytest.raises(RecoveryError, match="snapshot of a counter"):
        read(snapshot)


def test_a_state_comes_back_as_it_was_with_or_without_json_in_between() -> None:
    state = Flagged(flag=True, n=-(2**63), slots=[2**63 - 1])
    assert read_flagged(state) == state
    assert read_flagged(json.loads(msgspec.json.encode(state))) == state


def test_only_null_stands_for_nothing() -> None:
    assert read_flagged({"flag": False, "n": None, "slots": []}) == Flagged(flag=False, n=None, slots=[])
    with pytest.raises(RecoveryError, match="`n`"):
        read_flagged({"flag": False, "slots": []})


def test_a_list_is_checked_and_copied() -> None:
    saved = {"flag": True, "n": 7, "slots": [1, 2]}
    read_flagged(saved).slots.append(3)
    assert saved["slots"] == [1, 2]
    with pytest.raises(RecoveryError, match=r"Expected `int`, got `str` - at `\$\.slots\[1\]`"):
        read_flagged({**saved, "slots": [1, "x"]})
