"""Queries from the docstrings of pyspark.sql.functions and DataFrame (Apache-2.0, the Apache Software Foundation)."""
# Texts of others stay as they are: neither formatted nor linted. They end where a batch would be collected or shown.
# fmt: off

from pyspark.sql import functions as sf
from pyspark.sql.functions import lit, session_window, sum, window, window_time

from tests.ported.port import Port

NOW = "pyspark 4.3.0, pyspark/sql/{}, Apache-2.0"
BEFORE = "pyspark 3.4.4, pyspark/sql/functions.py, docstring of {}, Apache-2.0"


# Docstring of window, since 4.0
def sums(df):
    df2 = df.groupBy(sf.window('dt', '5 seconds')).agg(sf.sum('v'))
    return df2


# Docstring of window_time, since 4.0
def sums_and_times(df):
    df2 = df.groupBy(sf.window('dt', '5 seconds')).agg(sf.sum('v'))

    return df2.select('*', sf.window_time('window'))


# Docstring of session_window, since 4.0
def sums_of_sessions(df):
    df2 = df.groupBy(sf.session_window('dt', '5 seconds')).agg(sf.sum('v'))
    return df2


# Docstring of window, before 4.0
def sums_from_to(df):
    w = df.groupBy(window("date", "5 seconds")).agg(sum("val").alias("sum"))
    return w.select(w.window.start.cast("string").alias("start"),
                    w.window.end.cast("string").alias("end"), "sum")


# Docstring of window_time, before 4.0
def sums_with_times(df):
    w = df.groupBy(window("date", "5 seconds")).agg(sum("val").alias("sum"))
    return w.select(
        w.window.end.cast("string").alias("end"),
        window_time(w.window).cast("string").alias("window_time"),
        "sum"
    )


# Docstring of session_window, before 4.0
def sessions_from_to(df):
    w = df.groupBy(session_window("date", "5 seconds")).agg(sum("val").alias("sum"))
    return w.select(w.session_window.start.cast("string").alias("start"),
                    w.session_window.end.cast("string").alias("end"), "sum")


# The same docstring, with the gap as a Column
def sessions_by_a_column(df):
    w = df.groupBy(session_window("date", lit("5 seconds"))).agg(sum("val").alias("sum"))
    return w.select(w.session_window.start.cast("string").alias("start"),
                    w.session_window.end.cast("string").alias("end"), "sum")


# Docstring of DataFrame.withWatermark
def watermarked(df):
    df = df.selectExpr(
        "value % 5 AS value", "timestamp")
    return df.select("value", df.timestamp.alias("time")).withWatermark("time", '10 minutes')


VALUES = [
    [("2016-03-11 09:00:07", 1), ("2016-03-11 09:00:12", 2), ("2016-03-11 09:00:09", 4)],
    [("2016-03-11 09:00:08", 8), ("2016-03-11 09:00:21.5", 16), ("2016-03-11 09:00:31", 32)],
]


def of(source, query, time="dt", value="v"):
    """A port over the values, with the watermark in the line that changes."""
    return Port(
        source, query, f"{time} timestamp, {value} long", VALUES,
        watermark=(time, "5 seconds"),
    )


PORTS = {
    "window": of(NOW.format("functions/builtin.py, docstring of window"), sums),
    "window_time": of(NOW.format("functions/builtin.py, docstring of window_time"), sums_and_times),
    "session_window": of(NOW.format("functions/builtin.py, docstring of session_window"), sums_of_sessions),
    "window-3": of(BEFORE.format("window"), sums_from_to, "date", "val"),
    "window_time-3": of(BEFORE.format("window_time"), sums_with_times, "date", "val"),
    "session_window-3": of(BEFORE.format("session_window"), sessions_from_to, "date", "val"),
    "session_window-3-column": of(BEFORE.format("session_window"), sessions_by_a_column, "date", "val"),
    "withWatermark": Port(
        NOW.format("dataframe.py, docstring of withWatermark"), watermarked, "timestamp timestamp, value long",
        [[("2026-01-01 12:00:00", 3), ("2026-01-01 12:00:01", 4)], [("2026-01-01 12:00:02", 5), (None, 6)]],
    ),
}
