"""Queries from the examples in the Python package of Spark 4.3 (Apache-2.0, the Apache Software Foundation)."""
# Texts of others stay as they are: neither formatted nor linted.
# fmt: off

from pyspark.sql.functions import count, explode, session_window, split, window

from tests.ported.port import Port

HERE = "pyspark 4.3.0, examples/src/main/python/sql/streaming/{}, Apache-2.0"


# structured_sessionization.py
def sessions(lines):
    # Split the lines into words, retaining timestamps
    # split() splits each line into an array, and explode() turns the array into multiple rows
    # treat words as sessionId of events
    events = lines.select(
        explode(split(lines.value, ' ')).alias('sessionId'),
        lines.timestamp.alias('eventTime')
    )

    # Group the data by window and word and compute the count of each group
    windowedCounts = events \
        .groupBy(session_window(events.eventTime, "10 seconds").alias('session'),
                 events.sessionId) \
        .agg(count("*").alias("numEvents")) \
        .selectExpr("sessionId", "CAST(session.start AS LONG)", "CAST(session.end AS LONG)",
                    "CAST(session.end AS LONG) - CAST(session.start AS LONG) AS durationMs",
                    "numEvents")
    return windowedCounts


def print_sessions(windowedCounts, place):
    # Start running the query that prints the session updates to the console
    query = windowedCounts\
        .writeStream\
        .outputMode('update')\
        .format('console')\
        .start()
    return query


# structured_blockchain_admission_control.py
def print_blocks(df, place):
    query = (
        df.writeStream
        .format("console")
        .queryName("admission_control_test")
        .start()
    )
    return query


# structured_network_wordcount.py
def words(lines):
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


def print_words(wordCounts, place):
    # Start running the query that prints the running counts to the console
    query = wordCounts\
        .writeStream\
        .outputMode('complete')\
        .format('console')\
        .start()
    return query


# structured_network_wordcount_windowed.py
windowDuration, slideDuration = '10 seconds', '5 seconds'  # noqa: N816


def windowed_words(lines):
    # Split the lines into words, retaining timestamps
    # split() splits each line into an array, and explode() turns the array into multiple rows
    words = lines.select(
        explode(split(lines.value, ' ')).alias('word'),
        lines.timestamp
    )

    # Group the data by window and word and compute the count of each group
    windowedCounts = words.groupBy(
        window(words.timestamp, windowDuration, slideDuration),
        words.word
    ).count().orderBy('window')
    return windowedCounts


LINES = "timestamp timestamp, value string"
SPOKEN = [
    [("2026-01-01 12:00:01", "to be or not to be"), ("2026-01-01 12:00:15", "to die to sleep")],
    [("2026-01-01 12:00:12", "or to dream"), ("2026-01-01 12:00:31", "to be"), ("2026-01-01 12:00:26", "is the rub")],
]

PORTS = {
    "sessionization": Port(
        source=HERE.format("structured_sessionization.py"),
        query=sessions,
        schema=LINES,
        batches=SPOKEN,
        watermark=("timestamp", "10 seconds"),
    ),
    "word-count": Port(
        source=HERE.format("structured_network_wordcount.py"),
        query=words,
        schema=LINES,
        batches=SPOKEN,
        mode="complete",
    ),
    "windowed-word-count": Port(
        source=HERE.format("structured_network_wordcount_windowed.py"),
        query=windowed_words,
        schema=LINES,
        batches=SPOKEN,
        mode="complete",
    ),
    "blockchain": Port(
        source=HERE.format("structured_blockchain_admission_control.py"),
        query=lambda df: df,
        schema="block_number int, block_hash string, timestamp long, transaction_count int",
        batches=[[(0, "5feceb66ffc86f38", 1700000000, 1)], [(1, "6b86b273ff34fce1", 1700000012, 2)]],
        write=print_blocks,
    ),
}
