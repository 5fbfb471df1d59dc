"""What must not be in a source DataFrame: things that drop or keep rows before sparkjet sees them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame

from sparkjet.columns import HIDDEN, quoted
from sparkjet.errors import AnalysisError

REFUSED = {
    "EventTimeWatermark": "Spark's withWatermark: it drops rows by the highest time of all partitions",
    "Deduplicate": "dropDuplicates: its state would live in Spark's checkpoint, outside the snapshot",
    "DeduplicateWithinWatermark": "dropDuplicatesWithinWatermark: it drops rows by Spark's watermark",
    "Aggregate": "an aggregation: group with sj.window instead",
    "FlatMapGroupsWithState": "a stateful function: its state would live outside the snapshot",
    "FlatMapGroupsInPandasWithState": "a stateful function: its state would live outside the snapshot",
    "TransformWithState": "a stateful function: its state would live outside the snapshot",
    "TransformWithStateInPySpark": "a stateful function: its state would live outside the snapshot",
}

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

KEEPING = (
    "avro", "csv", "json", "kafka", "orc", "parquet", "rate", "rate-micro-batch", "sparkjet-kafka", "text", "xml",
)  # fmt: skip
"""Sources that still have a batch after Spark has committed it."""

PARTITIONED = "sparkjet-kafka"
"""A source whose offsets name all its partitions, those without rows too."""


def check_source(df: object) -> None:
    """Refuse a DataFrame that cannot be the source of a query.

    Raises:
        AnalysisError: Naming what was found and what to do instead.
    """
    if type(df).__module__.startswith("pyspark.sql.connect"):
        message = (
            "stream: this DataFrame belongs to Spark Connect, which has no access to the driver that sparkjet runs in. "
            'Use a classic session: SparkSession.builder.master(…), without remote(…), spark.api.mode "classic".'
        )
        raise AnalysisError(message)
    if not isinstance(df, DataFrame):
        message = f"stream: expected a streaming DataFrame, got {type(df).__name__}."
        raise AnalysisError(message)
    if not df.isStreaming:
        message = "stream: this is a batch DataFrame. Read it with spark.readStream, or use Spark's own batch windows."
        raise AnalysisError(message)
    taken = [name for name in df.columns if name in HIDDEN]
    if taken:
        message = f"stream: the column name {taken[0]!r} is used by sparkjet. Rename the column."
        raise AnalysisError(message)
    _check_plan(df._jdf.queryExecution().analyzed())


def streaming_sources(df: DataFrame) -> int:
    """Number of Spark's sources that a streaming DataFrame reads."""
    return sum(_children(node) == [] for node in _streaming_nodes(df._jdf.queryExecution().analyzed()))


def partition_columns(df: DataFrame) -> tuple[str, ...] | None:
    """The columns that name the partitions of our Kafka source, None if a streaming DataFrame reads something else.

    Only those that still are what the source delivered: something else may have taken their names.
    """
    plan = df._jdf.queryExecution().analyzed()
    leaves = [node for node in _streaming_nodes(plan) if _children(node) == []]
    if len(leaves) != 1 or leaves[0].nodeName() != "StreamingRelationV2" or leaves[0].sourceName() != PARTITIONED:
        return None
    delivered = {_id(attribute) for attribute in _listed(leaves[0].output())}
    kept = {attribute.name() for attribute in _listed(plan.output()) if _id(attribute) in delivered}
    return tuple(name for name in ("topic", "partition") if name in kept)


def acknowledging_source(df: DataFrame) -> str | None:
    """A source that lets go of what Spark has committed, or of which that cannot be told; None if there is none."""
    jvm: Any = df.sparkSession._jvm
    for leaf in (node for node in _streaming_nodes(df._jdf.queryExecution().analyzed()) if _children(node) == []):
        if leaf.nodeName() != "StreamingRelation":
            if leaf.sourceName() not in KEEPING:
                return str(leaf.sourceName())
            continue
        source = leaf.dataSource()
        options = jvm.scala.jdk.javaapi.CollectionConverters.asJava(source.options())
        cleaning = {name.lower(): options[name] for name in options}.get("cleansource", "off")
        if cleaning.lower() != "off":
            return f"{source.className()} with cleanSource={cleaning}"
        if source.className().lower() not in KEEPING:
            return str(source.className())
    return None


def used_up(query: StreamingQuery) -> bool:
    """Whether Spark's query has come to the end of its input, rather than been stopped from outside.

    ``spark.streams`` gives everybody the query to stop, and Spark itself stops it when one of the same id starts in the
    same process. Closing windows then would make late what was still to be read.
    """
    # Not in Spark's API, whose status says "Stopped" in either case.
    jquery: Any = query._jsq  # noqa: SLF001
    return bool(jquery.streamingQuery().noNewData())


def adds_rows(before: DataFrame, after: DataFrame) -> bool:
    """Whether a transformation makes several rows, or none, of one (``explode`` and its like)."""
    return _generators(after) > _generators(before)


def calls_python(df: DataFrame) -> bool:
    """Whether the last transformation of a DataFrame calls a Python function."""
    jvm: Any = df.sparkSession._jvm
    pattern = jvm.org.apache.spark.sql.catalyst.trees.TreePattern.PYTHON_UDF()
    expressions = df._jdf.queryExecution().analyzed().expressions()
    return any(expressions.apply(i).containsPattern(pattern) for i in range(expressions.size()))


def check_stable(df: DataFrame, names: Sequence[str]) -> None:
    """Refuse keys that would be others if they were computed again.

    Raises:
        AnalysisError: Naming the column and the expression.
    """
    for name in names:
        if name in df.columns:
            unstable = _unstable(df.select(quoted(name))._jdf.queryExecution().analyzed())
            if unstable is not None:
                message = (
                    f"keyColumns: {name!r} comes from {unstable}, which gives another value each time. A row that is "
                    "computed again could not replace itself; take the key from the data."
                )
                raise AnalysisError(message)


def _unstable(plan: Any) -> str | None:
    """The text of a non-deterministic expression that the output of a plan comes from, None if there is none."""
    wanted = {_id(attribute) for attribute in _listed(plan.output())}
    nodes = [plan]
    while nodes:
        node = nodes.pop()
        for expression in _listed(node.expressions()):
            if expression.getClass().getSimpleName() == "Alias" and _id(expression) in wanted:
                if not expression.deterministic():
                    return str(expression.sql())
                wanted |= {_id(each) for each in _listed(expression.references().toSeq())}
        nodes += _children(node)
    return None


def _id(attribute: Any) -> int:
    return int(attribute.exprId().id())


def _listed(sequence: Any) -> list[Any]:
    return [sequence.apply(i) for i in range(sequence.size())]


def _generators(df: DataFrame) -> int:
    return sum(node.nodeName() == "Generate" for node in _streaming_nodes(df._jdf.queryExecution().analyzed()))


def _check_plan(plan: Any) -> None:
    for node in _streaming_nodes(plan):
        reason = REFUSED.get(node.nodeName())
        if node.nodeName() == "Join" and all(child.isStreaming() for child in _children(node)):
            reason = "a stream-stream join: its state would live outside the snapshot"
        if reason is not None:
            message = f"stream: the DataFrame contains {reason}. Call sj.stream(…) before it."
            raise AnalysisError(message)


def _streaming_nodes(plan: Any) -> Iterator[Any]:
    """The nodes of a logical plan that rows of the stream go through, from the top."""
    if plan.isStreaming():
        yield plan
        for child in _children(plan):
            yield from _streaming_nodes(child)


def _children(plan: Any) -> list[Any]:
    return _listed(plan.children())
