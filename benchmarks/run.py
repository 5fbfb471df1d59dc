"""Starting a peer on a work."""

from __future__ import annotations

import dataclasses
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
    """Rows of a peer.

    Args:
        warm_up: Before the first stretch: Java compiles, and windows fill up.
        measured: Of a stretch.
        settling: Before each other stretch, since the data has left the caches in the pause.
    """

    warm_up: int
    measured: int
    settling: int


LENGTHS = {
    "jet": Length(60_000_000, 25_000_000, 2_500_000),
    "flink": Length(20_000_000, 20_000_000, 2_000_000),
    "bytewax": Length(100_000, 200_000, 20_000),
    # Of sliding windows, where a row is written into each that covers it.
    "streams": Length(300_000, 200_000, 20_000),
}
"""Peers outside Spark, with the rows that take five to ten seconds; the others are counted in epochs."""
BOTH = {"flink": Length(10_000_000, 10_000_000, 1_000_000)}
"""Of two streams, as many of each."""
OF_SESSIONS = {"streams": Length(2_000_000, 1_000_000, 200_000)}
MANY_KEYS = 50_000
SHORT = {"jet": Length(60_000_000, 10_000_000, 1_000_000), "flink": Length(8_000_000, 4_000_000, 1_000_000)}
"""From so many keys on, stretches are shorter, as the results take the time. Jet's windows are full, as sparkjet's."""
MOST_KEYS = 500_000
SHORTEST = Length(3_000_000, 2_000_000, 0)
"""Of Jet and Flink, from so many keys on: a window end of a million results takes Flink ten seconds or more."""
LONG_STEPS = 300
"""Windows of so many steps have to be full first, but the stretches are those of many keys."""


def length(peer: str, work: Work) -> Length:
    """The rows of a peer."""
    if work.shape == "both":
        return BOTH[peer]
    if work.shape == "sessions" and peer in OF_SESSIONS:
        return OF_SESSIONS[peer]
    if work.shape == "windows" and peer in SHORT:
        if work.keys >= MOST_KEYS:
            return SHORTEST
        if work.keys >= MANY_KEYS:
            return SHORT[peer]
        if work.steps >= LONG_STEPS:
            return dataclasses.replace(SHORT[peer], warm_up=LENGTHS[peer].warm_up)
    return LENGTHS[peer]


HEAP = 4
"""Gigabytes."""
HEAPS = {"spark": 8}
"""Into less, the open windows of T2 do not fit."""
HEAPS_OF_MOST_KEYS = {"sparkjet": 6, "jet": 12, "flink": 8}
"""A suspended peer keeps its memory. In half of that Jet collects garbage all the time, in some stretches more."""


def heap(peer: str, work: Work) -> str:
    """The heap of a peer, as Java writes it."""
    most = HEAPS_OF_MOST_KEYS if work.keys >= MOST_KEYS else {}
    return f"{most.get(peer, HEAPS.get(peer, HEAP))}g"


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
    # It needs a broker beside it.
    beside = [sys.executable, "-m", "benchmarks.peers.kafka_streams"] if peer == "streams" else []
    return [
        *beside,
        "java",
        f"-Xmx{heap(peer, work)}",
        *internal,
        *opened,
        "-cp",
        classes,
        f"benchmarks.{peer.capitalize()}",
        *arguments,
    ]


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
        f"settling={rows.settling}",
    ]
