"""Read context: facts that Spark knows about a row only while it reads the row's file, and where they would be lost."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from sparkjet.catalyst.logical_plans import analyzed, children, kind_of, listed, streaming_nodes
from sparkjet.errors import AnalysisError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyspark.sql import DataFrame

_OF_A_FILE = {
    "InputFileName": "input_file_name()",
    "InputFileBlockStart": "input_file_block_start()",
    "InputFileBlockLength": "input_file_block_length()",
}
_METADATA = "__metadata_col"
"""Spark's mark of a column that a source has only on request."""


def check_read_context(sources: Iterable[DataFrame], held: DataFrame | None, results: Iterable[DataFrame]) -> None:
    """Refuse results that ask for a file's metadata or name where the file is no longer being read."""
    read = sum(map(_asked, sources), Counter())
    kept = Counter() if held is None else _asked(held)
    for result in results:
        for name, count in _asked(result).items():
            if name not in _OF_A_FILE.values() and count > read[name]:
                example = f'sj.stream(rows.select("*", F.col("{name}").alias("file")))'
                message = (
                    f"start: {name!r} is a column that the source has only while it is read, and is asked for later. "
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
