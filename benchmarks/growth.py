"""T11: how sparkjet's throughput scales with cores, keys, substreams and the length of an epoch.

``python -m benchmarks.growth [CURVE…]``. Writes ``results/growth.json`` and a picture, whose legends have the slope:
the exponent of the power law that fits best, 0 for a flat line.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
import sys

import matplotlib as mpl

from benchmarks.ratio import RESULTS, Ratio, save
from benchmarks.run import start
from benchmarks.studies import main
from benchmarks.work import Goal, Work, work_of

mpl.use("Agg")

from matplotlib import pyplot as plt

BATCHES = (200_000, 1_000_000, 2_000_000, 5_000_000, 15_000_000, 60_000_000, 150_000_000)
MANY = 100_000
T1 = dataclasses.replace(work_of("T1"), batch=2_000_000, warm_up=15)


def epochs(batch: int) -> Work:
    """T1 in epochs of that many rows; longer ones need fewer epochs to warm up."""
    warm_up = min(30, max(4, 60_000_000 // batch))
    measured = min(30, max(3, 16_000_000 // batch))
    return dataclasses.replace(T1, batch=batch, warm_up=warm_up, measured=measured)


def keyed(keys: int) -> Work:
    """T1 with that many keys; with a million, an epoch takes over ten seconds, as two windows of all keys end in it."""
    work = dataclasses.replace(T1, keys=keys)
    return work if keys <= MANY else dataclasses.replace(work, warm_up=4, measured=3)


CURVES: dict[str, dict[int, Work]] = {
    # As warm as in the contest, and with one core pinned to it: of two, Java would compile and collect garbage on the
    # other, Python would plan there, and the throughput of "one core" would be that of nearly two.
    "cores": {cores: dataclasses.replace(work_of("T1"), cores=cores) for cores in (1, 2)},
    "keys": {keys: keyed(keys) for keys in (1_000, 10_000, 100_000, 1_000_000)},
    "substreams": {count: dataclasses.replace(T1, substreams=count) for count in (1, 16, 256)},
    "rows of an epoch": {batch: epochs(batch) for batch in BATCHES},
}
"""Works by value, for each parameter."""


def slope(points: dict[int, float]) -> float:
    """The exponent of the power law through the points."""
    logarithms = [math.log(x) for x in points], [math.log(y) for y in points.values()]
    return statistics.linear_regression(*logarithms).slope


def draw(found: dict[str, dict[int, float]]) -> None:
    """One plot per curve, with logarithmic axes."""
    figure, all_axes = plt.subplots(1, len(found), figsize=(4 * len(found), 4), layout="constrained", squeeze=False)
    for axes, (name, points) in zip(all_axes[0], found.items(), strict=True):
        axes.loglog(list(points), list(points.values()), "o-", label=f"slope {slope(points):+.2f}")
        axes.set_xlabel(name)
        axes.set_ylabel("rows a second")
        axes.legend()
    figure.savefig(RESULTS / "growth.png", dpi=120)
    plt.close(figure)


def study() -> list[Ratio]:
    """One ratio per curve, without a goal: the throughput at its end by that at its beginning."""
    found: dict[str, dict[int, float]] = {}
    # Curves share points.
    rates: dict[Work, float] = {}
    ratios = []
    for name in sys.argv[1:] or CURVES:
        for value, work in CURVES[name].items():
            if work not in rates:
                with start("sparkjet", work) as peer:
                    rates[work] = peer.stretch().rate
            found.setdefault(name, {})[value] = rate = rates[work]
            line = f"{name} {value:10,}: {rate / 1e6:.3f} M rows/s, epochs of {work.batch / rate:.2f} s"
            print(line, file=sys.stderr, flush=True)
        (first, slowest), *_, (last, fastest) = found[name].items()
        what = f"T1 with {last:,} {name}, slope {slope(found[name]):+.2f}"
        ratios.append(Ratio("T11", what, Goal(f"{first:,} {name}"), (fastest / slowest,), fastest, slowest))
    save(found, RESULTS / "growth.json")
    draw(found)
    return ratios


if __name__ == "__main__":
    main(study)
