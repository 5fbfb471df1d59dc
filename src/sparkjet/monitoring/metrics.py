"""Metrics: one typed table of gauges, counters and a histogram, read from runs on demand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from sparkjet.clock import SystemClock
from sparkjet.errors import AnalysisError
from sparkjet.monitoring.history import BUCKETS_MS
from sparkjet.monitoring.runs import DRIVER, Run, Runs
from sparkjet.monitoring.standing import OTHERS, Others
from sparkjet.monitoring.view import unsettled

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric as Family

    from sparkjet.clock import Clock
    from sparkjet.engine.progress_report import OperatorReport, ProgressReport, SubstreamReport

Sample: TypeAlias = tuple[tuple[str, ...], float]
"""Values of the labels that follow ``query``, and the metric's value."""
Read: TypeAlias = Callable[[Run, int], Iterable[Sample]]
"""Reads the samples of a run at a time in microseconds since 1970."""


@dataclass(frozen=True)
class Metric:
    """One metric of a query that has reported an epoch.

    Attributes:
        name: Its name when scraped; counters end with ``_total``.
        kind: ``gauge`` or ``counter``.
        meaning: A one-line description, which is also in the guide.
        labels: Its labels after ``query``.
        read: Reads its samples.
    """

    name: str
    kind: str
    meaning: str
    labels: tuple[str, ...]
    read: Read


def _of_run(read: Callable[[Run, int], float | None]) -> Read:
    """The sample of a metric that has a single value or none."""

    def samples(run: Run, now: int) -> list[Sample]:
        value = read(run, now)
        return [] if value is None else [((), value)]

    return samples


def _of_report(read: Callable[[ProgressReport, int], float | None]) -> Read:
    """The sample of a metric that only an epoch can provide."""
    return _of_run(lambda run, now: None if run.history.newest is None else read(run.history.newest, now))


def _each(read: Callable[[SubstreamReport, int], float | None], merge: Callable[[Others, int], float | None]) -> Read:
    """One sample per substream furthest behind, and one for all others: a query may have thousands."""

    def samples(run: Run, now: int) -> list[Sample]:
        report = run.history.newest
        if report is None:
            return []
        standing = run.history.standing(report)
        values = [(name, read(report.substreams[name], now)) for name in standing.named]
        values += [(OTHERS, merge(standing.others, now))] if standing.others.count else []
        return [((name,), value) for name, value in values if value is not None]

    return samples


def _seconds(microseconds: int) -> float:
    return microseconds / 1_000_000


def _lag(substream: SubstreamReport | None, now: int) -> float | None:
    return None if substream is None or substream.watermark is None else _seconds(now - substream.watermark)


def _by_expectation(run: Run, now: int) -> list[Sample]:
    del now
    report = run.history.newest
    return [] if report is None else [((name,), each.total) for name, each in report.expectations.items()]


def _by_operator(read: Callable[[OperatorReport], float | None]) -> Read:
    """One sample for each operator with state."""

    def samples(run: Run, now: int) -> list[Sample]:
        del now
        report = run.history.newest
        values = [] if report is None else [(name, read(each)) for name, each in report.operators.items()]
        return [((name,), value) for name, value in values if value is not None]

    return samples


METRICS = (
    Metric(
        "sparkjet_up",
        "gauge",
        "1 while the query is running, 0 once it has ended or failed; nothing where only its records are known.",
        (),
        _of_run(lambda run, _: None if run.recorded else float(run.ended_at is None)),
    ),
    Metric(
        "sparkjet_query_watermark_lag_seconds",
        "gauge",
        "How far the query's watermark is behind the clock.",
        (),
        _of_report(lambda report, now: None if report.watermark is None else _seconds(now - report.watermark)),
    ),
    Metric(
        "sparkjet_watermark_lag_seconds",
        "gauge",
        "How far the watermark of a substream is behind the clock; of the others, that of the last one not idle.",
        ("substream",),
        _each(_lag, lambda others, now: _lag(others.furthest, now)),
    ),
    Metric(
        "sparkjet_substream_holds",
        "gauge",
        "1 if the query's watermark waits for the substream; of the others, how many it waits for.",
        ("substream",),
        _each(lambda each, _: float(each.holds_watermark), lambda others, _: others.holding),
    ),
    Metric(
        "sparkjet_substream_idle",
        "gauge",
        "1 if the substream is silent and not waited for; of the others, how many are.",
        ("substream",),
        _each(lambda each, _: float(each.idle), lambda others, _: others.idle),
    ),
    Metric(
        "sparkjet_substream_held_back",
        "gauge",
        "1 if maxWatermarkDrift holds the substream back, as it is ahead; of the others, how many it does.",
        ("substream",),
        _each(lambda each, _: float(each.held_back is not None), lambda others, _: others.held),
    ),
    Metric(
        "sparkjet_late_rows_total",
        "counter",
        "Late rows since the query's first start.",
        (),
        _of_report(lambda report, _: report.late_rows.total),
    ),
    Metric(
        "sparkjet_null_timestamp_rows_total",
        "counter",
        "Rows without an event time since the query's first start.",
        (),
        _of_report(lambda report, _: report.null_timestamps.total),
    ),
    Metric(
        "sparkjet_failed_rows_total",
        "counter",
        "Rows that have failed after divert in this run, by the stage of their dead letters.",
        ("stage",),
        # Copied at once, as below.
        lambda run, _: [((stage,), rows) for stage, rows in dict(run.history.totals.failed).items()],
    ),
    Metric(
        "sparkjet_expectation_violations_total",
        "counter",
        "Rows that have not met an expectation, since it is in the query.",
        ("expectation",),
        _by_expectation,
    ),
    Metric(
        "sparkjet_rows_in_total",
        "counter",
        "Rows that were read in this run, but for those of the batch that is running.",
        (),
        _of_run(lambda run, _: run.history.totals.rows_in),
    ),
    Metric(
        "sparkjet_rows_out_total",
        "counter",
        "Rows that were decided for an output in this run, where its sink counts them.",
        ("output",),
        # Copied at once: an epoch may add an output.
        lambda run, _: [((name,), rows) for name, rows in dict(run.history.totals.rows_out).items()],
    ),
    Metric(
        "sparkjet_epochs_total",
        "counter",
        "Epochs that have ended in this run.",
        (),
        _of_run(lambda run, _: run.history.totals.epochs),
    ),
    Metric(
        "sparkjet_epoch_age_seconds",
        "gauge",
        "Time since the last epoch ended, or before the first since the start; also the age of the newest snapshot.",
        (),
        # Before the first too: that is where a start hangs.
        _of_run(lambda run, now: _seconds(now - (run.history.ended_at or run.started_at))),
    ),
    Metric(
        "sparkjet_state_entries",
        "gauge",
        "Rows of state that a restart would read.",
        (),
        _of_report(lambda report, _: report.snapshot.entries),
    ),
    Metric(
        "sparkjet_state_deltas",
        "gauge",
        "Deltas that a restart would read.",
        (),
        _of_report(lambda report, _: report.snapshot.deltas),
    ),
    Metric(
        "sparkjet_operator_state_entries",
        "gauge",
        "Rows of state of an operator, including those that are replaced and not merged yet.",
        ("operator",),
        _by_operator(lambda each: each.entries),
    ),
    Metric(
        "sparkjet_operator_stored_bytes",
        "gauge",
        "Size of the files that the newest record names for an operator.",
        ("operator",),
        _by_operator(lambda each: each.stored_bytes),
    ),
    Metric(
        "sparkjet_operator_memory_bytes",
        "gauge",
        "Bytes of an operator's state in the memory of the executors.",
        ("operator",),
        _by_operator(lambda each: each.memory_bytes),
    ),
    Metric(
        "sparkjet_operator_spilled_bytes",
        "gauge",
        "Bytes of an operator's state on the executors' local disks, as their memory was full.",
        ("operator",),
        _by_operator(lambda each: each.spilled_bytes),
    ),
    Metric(
        "sparkjet_operator_limit_ratio",
        "gauge",
        "Share of maxStateEntries or maxStateBytes that an operator held; there is a warning above 0.8.",
        ("operator",),
        _by_operator(lambda each: each.of_limit),
    ),
    Metric(
        "sparkjet_shed_windows_total",
        "counter",
        "Windows of an operator that onStateLimit has closed early since the query's first start.",
        ("operator",),
        _by_operator(lambda each: each.shed_windows),
    ),
    Metric(
        "sparkjet_withheld_windows_total",
        "counter",
        "Windows without rows because their shape was changed between two runs.",
        (),
        _of_report(lambda report, _: report.withheld_windows),
    ),
    Metric(
        "sparkjet_transactions_decided",
        "gauge",
        "Transactions that the newest record decides.",
        (),
        _of_report(lambda report, _: len(report.sinks)),
    ),
    Metric(
        "sparkjet_transactions_unsettled",
        "gauge",
        "Decided transactions that their sinks have not taken.",
        (),
        _of_run(lambda run, _: None if run.history.newest is None else unsettled(run)),
    ),
    Metric(
        "sparkjet_grid_members",
        "gauge",
        "Members of the grid that has the query's home which answered when they were last asked.",
        (),
        _of_run(lambda run, _: run.members()),
    ),
)
HISTOGRAM = "sparkjet_epoch_seconds"
"""Durations of the phases of epochs in this run, by ``phase``."""


class Collector:
    """Collector for a prometheus_client registry: reads the runs on every scrape; thread-safe.

    Of the runs of one query the newest is shown, under the query's name or, without one, the beginning of its id.

    Args:
        clock: Source of the time; by default the machine's clock.
        runs: The runs to show; by default the queries of this driver.
    """

    def __init__(self, clock: Clock | None = None, runs: Runs = DRIVER) -> None:
        self._clock = clock or SystemClock()
        self._runs = runs

    def collect(self) -> Iterator[Family]:
        """Called by the registry: returns each metric with all its samples."""
        from prometheus_client.core import (  # noqa: PLC0415 - an extra
            CounterMetricFamily,
            GaugeMetricFamily,
            HistogramMetricFamily,
        )

        now, newest = self._clock.now(), self._newest()
        for metric in METRICS:
            kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
            family = kind(metric.name, metric.meaning, labels=["query", *metric.labels])
            for label, run in newest.items():
                for labels, value in metric.read(run, now):
                    family.add_metric([label, *labels], value)
            yield family
        durations = HistogramMetricFamily(HISTOGRAM, "Durations of epochs by phase.", labels=["query", "phase"])
        for label, run in newest.items():
            for phase, counts in list(run.history.totals.buckets.items()):
                durations.add_metric([label, phase], _cumulated(counts), run.history.totals.duration_ms[phase] / 1000)
        yield durations

    def describe(self) -> list[Family]:
        """Called on registration: nothing is read yet."""
        return []

    def _newest(self) -> dict[str, Run]:
        # A running one wins over those that have ended.
        return {run.label: run for run in reversed(self._runs.all())}


def exposition(clock: Clock, runs: Runs = DRIVER) -> bytes:
    """All metrics as text for Prometheus."""
    try:
        from prometheus_client import CollectorRegistry, generate_latest  # noqa: PLC0415 - an extra
    except ModuleNotFoundError as error:
        message = 'Metrics need prometheus-client. Install it with: pip install "sparkjet[metrics]"'
        raise AnalysisError(message) from error
    registry = CollectorRegistry()
    registry.register(Collector(clock, runs))
    return generate_latest(registry)


def _cumulated(counts: list[int]) -> list[tuple[str, float]]:
    bounds = [*(str(bound / 1000) for bound in BUCKETS_MS), "+Inf"]
    total, found = 0, []
    for bound, count in zip(bounds, counts, strict=True):
        total += count
        found.append((bound, float(total)))
    return found
