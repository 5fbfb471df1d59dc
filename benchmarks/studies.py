"""Measurements of sparkjet by itself that are no contest: latency, snapshots, sessions, memory, growth, servers."""

from __future__ import annotations

import sys
from collections.abc import Callable

import msgspec

from benchmarks.ratio import Ratio
from benchmarks.run import last_line

STUDIES = {
    "T6": "latency",
    "T7": "snapshots",
    "T9-touched": "sessions",
    "T10": "memory",
    "T11": "growth",
    "PG": "postgres",
    "KR": "kafka",
    "KW": "kafka_sink",
}
"""Modules by id, in the order in which they run; each is a program of its own."""


def run(identifier: str) -> list[Ratio]:
    """Run a study in a process of its own.

    Raises:
        PeerError: It failed.
    """
    words = [sys.executable, "-m", f"benchmarks.{STUDIES[identifier]}"]
    return msgspec.json.decode(last_line(words, identifier), type=list[Ratio])


def main(study: Callable[[], list[Ratio]]) -> None:
    """What a study does when it is run: its ratios are the last line of standard output."""
    found = study()
    sys.stdout.write(msgspec.json.encode(found).decode() + "\n")
