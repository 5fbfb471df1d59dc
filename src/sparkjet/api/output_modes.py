"""Output modes: which results an output gets, and where each mode is allowed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkjet.catalyst.logical_plans import analyzed, passed_nodes
from sparkjet.errors import AnalysisError
from sparkjet.options import EARLY_RESULTS_PERIOD, IS_EARLY, LATE_ROWS_PATH
from sparkjet.plan.aggregation import Aggregation
from sparkjet.plan.outputs import Rows
from sparkjet.plan.rolling_aggregation import RollingAggregation
from sparkjet.plan.windowed_aggregation import WindowedAggregation
from sparkjet.sinks.protocol import Keyed
from sparkjet.windows import SessionWindow

if TYPE_CHECKING:
    from sparkjet.api.output_settings import OutputSettings
    from sparkjet.options import Options
    from sparkjet.plan.stage import Stage
    from sparkjet.sinks.protocol import Sink

APPEND, UPDATE, COMPLETE = "append", "update", "complete"
MODES = (APPEND, UPDATE, COMPLETE)


def mode_of(outputMode: str) -> str:
    """The mode that a user has named.

    Raises:
        AnalysisError: There is no such mode.
    """
    given: object = outputMode
    if not isinstance(given, str) or given.lower() not in MODES:
        message = (
            f'outputMode: there is no mode "{outputMode}". Use "append" for rows that are final, "update" for the rows '
            'that have changed, or "complete" for all results in each epoch.'
        )
        raise AnalysisError(message)
    return outputMode.lower()


def stage_in_mode(settings: OutputSettings, options: Options) -> Stage | None:
    """The stage whose rows an output gets in its mode; None for those of the stream itself.

    Raises:
        AnalysisError: The mode does not go with the rows, the sink or an option.
    """
    stage, complete = settings.stage, settings.mode == COMPLETE
    if settings.rows in {Rows.LATE, Rows.DEAD}:
        if settings.mode != APPEND:
            raise AnalysisError(f'outputMode: {settings.rows.value} rows are never early; use "append".')
        return stage
    if complete and not isinstance(stage, Aggregation):
        message = (
            'outputMode: "complete" is for the results of an aggregation, as in Spark, and these rows are not. Use '
            '"append", or groupBy(…).agg(…) first.'
        )
        raise AnalysisError(message)
    if complete and isinstance(stage, WindowedAggregation):
        if isinstance(stage.window, SessionWindow):
            message = (
                'outputMode: "complete" keeps all windows forever, which sparkjet does with windows of fixed length '
                'only, not with sessions. Use "append" for sessions that are final, or "update" for open ones too.'
            )
            raise AnalysisError(message)
        stage = stage.rolling
    elif settings.mode == UPDATE and isinstance(stage, WindowedAggregation):
        _check_comparing(settings)
        stage = stage.by_key or stage
    if settings.chain.whole and not complete:
        message = (
            f'orderBy, limit and groupBy are for all results, and outputMode("{settings.mode}") emits some in each '
            'epoch. Use outputMode("complete"), or sort and group where the results are read.'
        )
        raise AnalysisError(message)
    if isinstance(stage, RollingAggregation):
        _check_rolling(settings, options)
    elif isinstance(stage, WindowedAggregation):
        _check_early(settings, options)
    return stage


def check_sink(sink: Sink, mode: str) -> None:
    """Refuse a sink that would add all results again in each epoch.

    Raises:
        AnalysisError: It replaces rows by key, but has no key.
    """
    if mode == COMPLETE and isinstance(sink, Keyed) and not sink.keys:
        message = (
            'outputMode: "complete" would add all results once more in each epoch. Give option("keyColumns", "…"), so '
            "that they replace the earlier ones."
        )
        raise AnalysisError(message)


def _check_comparing(settings: OutputSettings) -> None:
    """Refuse window functions over results, as a window's unchanged results are not there to be compared."""
    counted = [
        sum(node.nodeName() == "Window" for node in passed_nodes(analyzed(rows)))
        for rows in (settings.chain.source, settings.chain.shape)
    ]
    if counted[0] < counted[1]:
        message = (
            'outputMode: "update" emits the results that have changed, and a window function (over) would compare only '
            'these. Use outputMode("append"), in which all results of a window come at once, or "complete".'
        )
        raise AnalysisError(message)


def _check_early(settings: OutputSettings, options: Options) -> None:
    """Refuse early rows that could not be distinguished from final ones, if both stay."""
    assert settings.sink is not None  # noqa: S101 - checked by the caller
    if settings.mode == UPDATE and _only_adds(settings, options) and not options[IS_EARLY]:
        raise _adding_error(
            settings,
            "a window again each time it has changed",
            'Use outputMode("append"), with which the query goes on from what it has saved; or option("isEarly", '
            "True), and read the rows in which is_early is false.",
        )


def _check_rolling(settings: OutputSettings, options: Options) -> None:
    """Refuse settings that make no sense for results that are never final."""
    assert settings.sink is not None  # noqa: S101 - checked by the caller
    if settings.mode == APPEND:
        message = (
            'outputMode: "append" is for rows that are final, and an aggregate is final only once its window has '
            'closed, which takes a watermark. Use outputMode("update") for the rows that have changed, or '
            'outputMode("complete") for all; or withWatermark(…) and groupBy(F.window(…), …), the call itself.'
        )
        raise AnalysisError(message)
    if _only_adds(settings, options):
        raise _adding_error(
            settings,
            "rows that replace earlier ones",
            'Use format("postgres") with keyColumns, format("kafka") with a key or foreachBatch(…), or windows on a '
            "watermark.",
        )
    for option in (EARLY_RESULTS_PERIOD, IS_EARLY, LATE_ROWS_PATH):
        if option in options:
            message = f"{option.name}: these results are never final, so no row of them is early or late. Leave it out."
            raise AnalysisError(message)


def _only_adds(settings: OutputSettings, options: Options) -> bool:
    """Whether existing rows stay, no matter what follows them."""
    assert settings.sink is not None  # noqa: S101 - checked by the caller
    return settings.sink.format.only_adds(options)


def _adding_error(settings: OutputSettings, what: str, otherwise: str) -> AnalysisError:
    """The error for a mode where rows stay: what the mode emits, and what to do instead with files."""
    assert settings.sink is not None  # noqa: S101 - checked by the caller
    if settings.sink.format.takes_table:
        return AnalysisError(
            f'outputMode: without keys a table is only added to, and "{settings.mode}" emits {what}. Give '
            'option("mode", "upsert") and option("keyColumns", "…"), so that rows replace the earlier ones.'
        )
    return AnalysisError(
        f'outputMode: files are only added to, and "{settings.mode}" emits {what}, so that Spark too writes files in '
        f'mode "append" only. {otherwise}'
    )
