"""Facts that Spark knows about a DataFrame or a query but that its API does not show."""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame

from sparkjet.catalyst.columns import HIDDEN, quoted
from sparkjet.catalyst.logical_plans import analyzed, attribute_id, children, kind_of, listed, streaming_nodes
from sparkjet.catalyst.row_by_row import check_row_by_row
from sparkjet.errors import AnalysisError, refuse_connect
from sparkjet.java import as_map, java_class, static_method

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

_SQL = "org.apache.spark.sql"
_OF_A_FILE = {
    "InputFileName": "input_file_name()",
    "InputFileBlockStart": "input_file_block_start()",
    "InputFileBlockLength": "input_file_block_length()",
}
_METADATA = "__metadata_col"
"""Spark's mark of a column that a source has only on request."""


def check_source(df: object) -> None:
    """Refuse a DataFrame that cannot be the source of a query."""
    refuse_connect("stream", df)
    if not isinstance(df, DataFrame):
        raise AnalysisError(f"stream: expected a DataFrame, got {type(df).__name__}.")
    taken = [name for name in df.columns if name in HIDDEN]
    if taken:
        raise AnalysisError(f"stream: the column name {taken[0]!r} is used by sparkjet. Rename the column.")
    check_row_by_row(df)


def check_streaming(df: DataFrame) -> None:
    """Refuse what Spark refuses when it starts a streaming DataFrame, before anything is created for it."""
    session = df.sparkSession
    check = static_method(session, f"{_SQL}.catalyst.analysis.UnsupportedOperationChecker.checkForStreaming")
    try:
        check(analyzed(df), static_method(session, f"{_SQL}.streaming.OutputMode.Append")())
    except AnalysisException as error:
        reason = str(error).partition("\n")[0].rstrip(";.")
        message = f"start: {reason}. Leave it out, or do it with Spark on the rows of each epoch, in foreachBatch(…)."
        raise AnalysisError(message) from error


def used_up(query: StreamingQuery) -> bool:
    """Whether Spark's query has reached the end of its input, rather than been stopped from outside.

    Anyone can stop it through ``spark.streams``, and Spark itself stops it when one with the same id starts in the same
    process. If windows were closed then, rows still to be read would be late.
    """
    # Not in Spark's API, whose status is "Stopped" in either case.
    jquery: Any = query._jsq  # noqa: SLF001
    return bool(jquery.streamingQuery().noNewData())


def fail_at_stop(query: StreamingQuery, session: SparkSession, error: BaseException) -> None:
    """Have Spark's query end with a failure when it is stopped, unless it has one; as text, like that of a batch.

    Otherwise ``spark.streams`` and its listeners would take it for stopped by its user.
    """
    jquery: Any = query._jsq  # noqa: SLF001
    execution = jquery.streamingQuery()
    if execution.streamDeathCause() is not None:
        return
    text = "".join(traceback.format_exception(error))
    cause = java_class(session, "java.lang.RuntimeException")(text)
    says = {"id": str(query.id), "runId": str(query.runId), "message": text, "queryDebugString": ""}
    failure = java_class(session, "org.apache.spark.sql.streaming.StreamingQueryException")
    # Not in Spark's API: what its thread stores there when a batch fails.
    keep = getattr(execution, "streamDeathCause_$eq")
    keep(failure(text, cause, "STREAM_FAILED", as_map(session, says.items())))


def calls_python(df: DataFrame) -> bool:
    """Whether the last transformation of a DataFrame calls a Python function."""
    pattern = static_method(df.sparkSession, f"{_SQL}.catalyst.trees.TreePattern.PYTHON_UDF")()
    expressions = analyzed(df).expressions()
    return any(expressions.apply(i).containsPattern(pattern) for i in range(expressions.size()))


def can_repeat(df: DataFrame) -> bool:
    """Whether the last transformation of a DataFrame may be computed several times, and on rows of nulls."""
    deterministic = all(expression.deterministic() for expression in listed(analyzed(df).expressions()))
    return deterministic and not calls_python(df)


def is_repeatable(df: DataFrame) -> bool:
    """Whether everything that a DataFrame computes from its inputs comes out the same if it is computed again."""
    python = static_method(df.sparkSession, f"{_SQL}.catalyst.trees.TreePattern.PYTHON_UDF")()
    plan = analyzed(df)
    # A user's function is not known to be.
    return plan.deterministic() and not plan.containsPattern(python) and not any(map(_runs_code, _nodes(plan)))


def _nodes(plan: Any) -> Iterator[Any]:
    yield plan
    for child in children(plan):
        yield from _nodes(child)


def _runs_code(node: Any) -> bool:
    name = str(node.nodeName())
    return "Map" in name or "Python" in name or name in {"ScriptTransformation", "TypedFilter"}


def reads_any(df: DataFrame, ids: Collection[int]) -> bool:
    """Whether the last transformation of a DataFrame computes anything from the columns with these identities."""
    computed = (each for each in listed(analyzed(df).expressions()) if not _is_reference(each)) if ids else ()
    return any(attribute_id(read) in ids for each in computed for read in listed(each.references().toSeq()))


def _is_reference(expression: Any) -> bool:
    return str(expression.getClass().getSimpleName()) == "AttributeReference"


def check_stable(df: DataFrame, names: Sequence[str], option: str = "keyColumns") -> None:
    """Refuse keys named by a sink's option that would change if they were computed again."""
    for name in names:
        if name in df.columns:
            unstable = _unstable(analyzed(df.select(quoted(name))))
            if unstable is not None:
                message = (
                    f"{option}: {name!r} comes from {unstable}, which gives another value each time. A row that is "
                    "computed again could not replace itself; take the key from the data."
                )
                raise AnalysisError(message)


def _unstable(plan: Any) -> str | None:
    """The text of a nondeterministic expression from which a plan's output is computed, None if there is none."""
    wanted = {attribute_id(attribute) for attribute in listed(plan.output())}
    nodes = [plan]
    while nodes:
        node = nodes.pop()
        for expression in listed(node.expressions()):
            if expression.getClass().getSimpleName() == "Alias" and attribute_id(expression) in wanted:
                if not expression.deterministic():
                    return str(expression.sql())
                wanted |= {attribute_id(each) for each in listed(expression.references().toSeq())}
        nodes += children(node)
    return None


def check_read_context(sources: Iterable[DataFrame], held: DataFrame | None, results: Iterable[DataFrame]) -> None:
    """Refuse results that ask for a file's metadata or name where the file is no longer being read."""
    read = sum(map(_asked, sources), Counter())
    kept = Counter() if held is None else _asked(held)
    for result in results:
        for name, count in _asked(result).items():
            if name not in _OF_A_FILE.values() and count > read[name]:
                example = f'sj.stream(rows.select("*", F.col("{name}").alias("file")))'
                message = (
                    f"start: the source has the column {name!r} only while it is read, but it is used later. "
                    f"Give it a name before: {example}."
                )
                raise AnalysisError(message)
            if name in _OF_A_FILE.values() and held is not None and count > kept[name]:
                message = (
                    f"start: {name} is known only while a file is read, but this query reads each batch several times, "
                    f'from memory. Call it before: sj.stream(rows.withColumn("file", F.{name})).'
                )
                raise AnalysisError(message)


def _asked(rows: DataFrame) -> Counter[str]:
    """The facts about files that are requested from a stream, and how often."""
    asked: Counter[str] = Counter()
    for node in streaming_nodes(analyzed(rows)):
        if not children(node):
            asked.update(str(each.name()) for each in listed(node.output()) if each.metadata().contains(_METADATA))
        for expression in listed(node.expressions()):
            if not expression.deterministic():
                asked.update(_of_a_file(expression))
    return asked


def _of_a_file(expression: Any) -> list[str]:
    name = _OF_A_FILE.get(kind_of(expression))
    below = [each for child in children(expression) for each in _of_a_file(child)]
    return below if name is None else [name, *below]
