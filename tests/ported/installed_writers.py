"""The docstrings of PySpark's writer of streams, read from the installed package."""

import re
from datetime import datetime
from types import SimpleNamespace
from uuid import uuid4

from pyspark.sql.streaming import DataStreamReader, DataStreamWriter

from tests.ported.installed import docstring, session
from tests.ported.port import Port

START = docstring(DataStreamWriter.start)


def remainders(df):
    return docstring(DataStreamWriter).run("df = df.", df=df)


def to_console(df, place):
    return docstring(DataStreamWriter).run("q =", df=df)


def to_csv(df, place):
    return docstring(DataStreamWriter.format).run("q =", df=df, **directories(place))


def from_csv(spark, place):
    found = docstring(DataStreamWriter.format).run(".csv(d)", spark=spark, **directories(place))
    return found.selectExpr("timestamp", "bigint(value) AS value")


def three_rows(df, place):
    return docstring(DataStreamWriter.option).run("q =", spark=session(df))


def three_whole_rows(df, place):
    return docstring(DataStreamWriter.options).run("q =", spark=session(df))


def to_partitions(df, place):
    return docstring(DataStreamWriter.partitionBy).run("q =", df=df, **directories(place))


def from_partitions(spark, place):
    df = SimpleNamespace(schema=RATE)
    return docstring(DataStreamWriter.partitionBy).run(".parquet(d)", spark=spark, df=df, **directories(place))


def named(df, place):
    return docstring(DataStreamWriter.queryName).run("q =", df=df)


def each_row(df, place):
    return docstring(DataStreamWriter.foreach).run("def print_row", "foreach(print_row)", df=df, print=printing(place))


def each_partition(df, place):
    text = docstring(DataStreamWriter.foreach)
    return text.run("class RowPrinter", "foreach(RowPrinter())", df=df, print=printing(place))


def to_memory(df, place):
    return START.run("queryName('this_query')", df=df)


def to_memory_every_5_seconds(df, place):
    return START.run("trigger(processingTime=", df=df)


def to_table(df, place):
    return docstring(DataStreamReader.table).run("q1 =", spark=session(df), **directories(place))


def to_table_of_parquet(df, place):
    return docstring(DataStreamWriter.toTable).run("q =", spark=session(df), **directories(place))


def from_table_of_parquet(spark, place):
    return docstring(DataStreamWriter.toTable).run("spark.read.table(", spark=spark)


def directories(place):
    """Those that the texts make."""
    return {"d": str(place / "d"), "cp": str(place / "cp")}


def printing(place):
    """Output of workers is lost: here it goes into files."""

    def print(value):
        (place / uuid4().hex).write_text(str(value))

    return print


def printed(spark, place):
    """The rows that were printed."""
    texts = [path.read_text() for path in place.iterdir() if path.is_file()]
    assert {text for text in texts if text.startswith("Closed")} <= {"Closed with error: None"}
    found = [re.fullmatch(r"Row\(timestamp=datetime\.datetime\((.+)\), value=(\d+)\)", text) for text in texts]
    rows = [(datetime(*map(int, row[1].split(", "))), int(row[2])) for row in found if row]
    return spark.createDataFrame(rows, RATE)


RATE = "timestamp timestamp, value long"
TICKS = [[(f"2026-01-01 12:0{minute}:0{second}", minute * 3 + second) for second in (1, 2, 3)] for minute in (1, 2)]


def of(write, delivered=None, query=lambda df: df, batches=TICKS):
    """A port over rows as Spark's rate source gives them."""
    return Port(query, RATE, batches, write=write, delivered=delivered)


PORTS = {
    "DataStreamWriter": of(to_console, query=remainders),
    "format": of(to_csv, from_csv),
    "option": of(three_rows),
    "options": of(three_whole_rows),
    "partitionBy": of(to_partitions, from_partitions),
    "queryName": of(named),
    "foreach": of(each_row, printed),
    "foreach-object": of(each_partition, printed),
    "start": of(to_memory, lambda spark, place: spark.table("this_query")),
    # One batch: there is none of the next before five seconds have passed.
    "start-arguments": of(to_memory_every_5_seconds, lambda spark, place: spark.table("that_query"), batches=TICKS[:1]),
    "toTable": of(to_table_of_parquet, from_table_of_parquet),
    "table": of(to_table, lambda spark, place: spark.table("my_table")),
}
