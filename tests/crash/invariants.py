"""The invariants: nothing lost, nothing doubled, nothing called late that was not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from functools import partial
from pathlib import Path

from tests.crash.jobs import Job, Place
from tests.crash.readers import (
    late_rows,
    listed,
    newest_record,
    published,
    recorded_batches,
    result_rows,
    strays,
)
from tests.crash.replay import Row, replay


def check(place: Place, job: Job, *, batches: int, closings: Collection[int], swept: bool = True) -> None:
    """Assert everything that must hold once a query has come to its end.

    Args:
        place: Where it ran.
        job: What ran.
        batches: Number of files in its feed.
        closings: After how many batches a run came to its end and closed what was open; the last is ``batches``.
        swept: Whether nothing that no record names may be left; False while another driver was still dying when the
            last one started.
    """
    rules = job.rules
    recorded = recorded_batches(place, rules)
    assert len(recorded) == batches, f"{len(recorded)} batches were recorded, the feed has {batches}"
    assert len(list(place.feed.glob("[!.]*"))) == batches
    expected = replay(recorded, rules, closings)

    late = _both_ways(place.late, lambda files: late_rows(files, rules))
    assert late == expected.late, _difference("late rows", late, expected.late)
    for output, whole in rules.results(expected.accepted).items():
        found = _both_ways(place.root / output, lambda files, output=output: result_rows(files, rules, output))
        assert found == whole, _difference(output, found, whole)
        assert max(found.values(), default=1) == 1
    _partition(place, job, expected.accepted)

    record = newest_record(place)
    first = record.stages["stage0"]
    assert first.late == expected.dropped("late")
    assert first.null_timestamps == expected.dropped("null_timestamp")
    for name, stage in record.stages.items():
        assert not stage.deltas, f"state is left: {name}: {stage.deltas}"
        assert stage is first or not (stage.late or stage.null_timestamps)
    if swept:
        assert strays(place) == []


def same_epochs(place: Place, other: Place, job: Job) -> None:
    """Assert that two queries published the same rows in the same epochs."""
    outputs = {output: partial(result_rows, output=output) for output in job.rules.outputs}
    for output, read in {**outputs, "late": late_rows}.items():
        ours = {epoch: read(files, job.rules) for epoch, files in published(place.root / output).items()}
        assert ours == {epoch: read(files, job.rules) for epoch, files in published(other.root / output).items()}


def _partition(place: Place, job: Job, accepted: Sequence[dict[str, object]]) -> None:
    """Accepted ⊎ late ⊎ null timestamps = input, by the id of each event, straight from the feed's files."""
    from tests.crash.feeds import read_events

    files = sorted(place.feed.glob("[!.]*"))
    given = Counter(event["id"] for file in files for event in read_events(file, job.rules.time))
    ident = job.rules.columns.index("id")
    dropped: Counter[object] = Counter()
    for row, times in late_rows(listed(place.late), job.rules).items():
        dropped[row[ident]] += times
    assert max(given.values()) == 1
    assert Counter(event["id"] for event in accepted) + dropped == given


def _both_ways(directory: Path, read: object) -> Counter[Row]:
    """Rows of a directory, the same whether its files are listed or looked up in the manifest."""
    assert callable(read)
    named = [file for files in published(directory).values() for file in files]
    gone = [file for file in named if not file.is_file()]
    assert not gone, f"the manifest names {gone[0]}, which is missing"
    plain: Counter[Row] = read(listed(directory))
    by_manifest: Counter[Row] = read(named)
    assert plain == by_manifest, _difference("a plain listing", plain, by_manifest)
    return plain


def _difference(what: str, found: Counter[Row], expected: Counter[Row]) -> str:
    missing, surplus = list((expected - found).elements()), list((found - expected).elements())
    return (
        f"{what}: {len(missing)} rows are missing, {len(surplus)} too many; "
        f"missing {missing[:3]}, too many {surplus[:3]}"
    )
