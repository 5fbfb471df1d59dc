"""Starting a peer on a work."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

import msgspec

from benchmarks.process import PeerProcess
from benchmarks.work import Work

JAVA = Path(__file__).parent / "java"
BYTEWAX = Path(__file__).parent / ".venv-bytewax"
OPENED = (
    "java.base/java.lang",
    "java.base/java.util",
    "java.base/java.nio",
    "java.base/sun.nio.ch",
    "java.management/sun.management",
    "jdk.management/com.sun.management.internal",
)
"""Packages that Hazelcast and Flink need opened on Java 17."""


@dataclass(frozen=True)
class Length:
    """Rows of a peer: for the warm-up, in which Java compiles and windows fill up, and measured."""

    warm_up: int
    measured: int


LENGTHS = {
    "jet": Length(60_000_000, 40_000_000),
    "flink": Length(20_000_000, 20_000_000),
    "bytewax": Length(100_000, 200_000),
}
"""Peers outside Spark, with the rows that take about ten seconds; the others are counted in epochs."""
MANY_KEYS = 50_000
SHORT = {"jet": Length(30_000_000, 10_000_000), "flink": Length(8_000_000, 8_000_000)}
"""From so many keys on, stretches are shorter, as the results take the time."""
LONG_STEPS = 300
"""So are those of windows with so many steps, but these have to be full first."""


def length(peer: str, work: Work) -> Length:
    """The rows of a peer."""
    if work.shape == "windows" and peer in SHORT:
        if work.keys >= MANY_KEYS:
            return SHORT[peer]
        if work.steps >= LONG_STEPS:
            return Length(LENGTHS[peer].warm_up, SHORT[peer].measured)
    return LENGTHS[peer]


def start(peer: str, work: Work) -> PeerProcess:
    """Start a peer on a work."""
    return PeerProcess(command(peer, work), f"{peer} on {work.id}")


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


def described(work: Work, rows: Length) -> list[str]:
    """A work as words that are easy to parse in every language."""
    return [
        f"shape={work.shape}",
        f"keys={work.keys}",
        f"steps={work.steps}",
        f"aggregates={','.join(work.aggregates)}",
        f"density={work.density}",
        f"guarantee={work.guarantee}",
        f"warmUp={rows.warm_up}",
        f"measured={rows.measured}",
    ]
