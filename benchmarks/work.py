"""Works that every engine can run, and their goals."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

STEP_SECONDS = 1


@dataclass(frozen=True)
class Goal:
    """A target ratio of throughputs.

    Args:
        other: The peer: on the same work (``jet``), or on another work (``jet@T1``).
        at_least: The minimum ratio; 0 if the ratio is only reported.
    """

    other: str
    at_least: float = 0.0


@dataclass(frozen=True)
class Work:
    """A query over the generated input of :mod:`feed`: windows that slide by one second, unless ``shape`` differs.

    Args:
        id: Short name; a goal of the issue.
        what: Description for the table, one line.
        shape: ``windows``; ``sessions`` with a gap of a second, 20 rows each; ``busiest``: the highest count of any
            key in each sliding window, a window over windows; ``both``: two streams, and the keys that both had rows
            of in a tumbling window, with their numbers.
        steps: Length of the window in steps of one second.
        keys: Number of keys.
        aggregates: The result columns: some of ``count``, ``sum``, ``avg``, ``max``, ``percentile``; of ``both``
            ``entries`` and ``openings``.
        density: Events per second of event time.
        guarantee: ``exactly-once`` or ``none``.
        sink: ``files``, or ``noop`` for Spark without a sink, whose results are not compared.
        batch: Rows per epoch of sparkjet and Spark, such that sparkjet's takes about a second.
        warm_up: Epochs of sparkjet before the measured ones, in which Java compiles and windows fill up.
        measured: Measured epochs of sparkjet per round.
        cores: Cores of sparkjet and Spark; with one, sparkjet is pinned to it.
        substreams: Number of substreams, each with its own watermark in sparkjet.
        family: Works of the same family take turns; without one, a work takes turns only with its peers.
        goals: Goals for sparkjet's throughput.
    """

    id: str
    what: str
    shape: str = "windows"
    steps: int = 60
    keys: int = 1_000
    aggregates: tuple[str, ...] = ("count", "sum", "avg")
    density: int = 1_000_000
    guarantee: str = "exactly-once"
    sink: str = "files"
    batch: int = 4_000_000
    warm_up: int = 36
    measured: int = 6
    cores: int = 2
    substreams: int = 1
    family: str = ""
    goals: tuple[Goal, ...] = ()

    @property
    def question(self) -> tuple[object, ...]:
        """Identity of the query: works with an equal one have the same results, however they are computed."""
        return self.shape, self.steps, self.keys, self.aggregates, self.density


SECOND = 24_000_000
"""Rows of a one-second epoch on an idle machine, to compare with Jet's snapshots of every second."""
SAME = 1 / 1.2
"""A time within 1.2 x of another's, as a ratio of throughputs."""

T2 = Work(
    "T2",
    "60 steps, 100,000 keys, count + sum + avg",
    keys=100_000,
    batch=1_000_000,
    warm_up=70,
    goals=(Goal("jet", 2.0), Goal("flink")),
)
# Full windows are 60 million partial results: 20 GB or more in Jet and Flink, by what the first ten seconds take,
# and ten minutes of Flink's time. All are measured with 3 to 20 of the 60 seconds in them, sparkjet's fullest.
T2M = Work(
    "T2m",
    "60 steps, 1,000,000 keys, count + sum + avg",
    keys=1_000_000,
    batch=500_000,
    warm_up=6,
    measured=4,
    goals=(Goal("jet", 2.0),),
)

WORKS = (
    Work(
        "T1",
        "60 steps, 1,000 keys, count + sum + avg",
        batch=SECOND,
        warm_up=24,
        family="T1",
        goals=(Goal("jet", 2.0), Goal("spark", 50.0), Goal("flink")),
    ),
    Work(
        "T8",
        "60 steps, exactly-once against none",
        batch=SECOND,
        warm_up=24,
        family="T1",
        goals=(Goal("sparkjet@T8-none", 1 / 1.15),),
    ),
    Work(
        "T4-max",
        "60 steps, max",
        aggregates=("max",),
        batch=SECOND,
        warm_up=20,
        family="T1",
        goals=(Goal("sparkjet@T1", 0.8), Goal("jet", 1.0)),
    ),
    Work("T8-none", "60 steps, guarantee none", batch=SECOND, warm_up=24, guarantee="none"),
    Work(
        "T11c",
        "60 steps, two cores by one",
        batch=SECOND,
        warm_up=24,
        family="T1",
        goals=(Goal("sparkjet@T11c-one", 1.6),),
    ),
    Work("T11c-one", "60 steps, one core", batch=SECOND, warm_up=24, measured=4, cores=1),
    T2,
    # Of Spark's windows an epoch takes more than a minute: apart, as the others would wait for it.
    dataclasses.replace(T2, id="T2-spark", goals=(Goal("spark", 15.0),)),
    T2M,
    dataclasses.replace(T2M, id="T2m-flink", goals=(Goal("flink", 1.5),)),
    # A tenth of the rows per second: with all of them, Spark's sketches need more than 8 GB.
    Work(
        "T4-percentile",
        "60 steps, percentile_approx",
        aggregates=("percentile",),
        density=100_000,
        batch=1_000_000,
        warm_up=20,
        goals=(Goal("spark", 20.0),),
    ),
    # 100,000 events per second of event time, so that the warm-up fills 600 steps.
    Work(
        "T3-60",
        "60 steps, count + sum",
        aggregates=("count", "sum"),
        density=100_000,
        warm_up=20,
        family="T3",
        goals=(Goal("bytewax"), Goal("streams")),
    ),
    Work(
        "T3-600",
        "600 steps, count + sum",
        steps=600,
        aggregates=("count", "sum"),
        density=100_000,
        warm_up=20,
        family="T3",
        goals=(Goal("sparkjet@T3-60", SAME),),
    ),
    Work(
        "T3-6",
        "6 steps, count + sum",
        steps=6,
        aggregates=("count", "sum"),
        density=100_000,
        warm_up=20,
        family="T3",
        goals=(Goal("sparkjet@T3-60", SAME),),
    ),
    Work("T3-max60", "60 steps, max", aggregates=("max",), density=100_000, warm_up=20),
    Work(
        "T3-max600",
        "600 steps, max",
        steps=600,
        aggregates=("max",),
        density=100_000,
        # 15 epochs are 600 steps: each round includes the epoch in which a block of the two stacks ends.
        warm_up=20,
        measured=15,
        family="T3-max",
        goals=(Goal("sparkjet@T3-max60", SAME), Goal("jet", 2.0)),
    ),
    Work(
        "T3-max6",
        "6 steps, max",
        steps=6,
        aggregates=("max",),
        density=100_000,
        warm_up=20,
        family="T3-max",
        goals=(Goal("sparkjet@T3-max60", SAME),),
    ),
    Work(
        "T5",
        "epochs of 10,000 rows, 100 keys, 60 steps, against Spark's tumbling window without a sink",
        keys=100,
        density=10_000,
        batch=10_000,
        warm_up=300,
        measured=30,
        goals=(Goal("spark@T5-tumbling", 1.0),),
    ),
    Work(
        "T5-tumbling",
        "epochs of 10,000 rows, 100 keys, tumbling, results dropped",
        steps=1,
        keys=100,
        density=10_000,
        batch=10_000,
        warm_up=300,
        measured=30,
        sink="noop",
    ),
    Work(
        "T9", "sessions, 1,000 keys", "sessions", batch=3_000_000, warm_up=36, measured=5, goals=(Goal("spark", 4.0),)
    ),
    Work(
        "T9-100k",
        "sessions, 100,000 keys",
        "sessions",
        keys=100_000,
        batch=2_000_000,
        warm_up=36,
        measured=5,
        goals=(Goal("spark", 4.0),),
    ),
    # Like in Nexmark, on the same input: rows are bids, keys auctions or bidders.
    Work(
        "Q5",
        "bids of the auction that has most, each second of the last ten",
        "busiest",
        steps=10,
        aggregates=("count",),
        batch=12_000_000,
        warm_up=8,
        measured=4,
        goals=(Goal("spark", 1.2), Goal("flink", 1.2)),
    ),
    Work(
        "Q7",
        "the highest bid of each second",
        steps=1,
        keys=1,
        aggregates=("max",),
        batch=24_000_000,
        warm_up=8,
        measured=4,
        goals=(Goal("spark", 1.2), Goal("flink", 1.2)),
    ),
    Work(
        "Q8",
        "persons and auctions: who opened some in the second in which they came",
        "both",
        steps=1,
        keys=10_000,
        aggregates=("entries", "openings"),
        batch=4_000_000,
        warm_up=8,
        measured=4,
        goals=(Goal("spark", 1.2), Goal("flink", 1.2)),
    ),
    Work(
        "Q11",
        "bids of each bidder's session, 10,000 bidders",
        "sessions",
        keys=10_000,
        aggregates=("count",),
        batch=2_000_000,
        warm_up=8,
        measured=4,
        goals=(Goal("spark"), Goal("flink"), Goal("streams")),
    ),
)
"""In the order in which they run."""


def work_of(identifier: str) -> Work:
    """The work with that id.

    Raises:
        KeyError: There is none; the message lists the existing ones.
    """
    for work in WORKS:
        if work.id == identifier:
            return work
    raise KeyError(f"no work {identifier!r}; there are {', '.join(work.id for work in WORKS)}")
