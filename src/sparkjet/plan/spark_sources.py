"""The sources of a streaming DataFrame: which they are, and whether they can be read again after a restart."""

from __future__ import annotations

import logging
from enum import Enum
from typing import TYPE_CHECKING, Any

from py4j.java_gateway import is_instance_of

from sparkjet.catalyst.logical_plans import analyzed, attribute_id, children, listed, streaming_nodes
from sparkjet.errors import AnalysisError
from sparkjet.sinks.protocol import Guarantee

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

logger = logging.getLogger("sparkjet")

KEEPING = (
    "avro", "csv", "delta", "json", "kafka", "orc", "parquet", "rate", "rate-micro-batch", "sparkjet-kafka", "text",
    "xml",
)  # fmt: skip
"""Sources that still have a batch after Spark has committed it, and give the same rows for the same offsets."""

FORGETTING = ("socket",)
"""Sources that deliver what has just come, and cannot be read again."""

PARTITIONED = "sparkjet-kafka"
"""A source whose offsets name all its partitions, those without rows too."""

_NAMED = "org.apache.spark.sql.sources.DataSourceRegister"
_PYTHON = "org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2"


class Rereading(Enum):
    """Whether a source gives the same rows for the same offsets, also after a restart; the worse the later."""

    YES = "yes"
    UNKNOWN = "unknown"
    NO = "no"


def rereading(df: DataFrame) -> tuple[Rereading, str]:
    """What can be said of all sources of a streaming DataFrame, with the name of one of which it is true."""
    judged = [_rereading(df, leaf) for leaf in _leaves(df)]
    return max(judged, key=lambda each: list(Rereading).index(each[0]))


def check_rereading(df: DataFrame, guarantee: Guarantee) -> None:
    """Refuse a source that cannot be read again, and warn of one of which nothing is known.

    Raises:
        AnalysisError: After a crash rows would be missing, which is less than the query promises.
    """
    if guarantee is Guarantee.NONE:
        return
    answer, name = rereading(df)
    if answer is Rereading.NO:
        message = (
            f"start: the source {name!r} cannot be read again, so each restart loses rows: processingGuarantee cannot "
            f'be "{guarantee.value}". Write the rows to files or Kafka and read those, or accept it with '
            'option("processingGuarantee", "none").'
        )
        raise AnalysisError(message)
    if answer is Rereading.UNKNOWN:
        logger.warning(
            "the source %r is not known to give the same rows again for the same offsets. If it does, restarts lose "
            'nothing; as sparkjet cannot tell, query.guarantees says "none"',
            name,
        )


def guarantee_of_sources(df: DataFrame) -> Guarantee:
    """What can be promised for the rows of a streaming DataFrame, however good the sinks are."""
    return Guarantee.EXACTLY_ONCE if rereading(df)[0] is Rereading.YES else Guarantee.NONE


def streaming_sources(df: DataFrame) -> int:
    """Number of Spark's sources that a streaming DataFrame reads."""
    return len(_leaves(df))


def partition_columns(df: DataFrame) -> tuple[str, ...] | None:
    """The columns that name the partitions of our Kafka source, None if a streaming DataFrame reads something else.

    Only those that still are what the source delivered: something else may have taken their names.
    """
    leaves = _leaves(df)
    if len(leaves) != 1 or leaves[0].nodeName() != "StreamingRelationV2" or leaves[0].sourceName() != PARTITIONED:
        return None
    delivered = {attribute_id(attribute) for attribute in listed(leaves[0].output())}
    kept = {each.name() for each in listed(analyzed(df).output()) if attribute_id(each) in delivered}
    return tuple(name for name in ("topic", "partition") if name in kept)


def acknowledging_source(df: DataFrame) -> str | None:
    """A source that lets go of what Spark has committed, or of which that cannot be told; None if there is none."""
    jvm: Any = df.sparkSession._jvm
    for leaf in _leaves(df):
        name = _name(df, leaf)
        if leaf.nodeName() == "StreamingRelation":
            options = jvm.scala.jdk.javaapi.CollectionConverters.asJava(leaf.dataSource().options())
            cleaning = {option.lower(): options[option] for option in options}.get("cleansource", "off")
            if cleaning.lower() != "off":
                return f"{name} with cleanSource={cleaning}"
        if name.lower() not in KEEPING and not _reads_files(leaf):
            return name
    return None


def _rereading(df: DataFrame, leaf: Any) -> tuple[Rereading, str]:
    name = _name(df, leaf)
    if name.lower() in FORGETTING:
        return Rereading.NO, name
    # Python readers have to give the same rows for the same offsets: after a restart Spark asks them for both again.
    known = name.lower() in KEEPING or _reads_files(leaf) or _provider_class(leaf) == _PYTHON
    return Rereading.YES if known else Rereading.UNKNOWN, name


def _leaves(df: DataFrame) -> list[Any]:
    """Spark's sources in a plan; a common table expression is a leaf wherever it is used, and none of them."""
    nodes = streaming_nodes(analyzed(df))
    return [node for node in nodes if node.nodeName() != "CTERelationRef" and children(node) == []]


def _reads_files(leaf: Any) -> bool:
    return leaf.nodeName() == "StreamingRelation" and str(leaf.sourceName()).startswith("FileSource[")


def _provider_class(leaf: Any) -> str | None:
    provider = _provider(leaf)
    return None if provider is None else str(provider.getClass().getName())


def _provider(leaf: Any) -> Any:
    """What provides a source; None for one of Spark's older kind, and where a catalog names a table."""
    newer = leaf.nodeName() == "StreamingRelationV2" and leaf.source().isDefined()
    return leaf.source().get() if newer else None


def _name(df: DataFrame, leaf: Any) -> str:
    """The short name of a source, whichever of its names the query uses."""
    if leaf.nodeName() not in {"StreamingRelation", "StreamingRelationV2"}:
        return str(leaf.nodeName())
    if _reads_files(leaf):
        return str(leaf.dataSource().className())
    provider, gateway = _provider(leaf), df.sparkSession.sparkContext._gateway
    registered = provider is not None and is_instance_of(gateway, provider, _NAMED)
    return str(provider.shortName() if registered else leaf.sourceName())
