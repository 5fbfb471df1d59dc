"""The arguments of ``withWatermark``, checked against the rows that they are for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.types import TimestampType

from sparkjet.catalyst.logical_plans import same_name
from sparkjet.errors import AnalysisError, nearest
from sparkjet.plan.event_time import as_timestamp
from sparkjet.plan.inputs import WatermarkSettings
from sparkjet.plan.spark_sources import partition_columns, untelling_source
from sparkjet.query_log import logger
from sparkjet.time import Carried, limiting_lag, parse_duration

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from sparkjet.time import PolicySettings, Throttle
    from sparkjet.time.durations import Duration


def watermark_settings(
    rows: DataFrame,
    eventTime: str,
    policy: PolicySettings | Duration,
    *,
    by: tuple[str, ...],
    substreams: Sequence[str],
    throttle: Throttle | None,
    **timeouts: Duration | None,
) -> WatermarkSettings:
    """The settings of a watermark over ``rows``, from the arguments of :meth:`sparkjet.Stream.withWatermark`.

    Raises:
        AnalysisError: A wrong column, type, policy or duration; the message names it and what would be right.
    """
    event_time, columns = _found("eventTime", eventTime, rows), tuple(_found("by", name, rows) for name in by)
    found = rows.schema[event_time].dataType
    if not isinstance(found, TimestampType):
        message = (
            f"withWatermark: the event time {event_time!r} is of type {found.simpleString()}, not timestamp. "
            f'Convert it first: withColumn("{event_time}", {as_timestamp(found, event_time)}).'
        )
        raise AnalysisError(message)
    if isinstance(substreams, str) or (substreams and not columns):
        raise AnalysisError(f"withWatermark: substreams={substreams!r} must be a list of names, and needs by=…")
    partitions = partition_columns(rows)
    if not columns and partitions is not None:
        if partitions.kept == partitions.columns:
            columns = partitions.columns
        elif not isinstance(policy, Carried):
            # If the source carries watermarks, the least of them counts, and by it no row of a slow partition is late.
            logger.warning(
                "withWatermark: without the columns %s all partitions of %s are one substream, and rows of a slow one "
                "may be late. Keep them, or name others with by=…",
                " and ".join(partitions.columns),
                partitions.source,
            )
    if isinstance(policy, Carried) and policy.otherwise is None:
        _check_told(rows)
    if isinstance(policy, Carried) and policy.without and partitions is not None:
        message = (
            f"withWatermark: carried(without={[*policy.without]}): the offsets of {partitions.source} have watermarks "
            "by partition, not by writer. Leave their progress topics out of progressTopic; a journal has one writer."
        )
        raise AnalysisError(message)
    return WatermarkSettings(
        event_time=event_time,
        policy=limiting_lag(policy) if not hasattr(policy, "create") else policy,
        by=columns,
        substreams=tuple(str(name) for name in substreams),
        discover=_optional(timeouts, "discover"),
        idle_timeout=_optional(timeouts, "idleTimeout"),
        substream_timeout=_optional(timeouts, "substreamTimeout"),
        throttle=throttle,
        partitions=partitions is not None and partitions.name(columns),
    )


def _check_told(rows: DataFrame) -> None:
    """Refuse to wait for watermarks that never come."""
    untelling = untelling_source(rows)
    if untelling is not None:
        message = (
            f"withWatermark: carried() would wait forever: Spark's source {untelling!r} has no watermark of who wrote "
            'its rows. Read a directory that sparkjet writes by format("sparkjet-files"), and a topic by '
            'format("sparkjet-kafka") with progressTopic. Or name another policy: '
            'carried(otherwise=limiting_lag("1 minute")).'
        )
        raise AnalysisError(message)


def _found(option: str, name: object, rows: DataFrame) -> str:
    """The column for a name, which may be spelled in another case, as in Spark; a missing one is refused."""
    if not isinstance(name, str):
        raise AnalysisError(f"withWatermark: {option}={name!r} is not the name of a column.")
    found = [each for each in rows.columns if same_name(rows, each, name)]
    if not found:
        raise AnalysisError(f"withWatermark: {option}={name!r} is not a column; {nearest(name, rows.columns)}")
    return name if name in found else found[0]


def _optional(timeouts: Mapping[str, Duration | None], option: str) -> int | None:
    duration = timeouts[option]
    return None if duration is None else parse_duration(duration, option, minimum=1)
