"""Outputs of crashed queries: the same rows in files, a table, a topic or a queue."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tests.crash.homes import store
from tests.crash.replay import RESULTS

if TYPE_CHECKING:
    from sparkjet import Stream
    from sparkjet.api.aggregate_rows import AggregateRows
    from sparkjet.api.grouped import WindowedStream
    from sparkjet.api.writer import StreamWriter
    from tests.crash.jobs import Place
    from tests.crash.replay import Rules

KEYS = ("sub", "key")
"""By which rows without windows replace older ones in tables."""


def with_home(writer: StreamWriter, place: Place) -> StreamWriter:
    """The output that carries the settings of its query, late rows among them."""
    return writer.options(checkpointLocation=place.home, lateRowsPath=place.late, statePartitions=2)


def into_files(results: WindowedStream | Stream, place: Place, output: str = RESULTS) -> StreamWriter:
    """Files in a directory of the query's."""
    return results.writeStream.format("files").option("path", place.root / output)


def into_table(
    results: AggregateRows | Stream, place: Place, rules: Rules, prepared: str = "always", output: str = RESULTS
) -> StreamWriter:
    """A table with the query's name; the dsn is in the query's directory."""
    return (
        results.select(*_flat(rules, output))
        .writeStream.format("postgres")
        .options(dsn=(place.root / "dsn").read_text(), dbtable=f'"{table_of(place, output)}"', prepared=prepared)
    )


def _flat(rules: Rules, output: str) -> list[str]:
    columns = list(rules.outputs[output])
    return ["window.start", "window.end", *columns[1:]] if rules.windowed else columns


def table_of(place: Place, output: str = RESULTS) -> str:
    """Name of the table of an output."""
    return place.root.name if output == RESULTS else f"{place.root.name} {output}"


def into_delta(results: AggregateRows | Stream, place: Place, rules: Rules) -> StreamWriter:
    """A Delta table below the query's directory, partitioned by the key; Kernel's jars are named there."""
    return _into_directory("delta", results, place, rules)


def into_iceberg(results: AggregateRows | Stream, place: Place, rules: Rules) -> StreamWriter:
    """An Iceberg table, as :func:`into_delta`."""
    return _into_directory("iceberg", results, place, rules)


def into_upserted(results: Stream, place: Place, rules: Rules, *, name: str) -> StreamWriter:
    """A table of that format whose rows are replaced by :data:`KEYS`, as :func:`into_delta`."""
    _add_jars(place)
    writer = results.select(*_flat(rules, RESULTS)).writeStream.format(name).option("path", place.root / name)
    return writer.options(mode="upsert", keyColumns=",".join(KEYS))


def _add_jars(place: Place) -> None:
    from pyspark.sql import SparkSession

    for jar in json.loads((place.root / "jars.json").read_text()):
        SparkSession.active().sql(f"ADD JAR '{jar}'")


def _into_directory(name: str, results: AggregateRows | Stream, place: Place, rules: Rules) -> StreamWriter:
    _add_jars(place)
    writer = results.select(*_flat(rules, RESULTS)).writeStream.format(name).partitionBy("key")
    # Rows without windows wait for each other.
    return writer.options(path=place.root / name, commitEvery=1 if rules.windowed else 2)


def into_jdbc(results: AggregateRows | Stream, place: Place, rules: Rules) -> StreamWriter:
    """A table of texts in the database that is named in the query's directory, with the jars of its driver."""
    from pyspark.sql import SparkSession

    given = json.loads((place.root / "jdbc.json").read_text())
    for jar in given["jars"]:
        SparkSession.active().sql(f"ADD JAR '{jar}'")
    return results.select(_as_json(rules).alias("body")).writeStream.format("jdbc").options(**given["options"])


def into_map(results: AggregateRows | Stream, place: Place, rules: Rules) -> StreamWriter:
    """A map of the query's own, in the grid that has the homes of all; it takes no row without a key."""
    keyed = results.where(" AND ".join(f"`{key}` IS NOT NULL" for key in rules.keys))
    writer = keyed.select(*_flat(rules, RESULTS)).writeStream.format("grid-map")
    return writer.options(path=f"{store()}/{map_of(place)}", keys=", ".join(["start", "end", *rules.keys]))


def map_of(place: Place) -> str:
    """Name of the map of a query; suites have queries of one name."""
    return f"{place.root.parent.name}-{place.root.name}"


def into_topic(results: WindowedStream | Stream, place: Place, rules: Rules) -> StreamWriter:
    """The topic that is named in the query's directory."""
    from pyspark.sql import functions as F

    records = results.select(F.col("key"), _as_json(rules).alias("value")).writeStream.format("kafka")
    return records.options(**json.loads((place.root / "kafka.json").read_text()))


def into_artemis(results: WindowedStream | Stream, place: Place, rules: Rules) -> StreamWriter:
    """The queue that is named in the query's directory."""
    messages = results.select(_as_json(rules).alias("body")).writeStream.format("artemis")
    return messages.options(**json.loads((place.root / "artemis.json").read_text()))


def _as_json(rules: Rules) -> Any:
    from pyspark.sql import functions as F

    columns: list[Any] = list(rules.outputs[RESULTS])
    if rules.windowed:
        columns[:1] = (F.unix_micros(F.col(f"window.{end}")).alias(end) for end in ("start", "end"))
    return F.to_json(F.struct(*columns), {"ignoreNullFields": "false"})


def into_rabbitmq(stream: Stream, place: Place, rules: Rules) -> StreamWriter:
    """The queue of RabbitMQ that is named in the query's directory."""
    from pyspark.sql import functions as F

    messages = stream.select(F.to_json(F.struct(*rules.outputs[RESULTS])).alias("body"))
    return messages.writeStream.format("rabbitmq").options(**json.loads((place.root / "queue.json").read_text()))
