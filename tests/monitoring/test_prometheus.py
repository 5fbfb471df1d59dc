"""Alert rules and the dashboard in a real Prometheus: each alert fires and stays silent, each query gives data."""

from __future__ import annotations

import json
import re
import subprocess
import threading
import time
from importlib import resources
from pathlib import Path

import pytest

from sparkjet.engine.progress_report import SinkReport
from sparkjet.monitoring import Run, Runs
from sparkjet.monitoring.metrics import HISTOGRAM, METRICS
from sparkjet.monitoring.page import Page
from tests.monitoring.prometheus import Prometheus, found
from tests.monitoring.reports import SECOND, report, substream

pytestmark = pytest.mark.crash
STATIC = resources.files("sparkjet.monitoring") / "static"
PATIENCE = 120
Q = {"query": "flights"}

CASES: list[tuple[str, dict[str, str], str, dict[str, str]]] = [
    # Series over minutes as promtool writes them ("0x9" is ten samples of 0), and the labels of the alert.
    (
        "SparkjetSubstreamHoldsBack",
        {
            'sparkjet_watermark_lag_seconds{query="flights",substream="3"}': "60x10 1000x20",
            'sparkjet_substream_holds{query="flights",substream="3"}': "1x30",
        },
        "20m",
        {**Q, "substream": "3", "severity": "warning"},
    ),
    (
        "SparkjetSubstreamWithoutRows",
        {
            'sparkjet_substream_holds{query="flights",substream="3"}': "1x30",
            'sparkjet_substream_holds{query="flights",substream="4"}': "0x30",
            'sparkjet_watermark_lag_seconds{query="flights",substream="4"}': "60x30",
            # A stream in which nothing has arrived yet is no state that needs a human.
            'sparkjet_substream_holds{query="new",substream="5"}': "1x30",
        },
        "20m",
        {**Q, "substream": "3", "severity": "warning"},
    ),
    (
        "SparkjetLateRows",
        {"sparkjet_late_rows_total{query='flights'}": "7x10 9x20"},
        "15m",
        {**Q, "severity": "warning"},
    ),
    (
        "SparkjetRowsWithoutEventTime",
        {"sparkjet_null_timestamp_rows_total{query='flights'}": "7x10 9x20"},
        "15m",
        {**Q, "severity": "warning"},
    ),
    (
        "SparkjetNoEpoch",
        {
            "sparkjet_epoch_age_seconds{query='flights'}": "1x10 700x20",
            "sparkjet_up{query='flights'}": "1x30",
            # The driver from which the query was taken over, which has not ended.
            "sparkjet_epoch_age_seconds{query='flights',instance='before'}": "1000x30",
            "sparkjet_up{query='flights',instance='before'}": "0x30",
        },
        "15m",
        {**Q, "severity": "warning"},
    ),
    (
        "SparkjetTransactionsUnsettled",
        {"sparkjet_transactions_unsettled{query='flights'}": "0x10 2x20"},
        "15m",
        {**Q, "severity": "critical"},
    ),
    (
        "SparkjetGridMemberLost",
        {"sparkjet_grid_members{query='flights'}": "3x10 2x20"},
        "20m",
        {**Q, "severity": "warning"},
    ),
    (
        "SparkjetStateNearLimit",
        {"sparkjet_operator_limit_ratio{query='flights',operator='stage0'}": "0.5x10 0.9x20"},
        "20m",
        {**Q, "operator": "stage0", "severity": "warning"},
    ),
    (
        "SparkjetWindowsShed",
        {"sparkjet_shed_windows_total{query='flights',operator='stage0'}": "7x10 9x20"},
        "15m",
        {**Q, "operator": "stage0", "severity": "warning"},
    ),
    ("SparkjetQueryEnded", {"sparkjet_up{query='flights'}": "1x10 0x20"}, "15m", {**Q, "severity": "critical"}),
    (
        "SparkjetDriverGone",
        {'up{job="sparkjet",instance="driver:1"}': "1x10 0x20"},
        "15m",
        {"job": "sparkjet", "instance": "driver:1", "severity": "critical"},
    ),
]


def test_each_alert_fires_and_before_that_it_does_not(tmp_path: Path) -> None:
    """By promtool, which lets time pass for rules without waiting; annotations are compared too, so they render."""
    rules = STATIC.joinpath("alerts.yml").read_text(encoding="utf-8")
    names = re.findall(r"alert: (\w+)", rules)
    assert sorted(names) == sorted(name for name, *_ in CASES)
    (tmp_path / "alerts.yml").write_text(rules)
    for name, series, at, labels in CASES:
        inputs = [{"series": key, "values": value} for key, value in series.items()]
        silent = {"eval_time": "9m", "alertname": name, "exp_alerts": []}
        tests = [{"interval": "1m", "input_series": inputs, "alert_rule_test": [silent]}]
        (tmp_path / "test.yml").write_text(json.dumps({"rule_files": ["alerts.yml"], "tests": tests}))
        ended = _promtool(tmp_path)
        assert ended.returncode == 0, ended.stdout + ended.stderr
        fires = {"eval_time": at, "alertname": name, "exp_alerts": []}
        tests[0]["alert_rule_test"] = [fires]
        (tmp_path / "test.yml").write_text(json.dumps({"rule_files": ["alerts.yml"], "tests": tests}))
        ended = _promtool(tmp_path)
        # It compares with no alert, and prints the one that it got.
        got = ended.stdout + ended.stderr
        assert ended.returncode == 1, name
        for key, value in labels.items():
            assert f'{key}="{value}"' in got, got
        assert "summary=" in got, got
        assert "<error" not in got, got
        assert "new" not in got, got


def test_every_query_of_dashboard_and_alerts_gives_data(tmp_path: Path) -> None:
    runs, run = Runs(), Run("query", "run", "flights", 0)
    run.grid = lambda: {"members": [{"frozen": False}]}
    runs.add(run)
    ended = threading.Event()

    def feed() -> None:
        """As a query with a lagging substream does, while the server scrapes."""
        epoch = 0
        while not ended.wait(0.2):
            epoch += 1
            now = time.time_ns() // 1000
            known = {"a": substream(now - 1000 * SECOND, holds=True), "b": substream(now)}
            known["c"] = substream(None, holds=True)
            waits = SinkReport("results", 5, {"epoch": epoch})
            dead = {"failed": {"where px > 0": epoch}, "violated": {"positive": epoch}}
            run.history.add(report(epoch, known, late=epoch, sinks=[waits], **dead), now, 11)

    page = None
    feeding = threading.Thread(target=feed)
    feeding.start()
    try:
        page = Page(token="known", runs=runs)
        rules = STATIC.joinpath("alerts.yml").read_text(encoding="utf-8")
        with Prometheus(tmp_path, page, rules) as prometheus:
            missing, limit = _expressions(), time.monotonic() + PATIENCE
            while missing:
                missing = [each for each in missing if not prometheus.asked(each)]
                assert time.monotonic() < limit, missing
    finally:
        ended.set()
        feeding.join()
        if page is not None:
            page.stop()


def test_the_dashboard_names_only_metrics_that_there_are() -> None:
    names = {metric.name for metric in METRICS} | {f"{HISTOGRAM}{each}" for each in ("_sum", "_count", "_bucket")}
    used = set(re.findall(r"sparkjet_\w+", " ".join(_expressions())))
    assert used <= names
    # What nothing shows may as well not be there.
    assert names - used <= {
        "sparkjet_query_watermark_lag_seconds",
        "sparkjet_substream_held_back",
        "sparkjet_substream_idle",
        "sparkjet_epochs_total",
        "sparkjet_state_deltas",
        "sparkjet_operator_state_entries",
        "sparkjet_operator_stored_bytes",
        "sparkjet_withheld_windows_total",
    }


def _expressions() -> list[str]:
    dashboard = json.loads(STATIC.joinpath("dashboard.json").read_text(encoding="utf-8"))
    panels = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    rules = re.findall(r"expr: (.+)", STATIC.joinpath("alerts.yml").read_text(encoding="utf-8"))
    # Without its limit a rule has data as long as all is well.
    unlimited = [re.sub(r" (>|==) [\d.]+| < .*", "", each) for each in rules]
    return [each.replace("$query", ".*") for each in panels] + unlimited


def _promtool(directory: Path) -> subprocess.CompletedProcess[str]:
    command = [found("promtool"), "test", "rules", str(directory / "test.yml")]
    return subprocess.run(command, capture_output=True, text=True, check=False)
