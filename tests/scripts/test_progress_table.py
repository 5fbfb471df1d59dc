from __future__ import annotations

from scripts.progress_table import progress_table
from sparkjet import EpochPhase

MOMENTS = {EpochPhase.BEGIN, EpochPhase.COMMITTING}


def test_the_table_names_every_phase_and_no_other() -> None:
    (row,) = (line for line in progress_table().splitlines() if line.startswith("| `epoch.durationMs`"))
    named = row.split(":")[1].split(".")[0].replace("`", "").replace(" ", "").split(",")
    assert named == [phase.value for phase in EpochPhase if phase not in MOMENTS]
