"""The docstrings of PySpark's functions of time, read from the installed package."""

from pyspark.sql import DataFrame, functions

from tests.ported.installed import docstring, session
from tests.ported.port import Port


def sums(df):
    return docstring(functions.window).run("df2 =", df=df)


def sums_and_times(df):
    return docstring(functions.window_time).run("df2 =", "window_time(", df=df)


def sums_of_sessions(df):
    return docstring(functions.session_window).run("df2 =", df=df)


def watermarked(df):
    text = docstring(DataFrame.withWatermark)
    return text.run("df =", "df.select(", spark=session(df))


VALUES = [
    [("2026-01-01 09:00:07", 1), ("2026-01-01 09:00:12", 2), ("2026-01-01 09:00:09", 4)],
    [("2026-01-01 09:00:08", 8), ("2026-01-01 09:00:21.5", 16), ("2026-01-01 09:00:31", 32)],
]


def of(query):
    """A port over the values, with the watermark in the line that changes."""
    return Port(query, "dt timestamp, v long", VALUES, watermark=("dt", "5 seconds"))


PORTS = {
    "window": of(sums),
    "window_time": of(sums_and_times),
    "session_window": of(sums_of_sessions),
    "withWatermark": Port(
        watermarked,
        "timestamp timestamp, value long",
        [[("2026-01-01 12:00:00", 3), ("2026-01-01 12:00:01", 4)], [("2026-01-01 12:00:02", 5), (None, 6)]],
    ),
}
