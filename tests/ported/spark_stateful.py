"""Queries with state from the examples and docstrings of PySpark 4.3 (Apache-2.0, the Apache Software Foundation)."""
# Texts of others stay as they are: neither formatted nor linted.
# fmt: off

from base64 import b64encode
from datetime import datetime
from typing import Any, Iterator

import pandas as pd
from pyspark.sql import Row
from pyspark.sql import functions as sf
from pyspark.sql.functions import explode, split
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.streaming.state import GroupState, GroupStateTimeout
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType, TimestampType

from tests.ported import spark_examples
from tests.ported.stateful_port import Input, StatefulPort

EXAMPLE = "pyspark 4.3.0, examples/src/main/python/sql/streaming/{}.py, Apache-2.0"
DOCSTRING = "pyspark 4.3.0, pyspark/sql/{}, docstring of {}, Apache-2.0"


# structured_kafka_wordcount.py
def word_counts_of_kafka(loaded):
    lines = loaded\
        .selectExpr("CAST(value AS STRING)")

    # Split the lines into words
    words = lines.select(
        # explode turns each item in an array into a separate row
        explode(
            split(lines.value, ' ')
        ).alias('word')
    )

    # Generate running word count
    wordCounts = words.groupBy('word').count()
    return wordCounts


# structured_network_wordcount_session_window.py
def sessions_of_words(lines):
    # Split the lines into words, retaining timestamps, each word become a sessionId
    events = lines.select(
        explode(split(lines.value, " ")).alias("sessionId"),
        lines.timestamp,
    )

    # Type of output records.
    session_schema = StructType(
        [
            StructField("sessionId", StringType()),
            StructField("count", LongType()),
            StructField("start", TimestampType()),
            StructField("end", TimestampType()),
        ]
    )
    # Type of group state.
    # Omit the session id in the state since it is available as group key
    session_state_schema = StructType(
        [
            StructField("count", LongType()),
            StructField("start", TimestampType()),
            StructField("end", TimestampType()),
        ]
    )

    def func(
        key: Any, pdfs: Iterator[pd.DataFrame], state: GroupState
    ) -> Iterator[pd.DataFrame]:
        if state.hasTimedOut:
            count, start, end = state.get
            state.remove()
            (session_id,) = key
            yield pd.DataFrame(
                {
                    "sessionId": [session_id],
                    "count": [count],
                    "start": [start],
                    "end": [end],
                }
            )
        else:
            pdf_iter = iter(pdfs)
            first_pdf = next(pdf_iter)
            start = first_pdf["timestamp"].min()
            end = first_pdf["timestamp"].max()
            count = len(first_pdf)
            for pdf in pdf_iter:
                start = min(start, pdf["timestamp"].min())
                end = max(end, pdf["timestamp"].max())
                count = count + len(pdf)
            if state.exists:
                (old_count, start, old_end) = state.get
                count = count + old_count
                end = max(end, old_end)
            state.update((count, start, end))
            state.setTimeoutDuration(10000)
            yield pd.DataFrame()

    # Group the data by window and word and compute the count of each group
    sessions = events.groupBy(events["sessionId"]).applyInPandasWithState(
        func,
        session_schema,
        session_state_schema,
        "Update",
        GroupStateTimeout.ProcessingTimeTimeout,
    )
    return sessions


# Docstring of applyInPandasWithState. Without its assertion, which names a class that does not exist.
def counted_with_state(df):
    def count_fn(key, pdf_iter, state):
        total_len = 0
        for pdf in pdf_iter:
            total_len += len(pdf)
        state.update((total_len,))
        yield pd.DataFrame({"id": [key[0]], "countAsString": [str(total_len)]})

    return df.groupby("id").applyInPandasWithState(
        count_fn, outputStructType="id long, countAsString string",
        stateStructType="len long", outputMode="Update",
        timeoutConf=GroupStateTimeout.NoTimeout)


output_schema = StructType([
    StructField("id", StringType(), True),
    StructField("count", IntegerType(), True)
])
state_schema = StructType([
    StructField("value", IntegerType(), True)
])


# Docstring of transformWithStateInPandas. With the third argument that Spark calls handleInputRows with, and
# grouped by a column that the rows have.
def violations_in_pandas(df):
    class SimpleStatefulProcessor(StatefulProcessor):
        def init(self, handle: StatefulProcessorHandle):
            self.num_violations_state = handle.getValueState("numViolations", state_schema)

        def handleInputRows(self, key, rows, timerValues):
            new_violations = 0
            count = 0
            exists = self.num_violations_state.exists()
            if exists:
                existing_violations_row = self.num_violations_state.get()
                existing_violations = existing_violations_row[0]
            else:
                existing_violations = 0
            for pdf in rows:
                pdf_count = pdf.count()
                count += pdf_count.get('temperature')
                violations_pdf = pdf.loc[pdf['temperature'] > 100]
                new_violations += violations_pdf.count().get('temperature')
            updated_violations = new_violations + existing_violations
            self.num_violations_state.update((updated_violations,))
            yield pd.DataFrame({'id': key, 'count': count})

        def close(self) -> None:
            pass

    return df.groupBy("id").transformWithStateInPandas(statefulProcessor =
        SimpleStatefulProcessor(), outputStructType=output_schema, outputMode="Update",
        timeMode="None")


# Docstring of transformWithState. With the third argument of handleInputRows, the value of the key, and grouped by
# a column that the rows have.
def violations(df):
    class SimpleStatefulProcessor(StatefulProcessor):
        def init(self, handle: StatefulProcessorHandle):
            self.num_violations_state = handle.getValueState("numViolations", state_schema)

        def handleInputRows(self, key, rows, timerValues):
            new_violations = 0
            count = 0
            exists = self.num_violations_state.exists()
            if exists:
                existing_violations_row = self.num_violations_state.get()
                existing_violations = existing_violations_row[0]
            else:
                existing_violations = 0
            for row in rows:
                if row.temperature is not None:
                     count += 1
                     if row.temperature > 100:
                         new_violations += 1
            updated_violations = new_violations + existing_violations
            self.num_violations_state.update((updated_violations,))
            yield Row(id=key[0], count=count)

        def close(self) -> None:
            pass

    return df.groupBy("id").transformWithState(statefulProcessor =
        SimpleStatefulProcessor(), outputStructType=output_schema, outputMode="Update",
        timeMode="None")


# Docstring of GroupedData.agg
def counts_of_names(df):
    return df.groupBy(df.name).agg({"*": "count"}).sort("name")


def lowest_of_names(df):
    return df.groupBy(df.name).agg(sf.min(df.age)).sort("name")


# Docstring of DataFrame.groupBy
def average_of_all(df):
    return df.groupBy().avg()


def sums_of_names(df):
    return df.groupBy("name").agg({"age": "sum"}).sort("name")


def highest_of_names(df):
    return df.groupBy(df.name).max().sort("name")


def counts_of_names_and_ages(df):
    return df.groupBy(["name", df.age]).count().sort("name", "age")


# Docstring of DataFrame.dropDuplicates
def without_duplicates(df):
    return df.dropDuplicates()


def without_duplicates_of_two_columns(df):
    return df.dropDuplicates(['name', 'height'])


# Docstring of DataFrame.distinct
def distinct(df):
    return df.distinct()


# Docstring of DataFrame.dropDuplicatesWithinWatermark
def without_duplicates_within_watermark(loaded):
    df = loaded.selectExpr(
        "value % 5 AS value", "timestamp")
    df = df.select("value", df.timestamp.alias("time")).withWatermark("time", '10 minutes')
    return df.dropDuplicatesWithinWatermark(['value'])


LINES = Input(spark_examples.LINES, spark_examples.SPOKEN)
# Spark's JSON reader takes binary columns as Base64.
MESSAGES = Input(
    "value binary",
    [[(b64encode(text.encode()).decode(),) for _, text in batch] for batch in spark_examples.SPOKEN],
)
PEOPLE = Input("name string, age long", [[("Alice", 2), ("Bob", 2)], [("Bob", 2)], [("Bob", 5)]])
HEIGHTS = Input(
    "name string, age long, height long", [[("Alice", 5, 80)], [("Alice", 5, 80), ("Bob", 4, 90)], [("Alice", 10, 80)]]
)
SENSORS = Input(
    "id string, temperature long", [[("0", 123), ("0", 23), ("1", 33)], [("1", 188), ("1", 88)], [("0", 101), ("2", 7)]]
)
TICKS = Input(
    "timestamp timestamp, value long",
    [
        [("2026-01-01 12:00:01", 1), ("2026-01-01 12:00:02", 2), ("2026-01-01 12:00:02", 12)],
        [("2026-01-01 12:05:03", 6), ("2026-01-01 12:01:00", 3)],
        [("2026-01-01 12:40:00", 4)],
        # Spark forgets the first ones at the end of the batch after the one that moved its watermark past them.
        [("2026-01-01 12:40:00", 14)],
        [("2026-01-01 12:40:01", 11), ("2026-01-01 12:41:00", 9)],
    ],
)


def first_of_each(rows):
    """Which row of those with the same name and height comes first."""
    found = {}
    for row in rows:
        found.setdefault((row["name"], row["height"]), tuple(row.values()))
    return list(found.values())


def of_group(query, docstring="DataFrame.groupBy"):
    """A complete table of people."""
    return StatefulPort(DOCSTRING.format("dataframe.py or group.py", docstring), query, (PEOPLE,), mode="complete")


PORTS = {
    "network_wordcount-update": StatefulPort(
        EXAMPLE.format("structured_network_wordcount"), spark_examples.words, (LINES,), mode="update", keys=("word",)
    ),
    "kafka_wordcount": StatefulPort(
        EXAMPLE.format("structured_kafka_wordcount"), word_counts_of_kafka, (MESSAGES,), mode="complete"
    ),
    "applyInPandasWithState": StatefulPort(
        DOCSTRING.format("pandas/group_ops.py", "applyInPandasWithState"), counted_with_state,
        (Input("id long, v string", [[(1, "a"), (1, "b"), (2, "c")], [(2, "d")], [(1, "e")]]),), mode="update",
        keys=("id",), expected=lambda rows: [(1, "1"), (2, "1")], spark="same",
    ),
    "transformWithStateInPandas": StatefulPort(
        DOCSTRING.format("pandas/group_ops.py", "transformWithStateInPandas"), violations_in_pandas, (SENSORS,),
        mode="update", keys=("id",), expected=lambda rows: [("0", 1), ("1", 2), ("2", 1)],
    ),
    "transformWithState": StatefulPort(
        DOCSTRING.format("pandas/group_ops.py", "transformWithState"), violations, (SENSORS,),
        mode="update", keys=("id",), expected=lambda rows: [("0", 1), ("1", 2), ("2", 1)],
    ),
    "agg-count": of_group(counts_of_names, "GroupedData.agg"),
    "agg-min": of_group(lowest_of_names, "GroupedData.agg"),
    "groupBy-nothing": of_group(average_of_all),
    "groupBy-name": of_group(sums_of_names),
    "groupBy-column": of_group(highest_of_names),
    "groupBy-list": of_group(counts_of_names_and_ages),
    "dropDuplicates": StatefulPort(
        DOCSTRING.format("dataframe.py", "DataFrame.dropDuplicates"), without_duplicates, (HEIGHTS,)
    ),
    "dropDuplicates-columns": StatefulPort(
        DOCSTRING.format("dataframe.py", "DataFrame.dropDuplicates"), without_duplicates_of_two_columns, (HEIGHTS,),
        expected=first_of_each, spark="same",
    ),
    "distinct": StatefulPort(DOCSTRING.format("dataframe.py", "DataFrame.distinct"), distinct, (PEOPLE,)),
    "dropDuplicatesWithinWatermark": StatefulPort(
        DOCSTRING.format("dataframe.py", "DataFrame.dropDuplicatesWithinWatermark"),
        without_duplicates_within_watermark, (TICKS,),
        expected=lambda rows: [
            (value, datetime(2026, 1, 1, 12, minute, second))
            for value, minute, second in ((1, 0, 1), (2, 0, 2), (3, 1, 0), (4, 40, 0), (1, 40, 1))
        ],
        spark="same",
    ),
}
