"""Aggregates in Python equal native ones with every strategy, and their errors name the part that failed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PythonException
from pyspark.sql import functions as F

import sparkjet as sj
from sparkjet.aggregates import built_in as J
from sparkjet.aggregates.operation import Aggregate, AggregateOperation, Inputs
from sparkjet.errors import AnalysisError
from sparkjet.testing import check_aggregate
from sparkjet.time import WindowGrid
from tests.feed import Feed, rows
from tests.parameters import mostly_crash
from tests.windows.model import Batch, Event, Fold, naive
from tests.windows.operator import OperatorRun
from tests.windows.session_model import naive as naive_sessions
from tests.windows.session_run import SessionRun, session_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Parts = dict[str, Any]
SUM: Parts = {
    "accumulatorType": "n long, total long",
    "returnType": "long",
    "create": lambda: (0, 0),
    "accumulate": lambda acc, value: acc if value is None else (acc[0] + 1, acc[1] + value),
    "combine": lambda a, b: (a[0] + b[0], a[1] + b[1]),
    "finish": lambda acc: acc[1] if acc[0] else None,
}
DEDUCT: Parts = {"deduct": lambda a, b: (a[0] - b[0], a[1] - b[1])}


def total(**changed: Any) -> Aggregate:
    return sj.python_aggregate("value", **{**SUM, **changed})


def tally(acc: dict[int, int], values: dict[int, int]) -> dict[int, int]:
    for value, times in values.items():
        acc[value] = acc.get(value, 0) + times  # in place, on purpose
    return acc


def mode(**changed: Any) -> Aggregate:
    """The smallest of the most frequent values: a map that grows, modified in place."""
    parts: Parts = {
        "accumulatorType": "map<long,long>",
        "returnType": "long",
        "create": dict,
        "accumulate": lambda acc, value: acc if value is None else tally(acc, {value: 1}),
        "combine": tally,
        "finish": lambda acc: max(acc, key=lambda value: (acc[value], -value)) if acc else None,
    }
    return sj.python_aggregate("value", **{**parts, **changed})


def longest(**changed: Any) -> Aggregate:
    """The greatest value and its first time, as a dict in which everything is None at first."""

    def better(a: dict[str, Any], b: dict[str, Any]) -> dict[str, Any]:
        known = [each for each in (a, b) if each["value"] is not None]
        return max(known, key=lambda each: (each["value"], -each["time"]), default=a)

    parts: Parts = {
        "accumulatorType": "value long, time long",
        "returnType": "struct<value long, time long>",
        "create": lambda: {"value": None, "time": None},
        "accumulate": lambda acc, value, time: better(acc, {"value": value, "time": time}),
        "combine": better,
        "finish": lambda acc: acc,
    }
    return sj.python_aggregate("value", "time", **{**parts, **changed})


def values(fold: Callable[[list[int]], Any]) -> Fold:
    return lambda events: fold([event.value for event in events])


def python_mode(found: list[int]) -> int:
    return min(found, key=lambda value: (-found.count(value), value))


MODE = (mode, values(python_mode))
LONGEST = (longest, lambda es: min(((e.value, e.time) for e in es), key=lambda each: (-each[0], each[1])))
PATHS: dict[str, list[tuple[Callable[[], Aggregate], Fold]]] = {
    "deduct": [(lambda: total(**DEDUCT), values(sum)), (lambda: J.sum("value"), values(sum))],
    "stacks": [(total, values(sum)), (lambda: J.max("value"), values(max)), MODE, LONGEST],
    "recombine": [(lambda: mode(bounded=False), values(python_mode)), (J.count, len)],
}
BATCHES = [
    Batch([Event("a", 1, 5), Event("b", 3, 2), Event(None, -4, 1), Event("a", 9, -3), Event("a", 2, 5)], 4),
    Batch([Event("a", -4, 9), Event("a", 4, 7), Event("b", 14, 1), Event(None, 30, 2)], 15),
    Batch([Event("b", 13, 4), Event("a", 40, 1), Event("a", 16, 3), Event("a", 21, 4)], 35),
    Batch([], None),
]


@pytest.fixture(scope="module")
def samples(spark: SparkSession) -> DataFrame:
    found = [(g, t, None if t == 3 else x) for g in "pq" for t, x in enumerate([3, -1, 4, 1, -5, 9, 3])]
    return spark.createDataFrame(found, "g string, time bigint, value bigint").localCheckpoint()


@pytest.mark.parametrize(
    ("path", "restart"),
    # In CI a query with stacks goes on from its snapshot, below, and the laws say that what is deducted is gone.
    mostly_crash(product(PATHS, [False, True]), quick=(), crash=()),
)
def test_windows_equal_the_naive_ones(spark: SparkSession, tmp_path: Path, path: str, restart: bool) -> None:
    window = WindowGrid(6, 2, 1)
    expected, late = naive(BATCHES, window, [fold for _, fold in PATHS[path]])
    run = OperatorRun(spark, window, [make() for make, _ in PATHS[path]], tmp_path)
    assert run.state.operator.path == path
    for batch, wanted in zip(BATCHES, expected, strict=True):
        assert sorted(run.feed(batch), key=repr) == sorted(wanted, key=repr)
        if restart:
            run.restart()
    assert run.late == late


@pytest.mark.parametrize("max_duration", [None, pytest.param(7, marks=pytest.mark.long)])
def test_sessions_equal_the_naive_ones(spark: SparkSession, tmp_path: Path, max_duration: int | None) -> None:
    gap, batches = 5, [BATCHES[0], *BATCHES[2:]]
    made: list[tuple[Callable[[], Aggregate], Fold]] = [(J.count, len), MODE, LONGEST]
    expected, late = naive_sessions(batches, gap, max_duration, [fold for _, fold in made])
    run = SessionRun(session_of(spark), gap, max_duration, [make() for make, _ in made])
    for batch, wanted in zip(batches, expected, strict=True):
        assert sorted(run.feed(batch), key=repr) == sorted(wanted, key=repr)
        run.restart(tmp_path)
    assert run.late == late


# In CI, the sessions above are restored after each batch.
@pytest.mark.crash
@pytest.mark.long
def test_a_query_goes_on_from_its_snapshot(spark: SparkSession, tmp_path: Path) -> None:
    feed = Feed(tmp_path / "in")

    def newest(a: dict[str, datetime], b: dict[str, datetime]) -> dict[str, datetime]:
        return {key: max(a.get(key, b.get(key)), b.get(key, a.get(key))) for key in {**a, **b}}

    seen = sj.python_aggregate(
        "v",
        F.col("k"),
        "ts",
        accumulatorType="values array<long>, seen map<string,timestamp>",
        returnType="string",
        create=lambda: ([], {}),
        # Fails on a row without a time.
        accumulate=lambda acc, v, k, ts: ([*acc[0], -1 if v is None else v], newest(acc[1], {str(k): ts})),
        combine=lambda a, b: (a[0] + b[0], newest(a[1], b[1])),
        finish=lambda acc: f"{sorted(acc[0])} {[(k, ts.isoformat()[17:]) for k, ts in acc[1].items()]}",
    )

    def run() -> None:
        stream = sj.stream(feed.read(spark)).withWatermark("ts", "0 seconds")
        window = sj.window("ts", "20 seconds", "10 seconds")
        result = stream.groupBy(window, "k").agg(J.count().alias("n"), seen.alias("text"), J.max("v").alias("most"))
        writer = result.writeStream.format("files").option("path", tmp_path / "out").trigger(availableNow=True)
        query = writer.option("checkpointLocation", tmp_path / "query").option("statePartitions", 2).start()
        query.awaitTermination()

    def results() -> list[tuple[Any, ...]]:
        found = sj.read_files(str(tmp_path / "out")).select(F.second("window.end"), "k", "n", "text", "most")
        return sorted((tuple(row) for row in found.collect()), key=repr)

    feed.add(*rows([0, 3], k="a", v=1), *rows([4], k=None, v=2), *rows([None], k="a", v=9))
    run()
    feed.add(*rows([8], k="a"), *rows([17], k="a", v=4))
    run()
    first = results()
    # The feed starts at second 20.
    assert first == [
        (30, "a", 3, "[-1, 1, 1] [('a', '28+00:00')]", 1),
        (30, None, 1, "[2] [('None', '24+00:00')]", 2),
    ]
    feed.add(*rows([1], k="a", v=7), *rows([35], k="b", v=5))
    run()
    assert results() == sorted([*first,
        (40, "a", 4, "[-1, 1, 1, 4] [('a', '37+00:00')]", 4),
        (40, None, 1, "[2] [('None', '24+00:00')]", 2),
        (50, "a", 1, "[4] [('a', '37+00:00')]", 4),
    ], key=repr)  # fmt: skip


def test_the_laws_hold_and_nulls_are_seen(samples: DataFrame) -> None:
    everything = [total(), total(**DEDUCT), mode(), longest(), J.sum("value")]
    check_aggregate([one.alias(f"r{i}") for i, one in enumerate(everything)], samples, "time", by=["g"])
    assert total().evaluate(samples) == J.sum("value").evaluate(samples)
    assert tuple(longest().evaluate(samples)) == (9, 5)
    assert total().evaluate(samples.where("time = 3")) is None


BROKEN: dict[str, Parts] = {
    "create is not neutral": {"create": lambda: (0, 1)},
    "combine is not commutative": {"combine": lambda a, b: a},
    "combine is not associative": {"combine": lambda a, b: (a[0] + b[0], (a[1] + b[1]) // 2)},
    "combine does not continue accumulate": {"accumulate": lambda acc, value: (acc[0] + 1, value or 0)},
    "deduct does not undo combine": {"deduct": lambda a, b: (a[0], a[1] - b[1])},
    "deduct does not negate": {"deduct": lambda a, b: (a[0] - b[0], a[1] - b[1] if a[0] else 0)},
}


def test_a_broken_part_is_found(samples: DataFrame) -> None:
    with pytest.raises(AssertionError) as caught:
        check_aggregate([total(**{**DEDUCT, **change}).alias(law) for law, change in BROKEN.items()], samples)
    findings = str(caught.value).splitlines()
    for law in BROKEN:
        assert any(line.startswith(f"{law}: {law}: ") for line in findings), (law, findings)


def test_a_scan_that_differs_from_combine_is_found(samples: DataFrame) -> None:
    sound = total().resolve(Inputs(samples, F.col("time")))
    wrong = replace(sound, scan=lambda items: items)
    with pytest.raises(AssertionError, match=r"scan differs from combine: the (second|third) element"):
        check_aggregate(wrong.alias("wrong"), samples)
    with pytest.raises(AnalysisError, match="scan needs combine_group"):
        AggregateOperation({"n": F.count("*")}, {"n": F.lit(0)}, lambda a, _: a, lambda a: a["n"], scan=lambda a: a)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"accumulate": lambda acc, value: (0, 1 // (value - 4))}, r"accumulate\(\(0, .*\), 4\) raised ZeroDivision"),
        ({"accumulate": lambda acc, value: (1,)}, r"accumulate returned \(1,\): 2 fields, \['n', 'total'\], not 1"),
        pytest.param(
            {"accumulate": lambda acc, value: (1, 0.5)},
            r"accumulate returned \(1, 0.5\): .*float.*integer",
            marks=pytest.mark.long,
        ),
        ({"finish": lambda acc: "many"}, r"finish returned 'many': .*The declared type is int64"),
        pytest.param(
            {"finish": lambda acc: acc[2]}, r"finish\(\(\d+, \d+\)\) raised IndexError", marks=pytest.mark.long
        ),
        (
            {"returnType": "timestamp", "finish": lambda acc: datetime(2026, 3, 1)},
            "finish returned .* datetime without a zone",
        ),
    ],
)
def test_an_error_names_the_part_and_the_value(samples: DataFrame, changed: Parts, message: str) -> None:
    with pytest.raises(
        PythonException, match=rf"PartError: \[SPARKJET_AGGREGATE\] python_aggregate\(value\): {message}"
    ):
        total(**changed).evaluate(samples.where("value IS NOT NULL"))


def test_an_error_of_combine_names_it(samples: DataFrame) -> None:
    with pytest.raises(PythonException, match=r"python_aggregate\(value\): combine returned None.*|combine\(\("):
        check_aggregate(total(combine=lambda a, b: a[0] + b), samples)
    with pytest.raises(PythonException, match=r"deduct\(\(\d+, -?\d+\), \(\d+, -?\d+\)\) raised KeyError: 'n'"):
        check_aggregate(total(deduct=lambda a, b: {}["n"]), samples)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"create": lambda: (0,)}, r"create returned \(0,\): 2 fields"),
        ({"create": lambda: {"n": 0, "sum": 0}}, r"the fields are \['n', 'total'\], not \['n', 'sum'\]"),
        ({"create": lambda: 1 // 0}, r"create\(\) raised ZeroDivisionError"),
        ({"accumulatorType": "n lnog"}, r"accumulatorType is 'n lnog'; give a type, e.g. \"double\""),
        ({"returnType": 8}, r"returnType is 8; give a type"),
        ({"accumulatorType": "struct<>"}, r"a struct without fields"),
    ],
)
def test_unsuitable_parts_are_refused_before_the_query_starts(samples: DataFrame, changed: Parts, message: str) -> None:
    with pytest.raises(AnalysisError, match=message):
        total(**changed).resolve(Inputs(samples, F.col("time")))


def test_inputs_and_parts_are_checked(samples: DataFrame) -> None:
    with pytest.raises(AnalysisError, match=r"no column 'vlaue': did you mean \"value\""):
        sj.python_aggregate("vlaue", **SUM).resolve(Inputs(samples, F.col("time")))
    with pytest.raises(AnalysisError, match="no inputs"):
        sj.python_aggregate(**SUM)
    with pytest.raises(AnalysisError, match="combine is 3; give a function"):
        total(combine=3)


def test_without_pyarrow_the_way_out_is_named() -> None:
    script = """
import sys
sys.modules["pyarrow"] = None
import sparkjet as sj
nothing = lambda *_: None
try:
    sj.python_aggregate("x", accumulatorType="long", returnType="long", create=nothing, accumulate=nothing,
                        combine=nothing, finish=nothing)
except sj.AnalysisError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert 'pip install "sparkjet[arrow]"' in done.stdout


def test_workers_need_no_sparkjet(samples: DataFrame, tmp_path: Path) -> None:
    from pyspark import cloudpickle

    from sparkjet.aggregates.python_worker import PythonParts

    total().resolve(Inputs(samples, F.col("time")))
    import pyarrow as pa

    long = pa.int64()
    parts = PythonParts("sum", int, int.__add__, int.__add__, int, None, long, long, as_dict=False)
    (tmp_path / "code").write_bytes(cloudpickle.dumps(parts.combine_pairs))
    script = """
import pathlib, pickle, sys
sys.modules["sparkjet"] = None
import pyarrow as pa
combine = pickle.loads(pathlib.Path(sys.argv[1]).read_bytes())
print(combine(pa.array([1]), pa.array([2])).to_pylist())
"""
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "code")], check=True, capture_output=True, text=True
    )
    assert done.stdout == "[3]\n"
