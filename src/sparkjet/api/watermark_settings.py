"""The arguments of ``withWatermark``, checked against the rows that they are for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.types import TimestampType

from sparkjet.errors import AnalysisError, nearest
from sparkjet.plan.event_time import as_timestamp
from sparkjet.plan.inputs import WatermarkSettings
from sparkjet.plan.spark_sources import partition_columns
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
    columns = by
    for option, name in [("eventTime", eventTime), *(("by", name) for name in columns)]:
        if name not in rows.columns:
            message = f"withWatermark: {option}={name!r} is not a column; {nearest(str(name), rows.columns)}"
            raise AnalysisError(message)
    found = rows.schema[eventTime].dataType
    if not isinstance(found, TimestampType):
        message = (
            f"withWatermark: the event time {eventTime!r} is of type {found.simpleString()}, not timestamp. "
            f'Convert it first: withColumn("{eventTime}", {as_timestamp(found, eventTime)}).'
        )
        raise AnalysisError(message)
    if isinstance(substreams, str) or (substreams and not columns):
        message = f"withWatermark: substreams={substreams!r} must be a list of names, and needs by=…"
        raise AnalysisError(message)
    partitions = partition_columns(rows)
    if not columns and partitions is not None:
        if partitions.kept == partitions.columns:
            columns = partitions.columns
        elif not isinstance(policy, Carried):
            # Of what the source carries the least counts, and by it no row of a slow partition is late.
            logger.warning(
                "withWatermark: without the columns %s all partitions of %s are one substream, and rows of a slow one "
                "may be late. Keep them, or name others with by=…",
                " and ".join(partitions.columns),
                partitions.source,
            )
    return WatermarkSettings(
        event_time=eventTime,
        policy=limiting_lag(policy) if not hasattr(policy, "create") else policy,
        by=columns,
        substreams=tuple(str(name) for name in substreams),
        discover=_optional(timeouts, "discover"),
        idle_timeout=_optional(timeouts, "idleTimeout"),
        substream_timeout=_optional(timeouts, "substreamTimeout"),
        throttle=throttle,
        partitions=partitions is not None and partitions.name(columns),
    )


def _optional(timeouts: Mapping[str, Duration | None], option: str) -> int | None:
    duration = timeouts[option]
    return None if duration is None else parse_duration(duration, option, minimum=1)
