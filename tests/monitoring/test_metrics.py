"""Metrics as Prometheus reads them."""

from __future__ import annotations

from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from sparkjet.clock import ManualClock
from sparkjet.engine.progress_report import SinkReport
from sparkjet.monitoring import Collector, Run, Runs
from sparkjet.monitoring.metrics import HISTOGRAM, METRICS, exposition
from tests.faults.waiting import until
from tests.monitoring.reports import NOW, SECOND, report, substream


def scraped(runs: Runs) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    found: dict[str, dict[tuple[tuple[str, str], ...], float]] = {}
    for family in text_string_to_metric_families(exposition(ManualClock(NOW), runs).decode()):
        for sample in family.samples:
            found.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = sample.value
    return found


def one(name: str, started: int = 0) -> Run:
    return Run("query", f"{name}-{started}", name, started)


def test_every_metric_has_a_value_and_the_table_is_what_is_scraped() -> None:
    runs, run = Runs(), one("q")
    known = {"a": substream(NOW - 9 * SECOND, holds=True), "b": substream(NOW, idle=True, held=(9 * SECOND, "a"))}
    dead = {"failed": {"where px > 0": 2}, "violated": {"positive": 1}}
    sinks = [SinkReport("results", 5, {"epoch": 1})]
    run.history.add(report(1, known, late=3, sinks=sinks, **dead), NOW - 2 * SECOND, 11)
    run.grid = lambda: {"members": [{"frozen": False}, {"frozen": True}]}
    until(lambda: run.members() is not None, "the grid to be asked")
    runs.add(run)
    found = scraped(runs)
    query = ("query", "q")
    assert {metric.name for metric in METRICS} < found.keys()
    assert found["sparkjet_watermark_lag_seconds"] == {(query, ("substream", "a")): 9, (query, ("substream", "b")): 0}
    assert found["sparkjet_substream_holds"][query, ("substream", "a")] == 1
    assert found["sparkjet_substream_idle"][query, ("substream", "b")] == 1
    assert found["sparkjet_substream_held_back"] == {(query, ("substream", "a")): 0, (query, ("substream", "b")): 1}
    assert found["sparkjet_late_rows_total"] == {(query,): 3}
    assert found["sparkjet_rows_in_total"] == {(query,): 11}
    assert found["sparkjet_rows_out_total"] == {(("output", "results"), query): 5}
    assert found["sparkjet_epoch_age_seconds"] == {(query,): 2}
    assert found["sparkjet_grid_members"] == {(query,): 1}
    of_state = {"stored_bytes": 700, "memory_bytes": 1500, "spilled_bytes": 100, "limit_ratio": 0.85}
    for name, value in of_state.items():
        assert found[f"sparkjet_operator_{name}"] == {(("operator", "stage0"), query): value}
    assert found["sparkjet_shed_windows_total"] == {(("operator", "stage0"), query): 2}
    buckets = found[f"{HISTOGRAM}_bucket"]
    assert buckets[("le", "0.025"), ("phase", "aggregate"), query] == 0
    assert buckets[("le", "0.05"), ("phase", "aggregate"), query] == 1
    assert buckets[("le", "+Inf"), ("phase", "aggregate"), query] == 1
    assert found[f"{HISTOGRAM}_sum"][("phase", "aggregate"), query] == 0.04


def test_labels_are_capped() -> None:
    runs, run = Runs(), one("q")
    run.history.add(report(1, {f"p{i}": substream(NOW - i * SECOND, holds=i > 500) for i in range(1000)}), NOW)
    runs.add(run)
    lags = scraped(runs)["sparkjet_watermark_lag_seconds"]
    assert len(lags) == 21
    assert lags[("query", "q"), ("substream", "other substreams")] == 979
    assert sum(scraped(runs)["sparkjet_substream_holds"].values()) == 499


def test_an_idle_substream_does_not_make_the_others_late() -> None:
    runs, run = Runs(), one("q")
    known = {f"p{i}": substream(NOW - SECOND, holds=True) for i in range(30)}
    run.history.add(report(1, {**known, "idle": substream(NOW - 5000 * SECOND, idle=True)}), NOW)
    runs.add(run)
    assert set(scraped(runs)["sparkjet_watermark_lag_seconds"].values()) == {1}


def test_a_query_that_hangs_in_its_first_epoch_has_an_age() -> None:
    runs = Runs()
    runs.add(one("q", NOW - 900 * SECOND))
    assert scraped(runs)["sparkjet_epoch_age_seconds"] == {(("query", "q"),): 900}


def test_of_the_runs_of_a_query_the_newest_is_shown() -> None:
    runs = Runs()
    # The clock was set back between the two.
    for started, late in ((2, 20), (1, 10)):
        run = one("q", started)
        run.history.add(report(1, late=late), NOW)
        runs.add(run)
        if late == 20:
            run.end(2, None)
    assert scraped(runs)["sparkjet_late_rows_total"] == {(("query", "q"),): 10}
    assert scraped(runs)["sparkjet_up"] == {(("query", "q"),): 1}


def test_records_do_not_say_whether_a_query_is_running() -> None:
    runs = Runs()
    runs.add(Run("query", "home", "home", 0, recorded=True))
    assert "sparkjet_up" not in scraped(runs)


def test_a_registry_of_the_users_takes_the_collector() -> None:
    registry = CollectorRegistry()
    registry.register(Collector(ManualClock(NOW), Runs()))
    assert registry.get_sample_value("sparkjet_up", {"query": "q"}) is None


def test_names_may_hold_anything() -> None:
    runs, run = Runs(), one('q"\n\\')
    run.history.add(report(1, {'a"\n\\': substream(0)}), NOW)
    runs.add(run)
    assert scraped(runs)["sparkjet_up"] == {(("query", 'q"\n\\'),): 1}


def test_queries_of_one_name_in_two_sessions_have_separate_samples() -> None:
    runs = Runs()
    for number in (1, 2):
        run = Run(f"{number}23456789", f"run-{number}", "bars", number)
        run.history.add(report(number), NOW)
        runs.add(run)
    text = exposition(ManualClock(NOW), runs).decode()
    assert 'sparkjet_up{query="bars"} 1.0' in text
    assert 'sparkjet_up{query="bars (22345678)"} 1.0' in text
