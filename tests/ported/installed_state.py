"""The docstrings and examples of PySpark that keep state, read from the installed package."""

from base64 import b64encode
from datetime import datetime
from operator import itemgetter

from pyspark.sql import DataFrame, GroupedData
from pyspark.sql.streaming.state import GroupState

from tests.ported import installed_examples
from tests.ported.installed import docstring, example, processor, session
from tests.ported.stateful_port import Input, StatefulPort


def word_counts_of_kafka(messages):
    told = {"bootstrapServers": "", "subscribeType": "subscribe", "topics": ""}
    text = example("structured_kafka_wordcount")
    return text.run("lines =", "words =", "wordCounts =", spark=session(messages), **told)


def sessions_of_words(lines):
    text = example("structured_network_wordcount_session_window")
    return text.run("events =", "session_schema =", "session_state_schema =", "def func", "sessions =", lines=lines)


def counted_with_state(df):
    # It names a class of the state that PySpark does not have.
    text = docstring(GroupedData.applyInPandasWithState)
    return text.run("def count_fn", "df.groupby(", df=df, GroupStateImpl=GroupState)


def violations(df):
    # It takes the key for the value of its column.
    return df.groupBy("id").transformWithState(**sensors(GroupedData.transformWithState, key=itemgetter(0)))


def violations_in_pandas(df):
    return df.groupBy("id").transformWithStateInPandas(**sensors(GroupedData.transformWithStateInPandas))


def sensors(method, **options):
    return {
        "statefulProcessor": processor(method, **options)(),
        "outputStructType": docstring(method).run("output_schema ="),
        "outputMode": "Update",
        "timeMode": "None",
    }


def of_group(words, documented=DataFrame.groupBy):
    """A complete table of people."""
    return StatefulPort(lambda df: docstring(documented).run(words, df=df), (PEOPLE,), mode="complete")


def without_duplicates(df):
    return docstring(DataFrame.dropDuplicates).run("dropDuplicates()", df=df)


def without_duplicates_of_two_columns(df):
    return docstring(DataFrame.dropDuplicates).run("dropDuplicates(['name', 'height'])", df=df)


def distinct(df):
    return docstring(DataFrame.distinct).run("df.select('name', 'gender').distinct()", df=df)


def without_duplicates_within_watermark(rows):
    text = docstring(DataFrame.dropDuplicatesWithinWatermark)
    watermarked = text.run("df =", "withWatermark(", spark=session(rows))
    return text.run("dropDuplicatesWithinWatermark(['value'])", df=watermarked)


LINES = Input(installed_examples.LINES, installed_examples.SPOKEN)
# Spark's JSON reader takes binary columns as Base64.
MESSAGES = Input(
    "value binary",
    [[(b64encode(text.encode()).decode(),) for _, text in batch] for batch in installed_examples.SPOKEN],
)
PEOPLE = Input("name string, age long", [[("Ida", 7), ("Tom", 7)], [("Tom", 7)], [("Tom", 4)]])
GENDERS = Input("name string, gender string", [[("Ida", "F"), ("Tom", "M")], [("Tom", "M")], [("Tom", None)]])
HEIGHTS = Input(
    "name string, age long, height long", [[("Ida", 6, 120)], [("Ida", 6, 120), ("Tom", 5, 112)], [("Ida", 9, 120)]]
)
SENSORS = Input(
    "id string, temperature long", [[("a", 140), ("a", 20), ("b", 37)], [("b", 165), ("b", 90)], [("a", 102), ("c", 8)]]
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


def counts_of_sensors(rows):
    return [("a", 1), ("b", 2), ("c", 1)]


PORTS = {
    "network_wordcount-update": StatefulPort(installed_examples.words, (LINES,), mode="update", keys=("word",)),
    "kafka_wordcount": StatefulPort(word_counts_of_kafka, (MESSAGES,), mode="complete"),
    "applyInPandasWithState": StatefulPort(
        counted_with_state,
        (Input("id long, v string", [[(1, "a"), (1, "b"), (2, "c")], [(2, "d")], [(1, "e")]]),),
        mode="update",
        keys=("id",),
        expected=lambda rows: [(1, "1"), (2, "1")],
        spark="same",
    ),
    "transformWithStateInPandas": StatefulPort(
        violations_in_pandas, (SENSORS,), mode="update", keys=("id",), expected=counts_of_sensors
    ),
    "transformWithState": StatefulPort(violations, (SENSORS,), mode="update", keys=("id",), expected=counts_of_sensors),
    "agg-count": of_group("agg({'*': 'count'})", GroupedData.agg),
    "agg-min": of_group("agg(sf.min(", GroupedData.agg),
    "groupBy-nothing": of_group("df.groupBy().avg()"),
    "groupBy-name": of_group("agg({'age': 'sum'})"),
    "groupBy-column": of_group("df.groupBy(df.name).max()"),
    "groupBy-list": of_group("df.groupBy(['name', df.age])"),
    "dropDuplicates": StatefulPort(without_duplicates, (HEIGHTS,)),
    "dropDuplicates-columns": StatefulPort(
        without_duplicates_of_two_columns, (HEIGHTS,), expected=first_of_each, spark="same"
    ),
    "distinct": StatefulPort(distinct, (GENDERS,)),
    "dropDuplicatesWithinWatermark": StatefulPort(
        without_duplicates_within_watermark,
        (TICKS,),
        expected=lambda rows: [
            (value, datetime(2026, 1, 1, 12, minute, second))
            for value, minute, second in ((1, 0, 1), (2, 0, 2), (3, 1, 0), (4, 40, 0), (1, 40, 1))
        ],
        spark="same",
    ),
}
