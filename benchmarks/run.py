"""Runs one work on one peer, or anything else that reports, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from benchmarks.report import Report
from benchmarks.work import Work

JAVA = Path(__file__).parent / "java"
BYTEWAX = Path(__file__).parent / ".venv-bytewax"
LONGEST = 900
"""Seconds after which a peer is taken for hung."""
OPENED = (
    "java.base/java.lang",
    "java.base/java.util",
    "java.base/java.nio",
    "java.base/sun.nio.ch",
    "java.management/sun.management",
    "jdk.management/com.sun.management.internal",
)
"""What Hazelcast and Flink ask to have opened on Java 17."""


class PeerError(Exception):
    """A peer ended without a report; the message has the end of what it wrote."""


@dataclass(frozen=True)
class Length:
    """How many rows a peer gets: those before it is measured, for Java to compile and windows to fill up, and all."""

    warm_up: int
    rows: int


LENGTHS = {
    "jet": Length(60_000_000, 100_000_000),
    "flink": Length(20_000_000, 40_000_000),
    "bytewax": Length(100_000, 400_000),
}
"""Peers outside Spark; slow ones get a shorter prefix of the same input."""
MANY_KEYS = 50_000
"""From so many keys on, Jet's and Flink's prefix is shorter: it is results that take their time."""
SHORT = {"jet": Length(60_000_000, 70_000_000), "flink": Length(8_000_000, 16_000_000)}


def length(peer: str, work: Work) -> Length:
    """The prefix of the input that a peer gets."""
    many = peer in SHORT and work.keys >= MANY_KEYS and work.shape == "windows"
    return SHORT[peer] if many else LENGTHS[peer]


def run(peer: str, work: Work) -> Report:
    """Run a work and return its report.

    Raises:
        PeerError: The peer failed, or took longer than ``LONGEST`` seconds and was killed.
    """
    return msgspec.json.decode(last_line(command(peer, work), f"{peer} on {work.id}"), type=Report)


def last_line(words: Sequence[str], name: str) -> str:
    """Run a command to its end and return the last line that it prints; all else is shown only if it fails.

    Raises:
        PeerError: It failed, or took longer than ``LONGEST`` seconds and was killed.
    """
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)}
    with tempfile.TemporaryFile("w+") as noise:
        try:
            ended = subprocess.run(
                words,
                stdout=subprocess.PIPE,
                stderr=noise,
                text=True,
                timeout=LONGEST,
                env=environment,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise PeerError(f"{name} was still running after {LONGEST} s and was killed.") from error
        lines = ended.stdout.splitlines()
        if ended.returncode or not lines:
            noise.seek(0)
            last = "".join(noise.readlines()[-30:])
            raise PeerError(f"{name} ended with {ended.returncode} and no report:\n{last}")
        return lines[-1]


def command(peer: str, work: Work) -> list[str]:
    """The command line of a peer."""
    if peer in {"sparkjet", "spark"}:
        return [sys.executable, "-m", f"benchmarks.peers.{peer}", msgspec.json.encode(work).decode()]
    arguments = described(work, length(peer, work))
    if peer == "bytewax":
        return [str(BYTEWAX / "bin" / "python"), str(Path(__file__).parent / "peers" / "bytewax_flow.py"), *arguments]
    opened = [part for package in OPENED for part in ("--add-opens", f"{package}=ALL-UNNAMED")]
    internal = ["--add-modules", "java.se", "--add-exports", "java.base/jdk.internal.ref=ALL-UNNAMED"]
    classes = f"{JAVA}/target/classes{os.pathsep}{JAVA}/target/dependency/*"
    return ["java", "-Xmx4g", *internal, *opened, "-cp", classes, f"benchmarks.{peer.capitalize()}", *arguments]


def described(work: Work, prefix: Length) -> list[str]:
    """A work as words that every language takes apart easily."""
    return [
        f"shape={work.shape}",
        f"keys={work.keys}",
        f"steps={work.steps}",
        f"aggregates={','.join(work.aggregates)}",
        f"density={work.density}",
        f"guarantee={work.guarantee}",
        f"warmUp={prefix.warm_up}",
        f"rows={prefix.rows}",
    ]
