from __future__ import annotations

from typing import Any

import pytest

from sparkjet.errors import RecoveryError
from sparkjet.time.states import entries, entry, optional_entry


@pytest.mark.parametrize("snapshot", [None, 7, [], {}, {"other": 1}, {"n": "7"}, {"n": 7.0}, {"n": True}, {"n": None}])
def test_an_entry_of_another_kind_is_refused(snapshot: Any) -> None:
    with pytest.raises(RecoveryError, match="'n'"):
        entry(snapshot, "n", int, "somebody")


def test_an_entry_is_answered() -> None:
    assert entry({"n": 7}, "n", int, "somebody") == 7
    assert entry({"n": True}, "n", bool, "somebody") is True


def test_only_null_stands_for_nothing() -> None:
    assert optional_entry({"n": None}, "n", int, "somebody") is None
    assert optional_entry({"n": 7}, "n", int, "somebody") == 7
    with pytest.raises(RecoveryError, match="no entry"):
        optional_entry({}, "n", int, "somebody")


def test_a_list_is_checked_and_copied() -> None:
    saved = {"slots": [1, 2]}
    read = entries(saved, "slots", int, "somebody")
    read.append(3)
    assert saved == {"slots": [1, 2]}
    with pytest.raises(RecoveryError, match="'x', which is no int"):
        entries({"slots": [1, "x"]}, "slots", int, "somebody")
