"""The checks find what is left over."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.jobs import Place
from tests.faults.judging import left_behind


@pytest.mark.parametrize(
    "path",
    [
        "home/snapshots/log/.000000000004.json.17-2f",
        "home/snapshots/outbox/results2/000001-000000004-0/part-0.parquet",
        "out/_sparkjet/query/results/manifest/.000000003.json.17-2f",
        "late/.part-0.parquet",
        "home/snapshots/.sparkjet-probe-2f/part-0.parquet",
    ],
)
def test_what_is_left_behind_is_found(tmp_path: Path, path: str) -> None:
    place = Place(tmp_path, tmp_path / "feed")
    mark = "home/snapshots/outbox/results2/delivered-000001-000000003-0"
    for usual in ("home/snapshots/log/000000000004.json", "out/part-0.parquet", mark):
        (tmp_path / usual).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / usual).touch()
    assert left_behind(place) == []
    (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / path).touch()
    (found,) = left_behind(place)
    assert path.startswith(found)
