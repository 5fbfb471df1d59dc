from __future__ import annotations

from pathlib import Path

import pytest

from scripts.progress_table import metrics_table, progress_table, reasons_table
from sparkjet import EpochPhase

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guide"
MOMENTS = {EpochPhase.BEGIN, EpochPhase.COMMITTING}


@pytest.mark.parametrize(
    ("page", "table"),
    [("running", progress_table()), ("running", reasons_table()), ("monitoring", metrics_table())],
    ids=["progress", "reasons", "metrics"],
)
def test_the_page_has_the_table_of_the_types(page: str, table: str) -> None:
    assert table in (GUIDE / f"{page}.md").read_text(), "python -m scripts.progress_table prints what belongs there"


def test_the_table_names_every_phase_and_no_other() -> None:
    (row,) = (line for line in progress_table().splitlines() if line.startswith("| `epoch.durationMs`"))
    named = row.split(":")[1].split(".")[0].replace("`", "").replace(" ", "").split(",")
    assert named == [phase.value for phase in EpochPhase if phase not in MOMENTS]
