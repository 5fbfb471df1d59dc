"""Checks: what the three sinks must have after some files, and that nothing is left over at the end."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from sparkjet.time import MIN
from tests.crash.delivered import check_table, check_topic, compare_table, compare_topic
from tests.crash.feeds import read_events
from tests.crash.invariants import check, difference
from tests.crash.jobs import Job, Place
from tests.crash.readers import late_rows, listed, result_rows
from tests.crash.replay import batch_result, replay

if TYPE_CHECKING:
    from pathlib import Path

    from tests.servers.kafka import KafkaServer
    from tests.servers.postgres import PostgresServer


def check_so_far(place: Place, job: Job, postgres: PostgresServer, kafka: KafkaServer) -> None:
    """Assert that the sinks have every window that has closed, once, and every late row; nothing else."""
    rules = job.rules
    seen = replay([read_events(file, rules.time) for file in files_of(place)], rules, closings=())
    upto = seen.watermark if seen.watermark is not None else MIN
    rows = Counter({row: times for row, times in batch_result(seen.accepted, rules).items() if row[1] <= upto})
    found = result_rows(listed(place.out), rules)
    assert found == rows, difference("the files", found, rows)
    late = late_rows(listed(place.late), rules)
    assert late == seen.late, difference("the late rows", late, seen.late)
    compare_table(postgres, place, rows)
    compare_topic(kafka, place, rows)


def check_all(place: Place, job: Job, postgres: PostgresServer, kafka: KafkaServer) -> None:
    """Assert that a query that has ended has delivered everything once, and has left nothing behind."""
    files = len(files_of(place))
    check(place, job, batches=files, closings=[files])
    rows = result_rows(listed(place.out), job.rules)
    check_table(postgres, place, rows)
    check_topic(kafka, place, rows)
    left = left_behind(place)
    assert not left, f"left behind: {left}"


def files_of(place: Place) -> list[Path]:
    """The files of the feed in order, each of which is a batch."""
    return sorted(place.feed.glob("[!.]*"))


def left_behind(place: Place) -> list[str]:
    """Outbox entries, all of which were delivered, and hidden files of incomplete writes."""
    snapshots = place.home / "snapshots"
    # The marks of deliveries stay.
    entries = [path for path in (snapshots / "outbox").glob("*/*") if path.is_dir()]
    temporary = [path for top in (snapshots, place.out, place.late) for path in top.rglob(".*")]
    return sorted(str(path.relative_to(place.root)) for path in entries + temporary)
