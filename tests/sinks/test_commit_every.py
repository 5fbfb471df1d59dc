"""How many epochs a table is given at once: what the option takes."""

from __future__ import annotations

import pytest

from sparkjet.errors import AnalysisError
from sparkjet.options import Options
from sparkjet.sinks.commit_every import MOST, CommitEvery


@pytest.mark.parametrize(
    ("text", "epochs", "duration"),
    [(None, 1, None), ("1", 1, None), ("20", 20, None), ("90s", MOST, 90_000_000), ("2 minutes", MOST, 120_000_000)],
)
def test_a_number_or_an_interval(text: str | None, epochs: int, duration: int | None) -> None:
    given = {} if text is None else {"commitEvery": text}
    found = CommitEvery.of(Options(given))
    assert found == CommitEvery(epochs, duration)
    assert found.gathers == (epochs > 1)
    assert [found.is_due(epochs - 1, 0), found.is_due(epochs, 0)] == [False, True]
    assert found.is_due(1, 89_999_999) == (epochs == 1)


@pytest.mark.parametrize("text", ["0", "1001", "-1", "often", "1 month"])
def test_what_is_neither_is_refused(text: str) -> None:
    with pytest.raises(AnalysisError, match="commitEvery"):
        CommitEvery.of(Options({"commitEvery": text}))
