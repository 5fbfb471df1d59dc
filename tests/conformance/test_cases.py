from __future__ import annotations

import pytest

from tests.conformance import read_cases
from tests.conformance.verdicts import NotationError

TEXT = r"""
# Title

| id | not a group |
|----|---|
| X0 | before any group |

## FR. Frames

Some words.

| id | setup | input | expected | origin |
|:---|---|:-:|---|---|
| F1 | `frame 4` ; a comment | | -5->(-8,-4) | |
|  F2  | frame 4 | in | `0->(0,4)`<br>1->(0,4) | a \| b

### A part of the group

| F3 | without a head |

## Notation

| Y1 | not counted |

## map. Substreams
| id | setup |
|---|---|
| | nameless |
|| |
# Another title
| Z1 | after it |
"""


def test_rows_of_groups_are_found_and_heads_are_not() -> None:
    cases = read_cases(TEXT)
    assert [(case.group, case.id) for case in cases] == [
        ("FR", "F1"),
        ("FR", "F2"),
        ("FR", "F3"),
        ("MAP", "line-28"),
        ("MAP", "line-29"),
    ]


def test_cells_are_cut_at_their_borders_only() -> None:
    first, second, third = read_cases(TEXT)[:3]
    assert first.cells == ("F1", "frame 4 ; a comment", "", "-5->(-8,-4)", "")
    assert second.cells == ("F2", "frame 4", "in", "0->(0,4)<br>1->(0,4)", "a | b")
    assert third.cells == ("F3", "without a head")


def test_what_follows_a_semicolon_in_a_setup_is_a_comment() -> None:
    assert read_cases(TEXT)[0].setup == "frame 4"
    with pytest.raises(NotationError, match="only a comment"):
        _ = read_cases("## FR. x\n| F1 | ; frame 4 |")[0].setup


def test_missing_cells_are_named() -> None:
    case = read_cases("## FR. x\n| F1 | frame 4 | |")[0]
    for position in (2, 3, 9):
        with pytest.raises(NotationError, match="no cell for the script"):
            case.cell(position, "the script")


@pytest.mark.parametrize("text", ["", "\n\n", "## FR. x", "## FR. x\n|---|---|\n", "| a | b |\n|---|---|\n| 1 | 2 |"])
def test_a_file_without_rows_has_no_cases(text: str) -> None:
    assert read_cases(text) == []


def test_the_repositorys_own_copy_is_found_whole() -> None:
    from tests.conformance.corruption import CASES

    groups = {group: sum(case.group == group for case in CASES) for group in ("FR", "SW", "SES", "POL", "MAP", "COA")}
    assert groups == {"FR": 4, "SW": 30, "SES": 12, "POL": 14, "MAP": 13, "COA": 14}
    assert len({case.id for case in CASES}) == len(CASES)
