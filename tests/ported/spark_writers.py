"""Queries from the docstrings of DataStreamWriter in Spark 4.3 (Apache-2.0, the Apache Software Foundation)."""
# Texts of others stay as they are: neither formatted nor linted. Their sleeps and stops are the test's business.
# fmt: off

import re
from datetime import datetime
from uuid import uuid4

from tests.ported.port import Port

HERE = "pyspark 4.3.0, pyspark/sql/streaming/readwriter.py, docstring of {}, Apache-2.0"


# DataStreamReader and DataStreamWriter
def remainders(df):
    df = df.selectExpr("value % 3 as v")
    return df


def to_console(df, place):
    q = df.writeStream.format("console").start()
    return q


# DataStreamWriter.format
def to_csv(df, place):
    d, cp = str(place / "d"), str(place / "cp")
    q = df.writeStream.format("csv").option("checkpointLocation", cp).start(d)
    return q


def from_csv(spark, place):
    d = str(place / "d")
    found = spark.read.schema("timestamp TIMESTAMP, value STRING").csv(d)
    return found.selectExpr("timestamp", "bigint(value) AS value")


# DataStreamWriter.option
def three_rows(df, place):
    q = df.writeStream.format(
            "console").option("numRows", 3).start()
    return q


# DataStreamWriter.options
def three_whole_rows(df, place):
    q = df.writeStream.format(
            "console").options(numRows=3, truncate=False).start()
    return q


# DataStreamWriter.partitionBy
def to_partitions(df, place):
    d, cp = str(place / "d"), str(place / "cp")
    q = df.writeStream.partitionBy(
        "timestamp").format("parquet").option("checkpointLocation", cp).start(d)
    return q


def from_partitions(spark, place):
    d = str(place / "d")
    return spark.read.schema("timestamp TIMESTAMP, value LONG").parquet(d)


# DataStreamWriter.queryName
def named(df, place):
    q = df.writeStream.queryName("streaming_query").format("console").start()
    return q


# DataStreamWriter.foreach
def each_row(df, place):
    print = printing(place)

    def print_row(row):
        print(row)

    q = df.writeStream.foreach(print_row).start()
    return q


# DataStreamWriter.foreach, with an object
def each_partition(df, place):
    print = printing(place)

    class RowPrinter:
        def open(self, partition_id, epoch_id):
            print("Opened %d, %d" % (partition_id, epoch_id))
            return True

        def process(self, row):
            print(row)

        def close(self, error):
            print("Closed with error: %s" % str(error))

    q = df.writeStream.foreach(RowPrinter()).start()
    return q


# DataStreamWriter.start
def to_memory(df, place):
    q = df.writeStream.format('memory').queryName('this_query').start()
    return q


def to_memory_every_5_seconds(df, place):
    q = df.writeStream.trigger(processingTime='5 seconds').start(
        queryName='that_query', outputMode="append", format='memory')
    return q


# DataFrame.writeStream and DataStreamReader.table
def to_table(df, place):
    d = str(place / "d")
    q1 = df.writeStream.toTable(
        "my_table", checkpointLocation=d)
    return q1


# DataStreamWriter.toTable
def to_table_of_parquet(df, place):
    d = str(place / "d")
    q = df.writeStream.toTable(
            "my_table2",
            queryName='that_query',
            outputMode="append",
            format='parquet',
            checkpointLocation=d)
    return q


def printing(place):
    """What a worker prints is lost: here it goes into files."""
    def print(value):
        (place / uuid4().hex).write_text(str(value))

    return print


def printed(spark, place):
    """The rows that were printed."""
    texts = [path.read_text() for path in place.iterdir() if path.is_file()]
    assert {text for text in texts if text.startswith("Closed")} <= {"Closed with error: None"}
    found = [re.fullmatch(r"Row\(timestamp=datetime\.datetime\((.+)\), value=(\d+)\)", text) for text in texts]
    rows = [(datetime(*map(int, row[1].split(", "))), int(row[2])) for row in found if row]
    return spark.createDataFrame(rows, "timestamp timestamp, value long")


TICKS = [
    [(f"2026-01-01 12:0{minute}:0{second}", minute * 3 + second) for second in (1, 2, 3)] for minute in (1, 2)
]


def of(docstring, write, delivered=None, query=lambda df: df, batches=TICKS):
    """A port over rows as Spark's rate source gives them."""
    rate = "timestamp timestamp, value long"
    return Port(HERE.format(docstring), query, rate, batches, write=write, delivered=delivered)


PORTS = {
    "DataStreamWriter": of("DataStreamWriter", to_console, query=remainders),
    "format": of("format", to_csv, from_csv),
    "option": of("option", three_rows),
    "options": of("options", three_whole_rows),
    "partitionBy": of("partitionBy", to_partitions, from_partitions),
    "queryName": of("queryName", named),
    "foreach": of("foreach", each_row, printed),
    "foreach-object": of("foreach", each_partition, printed),
    "start": of("start", to_memory, lambda spark, place: spark.table("this_query")),
    # One batch: there is none of the next before five seconds have passed.
    "start-arguments": of(
        "start", to_memory_every_5_seconds, lambda spark, place: spark.table("that_query"), batches=TICKS[:1]
    ),
    "toTable": of("toTable", to_table_of_parquet, lambda spark, place: spark.read.table("my_table2")),
    "table": of("DataStreamReader.table", to_table, lambda spark, place: spark.table("my_table")),
}
