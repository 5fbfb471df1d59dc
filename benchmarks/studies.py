"""Measurements of sparkjet, with their own peers or none: latency, state, memory, growth, pipelines, stores."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

import msgspec

from benchmarks.process import REPOSITORY, PeerError
from benchmarks.ratio import Ratio

STUDIES = {
    "T6": "latency",
    "ST": "start",
    "T7": "snapshots",
    "T9-touched": "sessions",
    "T10": "memory",
    "T11": "growth",
    "T12": "pipelines",
    "T18": "rolling",
    "T19": "operators",
    "MK": "many_keys",
    "T20": "stores",
    "C1": "partitions",
    "KW": "kafka_sink",
    "RQ": "rabbitmq",
    "GR": "grid",
    "KR": "kafka",
    "PG": "postgres",
    "P1": "projection",
    "DL": "dead_letters",
    "AQ": "artemis",
    "RW": "rabbitmq_sink",
    "GM": "grid_map",
    "GJ": "grid_journal",
    "JW": "jdbc",
    "DW": "delta_sink",
    "IW": "iceberg_sink",
}
"""Modules by id, in the order in which they run; each is a separate program."""
LONGEST = 1800
"""Seconds after which a study is considered hung."""


def run(identifier: str) -> list[Ratio]:
    """Run a study in a separate process, which may print more on standard error.

    Raises:
        PeerError: It failed, or took longer than ``LONGEST`` seconds and was killed.
    """
    words = [sys.executable, "-m", f"benchmarks.{STUDIES[identifier]}"]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    try:
        ended = subprocess.run(words, stdout=subprocess.PIPE, text=True, timeout=LONGEST, env=environment, check=False)
    except subprocess.TimeoutExpired as error:
        raise PeerError(f"{identifier} was still running after {LONGEST} s and was killed.") from error
    lines = ended.stdout.splitlines()
    if ended.returncode or not lines:
        raise PeerError(f"{identifier} ended with {ended.returncode} and no report.")
    return msgspec.json.decode(lines[-1], type=list[Ratio])


def main(study: Callable[[], list[Ratio]]) -> None:
    """The main function of a study: its ratios are the last line of standard output."""
    found = study()
    sys.stdout.write(msgspec.json.encode(found).decode() + "\n")
