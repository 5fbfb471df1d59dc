"""The invariants: no row lost, duplicated or wrongly late."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from pathlib import Path

from tests.crash.feeds import Event, read_events
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
from tests.crash.replay import Row, Rules, replay
from tests.crash.stages import StagesRules


def check(place: Place, job: Job, *, batches: int, closings: Collection[int], swept: bool = True) -> None:
    """Assert everything that must hold once a query has ended.

    Args:
        place: The query's directories.
        job: The query's job.
        batches: Number of files in its feed.
        closings: After how many batches a run ended and closed its windows; the last is ``batches``.
        swept: Whether no orphans may be left; False if another driver was still dying when the last one started.
    """
    recorded = recorded_batches(place, job.rules)
    assert len(recorded) == batches, f"{len(recorded)} batches were recorded, the feed has {batches}"
    files = sorted(place.feed.glob("[!.]*"))
    assert len(files) == batches
    given = Counter(event["id"] for file in files for event in read_events(file, job.rules.time))
    assert max(given.values()) == 1
    check_files(place, job.rules, recorded, given, closings)
    if swept:
        assert strays(place) == []


def check_files(
    place: Place, rules: Rules, recorded: Sequence[Sequence[Event]], given: Counter[int], closings: Collection[int]
) -> None:
    """Assert that a query into files has accepted the right rows, and has the right results.

    Args:
        place: The query's directories.
        rules: The query's rules.
        recorded: Its batches, according to its records.
        given: The ids of all events in its feed, read without the query's records.
        closings: After how many batches a run ended.
    """
    if isinstance(rules, StagesRules):
        results = check_stages(place, rules, recorded, closings)
    elif rules.windowed:
        results = rules.results(check_accepted(place, rules, recorded, given, closings))
    else:
        results = rules.results(check_all_accepted(place, recorded, given))
    for output, whole in results.items():
        found = _both_ways(place.root / output, lambda files, output=output: result_rows(files, rules, output))
        assert found == whole, difference(output, found, whole)
        assert max(found.values(), default=1) == 1


def check_accepted(
    place: Place, rules: Rules, recorded: Sequence[Sequence[Event]], given: Counter[int], closings: Collection[int]
) -> list[Event]:
    """Assert that late rows are right, and accepted ⊎ late ⊎ null timestamps = input; returns the accepted events."""
    expected = replay(recorded, rules, closings)
    late = _both_ways(place.late, lambda files: late_rows(files, rules))
    assert late == expected.late, difference("late rows", late, expected.late)
    ident = rules.columns.index("id")
    dropped: Counter[int] = Counter()
    for row, times in late.items():
        dropped[row[ident]] += times
    assert Counter(event["id"] for event in expected.accepted) + dropped == given

    record = newest_record(place)
    first, *_ = record.stages.values()
    assert first.late == expected.dropped("late")
    assert first.null_timestamps == expected.dropped("null_timestamp")
    for name, aggregation in record.stages.items():
        assert not aggregation.deltas, f"state is left: {name}: {aggregation.deltas}"
        assert aggregation is first or not (aggregation.late or aggregation.null_timestamps)
    return expected.accepted


def check_stages(
    place: Place, rules: StagesRules, recorded: Sequence[Sequence[Event]], closings: Collection[int]
) -> Mapping[str, Counter[Row]]:
    """Assert that late rows and counters are right in every stage, and that no state is left; returns the results."""
    for source in range(1, rules.sources):
        assert recorded_batches(place, rules, source) == recorded, "the sources were not read side by side"
    expected = rules.expected(recorded, closings)
    late = _both_ways(place.late, lambda files: late_rows(files, rules))
    assert late == expected.late, difference("late rows", late, expected.late)
    stages = newest_record(place).stages
    dropped = {name: (stage.late, stage.null_timestamps) for name, stage in stages.items()}
    assert dropped == expected.dropped
    left = {name for name, stage in stages.items() if stage.deltas}
    assert left == set(expected.kept), f"state is left in {left}"
    return expected.results


def check_all_accepted(place: Place, recorded: Sequence[Sequence[Event]], given: Counter[int]) -> list[Event]:
    """Assert that a query without windows has taken every row and has no state; returns the events."""
    accepted = [event for batch in recorded for event in batch]
    assert Counter(event["id"] for event in accepted) == given
    record = newest_record(place)
    assert record.stages == {}
    assert record.watermarks.inputs == {}
    return accepted


def same_epochs(place: Place, other: Place, job: Job) -> None:
    """Assert that two queries published the same rows in the same epochs."""
    outputs = {output: partial(result_rows, output=output) for output in job.rules.outputs}
    for output, read in {**outputs, "late": late_rows}.items():
        ours = {epoch: read(files, job.rules) for epoch, files in published(place.root / output).items()}
        assert ours == {epoch: read(files, job.rules) for epoch, files in published(other.root / output).items()}


def _both_ways(directory: Path, read: object) -> Counter[Row]:
    """Rows of a directory, which must be the same by listing its files and by the manifest."""
    assert callable(read)
    named = [file for files in published(directory).values() for file in files]
    gone = [file for file in named if not file.is_file()]
    assert not gone, f"the manifest names {gone[0]}, which is missing"
    plain: Counter[Row] = read(listed(directory))
    by_manifest: Counter[Row] = read(named)
    assert plain == by_manifest, difference("a plain listing", plain, by_manifest)
    return plain


def difference(what: str, found: Counter[Row], expected: Counter[Row]) -> str:
    """The message of an assertion about wrong rows."""
    missing, surplus = list((expected - found).elements()), list((found - expected).elements())
    return (
        f"{what}: {len(missing)} rows are missing, {len(surplus)} too many; "
        f"missing {missing[:3]}, too many {surplus[:3]}"
    )
