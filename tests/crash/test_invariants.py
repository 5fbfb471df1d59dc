"""The check itself: it accepts correct output and finds every kind of damage."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import duckdb
import pytest

from sparkjet.sinks.manifest import MANIFEST_DIRECTORY
from tests.crash.conftest import HALF, SEED, WHOLE, copied
from tests.crash.feeds import write_skewed
from tests.crash.invariants import check, same_epochs
from tests.crash.jobs import JOBS, Job, Place
from tests.crash.readers import listed, newest_record, published, recorded_batches
from tests.crash.replay import replay
from tests.interpreting import interpreted

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SUMS = JOBS["sums"]
FEW = 2
"""Files of the queries that take long."""


def _duplicate(place: Place) -> None:
    file = listed(place.out)[0]
    shutil.copy(file, file.with_name(f"part-9{file.name}"))


def _remove(place: Place) -> None:
    listed(place.out)[0].unlink()


def _remove_epoch(place: Place) -> None:
    """File and manifest entry, so that both readers agree."""
    first = min(published(place.out))
    for file in published(place.out)[first]:
        file.unlink()
    next(place.out.glob(f"{MANIFEST_DIRECTORY}/*/*/manifest/{first:09d}.json")).unlink()


def _publish_twice(place: Place) -> None:
    """A second epoch with the rows of the first, in both ways of reading."""
    manifest = next(place.out.glob(f"{MANIFEST_DIRECTORY}/*/*/manifest"))
    entry = min(manifest.glob("*.json"))
    for file in published(place.out)[int(entry.stem)]:
        shutil.copy(file, file.with_name(file.name.replace("part-0", "part-9")))
    (manifest / "900000000.json").write_text(
        entry.read_text().replace("part-0", "part-9").replace(f'"epoch":{int(entry.stem)}', '"epoch":900000000')
    )


def _rewrite(file: Path, columns: str) -> None:
    """Change a Parquet file; `columns` goes into a SELECT."""
    changed = file.with_suffix(".changed")
    with duckdb.connect() as db:
        db.execute(f"COPY (SELECT {columns} FROM read_parquet('{file}')) TO '{changed}' (FORMAT parquet)")
    changed.rename(file)


def _alter_a_total(place: Place) -> None:
    _rewrite(listed(place.out)[0], "* REPLACE (total + 1 AS total)")


def _alter_the_judging_watermark(place: Place) -> None:
    _rewrite(listed(place.late)[-1], "* REPLACE (_watermark + INTERVAL 1 MICROSECOND AS _watermark)")


def _alter_the_reason(place: Place) -> None:
    _rewrite(listed(place.late)[0], "* REPLACE ('late' AS _reason)")


def _alter_a_late_value(place: Place) -> None:
    _rewrite(listed(place.late)[-1], "* REPLACE (n + 1 AS n)")


def _forget_late_rows(place: Place) -> None:
    shutil.rmtree(place.late)


def _stray_staging(place: Place) -> None:
    next(place.out.glob(f"{MANIFEST_DIRECTORY}/*/*/staging")).joinpath("000000-000000009-0").mkdir()


def _stray_delta(place: Place) -> None:
    (place.home / "snapshots" / "state" / "000000-000000009-0-delta").mkdir()


@pytest.mark.parametrize(
    "damage",
    [
        _duplicate,
        _remove,
        _remove_epoch,
        _publish_twice,
        _alter_a_total,
        _alter_the_judging_watermark,
        _alter_the_reason,
        _alter_a_late_value,
        _forget_late_rows,
        _stray_staging,
        _stray_delta,
    ],
)
def test_damage_is_found(done: Place, damage: Callable[[Place], None]) -> None:
    check(done, SUMS, batches=WHOLE, closings=[WHOLE])
    damage(done)
    with pytest.raises(AssertionError):
        check(done, SUMS, batches=WHOLE, closings=[WHOLE])


STAGES = [pytest.param(name, marks=pytest.mark.long) for name in ("state", "joins")]
"""Jobs of the other operators; their outputs are read and compared as those of windows are, whose damage CI finds."""


@pytest.fixture(scope="module", params=STAGES)
def stages_done(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Job, Place]:
    """A query of other operators that has ended; for copying only."""
    job, root = JOBS[request.param], tmp_path_factory.mktemp("stages")
    write_skewed(root / "feed", SEED, 0, FEW)
    place = Place(root / job.name, root / "feed")
    with interpreted(spark):
        job.run(spark, place)
    check(place, job, batches=FEW, closings=[FEW])
    return job, place


def test_damage_of_any_output_is_found(stages_done: tuple[Job, Place], tmp_path: Path) -> None:
    job, done = stages_done
    for output, damage in product(job.rules.outputs, ("gone", "twice")):
        place = copied(done, tmp_path / f"{output}-{damage}")
        file = listed(place.root / output)[-1]
        if damage == "gone":
            file.unlink()
        else:
            shutil.copy(file, file.with_name(f"part-9{file.name}"))
        with pytest.raises(AssertionError, match=r"rows are missing|which is missing|a plain listing"):
            check(place, job, batches=FEW, closings=[FEW])


def test_an_end_that_was_not_the_one_stated_is_found_in_other_operators(stages_done: tuple[Job, Place]) -> None:
    job, done = stages_done
    with pytest.raises(AssertionError):
        check(done, job, batches=FEW, closings=[FEW - 1, FEW])


def test_windows_that_were_not_closed_as_stated_are_found(done: Place) -> None:
    with pytest.raises(AssertionError):
        check(done, SUMS, batches=WHOLE, closings=[HALF, WHOLE])


def test_state_that_is_left_is_found(half_done: Place) -> None:
    with pytest.raises(AssertionError):
        check(half_done, SUMS, batches=HALF, closings=[])


def test_other_epochs_are_found(done: Place, finished: Place) -> None:
    same_epochs(done, finished, SUMS)
    _remove_epoch(done)
    with pytest.raises(AssertionError):
        same_epochs(done, finished, SUMS)


def test_the_feed_is_worth_its_name(finished: Place) -> None:
    """Late rows of several substreams, rows without a time, null keys, an epoch in several files."""
    batches = recorded_batches(finished, SUMS.rules)
    replayed = replay(batches, SUMS.rules, [WHOLE])
    assert len(replayed.dropped("late")) >= 2
    assert sum(replayed.dropped("late").values()) > 5
    assert sum(replayed.dropped("null_timestamp").values()) > 3
    assert any(event["key"] is None for event in replayed.accepted)
    assert any(len(files) > 1 for files in published(finished.out).values())
    without_substreams = replay(batches, JOBS["stacks"].rules, [WHOLE])
    assert without_substreams.dropped("late") != replayed.dropped("late"), (
        "substreams that are found on the way make no difference"
    )
    assert newest_record(finished).epoch == WHOLE + 1
