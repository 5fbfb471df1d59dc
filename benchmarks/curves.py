"""How sparkjet's throughput grows with keys and with the length of an epoch.

Run by hand: ``python -m benchmarks.curves [keys] [epochs]``. Writes ``results/curves.json`` and a picture, whose legend
has the slope: the exponent of the power law that fits best, 0 for a flat line.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
import sys

import matplotlib as mpl
import msgspec

from benchmarks.__main__ import RESULTS
from benchmarks.run import run
from benchmarks.work import Work, work_of

mpl.use("Agg")

from matplotlib import pyplot as plt

T1 = work_of("T1")
CURVES: dict[str, dict[int, Work]] = {
    "keys": {keys: dataclasses.replace(T1, keys=keys, batch=2_000_000) for keys in (1_000, 10_000, 100_000, 1_000_000)},
    "epochs": {
        batch: dataclasses.replace(T1, batch=batch, measured=max(5, 20_000_000 // batch))
        for batch in (1_000_000, 2_000_000, 4_000_000, 8_000_000, 16_000_000)
    },
}
"""By what grows: works by its value. For epochs that is the number of rows, their length follows from the rate."""


def slope(points: dict[int, float]) -> float:
    """The exponent of the power law through the points."""
    logarithms = [math.log(x) for x in points], [math.log(y) for y in points.values()]
    return statistics.linear_regression(*logarithms).slope


def main(names: list[str]) -> None:
    """Measure, print, write and draw."""
    found: dict[str, dict[int, float]] = {}
    for name in names or list(CURVES):
        for value, work in CURVES[name].items():
            found.setdefault(name, {})[value] = rate = run("sparkjet", work).rate
            print(f"{name} {value:10,}: {rate / 1e6:.3f} M rows/s, epochs of {work.batch / rate:.2f} s", flush=True)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "curves.json").write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=2) + b"\n")
    figure, all_axes = plt.subplots(1, len(found), figsize=(6 * len(found), 4), layout="constrained", squeeze=False)
    for axes, (name, points) in zip(all_axes[0], found.items(), strict=True):
        axes.loglog(list(points), list(points.values()), "o-", label=f"slope {slope(points):+.2f}")
        axes.set_xlabel("keys" if name == "keys" else "rows of an epoch")
        axes.set_ylabel("rows a second")
        axes.legend()
    figure.savefig(RESULTS / "curves.png", dpi=120)
    plt.close(figure)


if __name__ == "__main__":
    main(sys.argv[1:])
