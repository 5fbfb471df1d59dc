"""Windows whose starts, ends and times a query selects by name: what a rain gauge has measured."""

from pyspark.sql import functions as F

from tests.ported.port import Port


def rain(gauge):
    return gauge.groupBy(F.window("at", "4 seconds")).agg(F.sum("drops").alias("drops"))


def from_to(gauge):
    found = rain(gauge)
    begin, end = found.window.start.cast("string"), found.window.end.cast("string")
    return found.select(begin.alias("begin"), end.alias("end"), "drops")


def end_and_time(gauge):
    found = rain(gauge)
    last = F.window_time(found.window).cast("string")
    return found.select("drops", found.window.end.cast("string").alias("end"), last.alias("last"))


def showers(gauge, gap="3 seconds"):
    found = gauge.groupBy(F.session_window("at", gap)).agg(F.sum("drops").alias("drops"))
    begin, end = found.session_window.start.cast("string"), found.session_window.end.cast("string")
    return found.select(begin.alias("begin"), end.alias("end"), "drops")


def showers_by_a_column(gauge):
    return showers(gauge, F.lit("3 seconds"))


DROPS = [
    [("2026-01-01 06:30:03", 5), ("2026-01-01 06:30:09", 3), ("2026-01-01 06:30:05.5", 2)],
    [("2026-01-01 06:30:04", 7), ("2026-01-01 06:30:17.2", 1), ("2026-01-01 06:30:30", 4)],
]


def of(query):
    """A port over the drops, with the watermark in the line that changes."""
    return Port(query, "at timestamp, drops long", DROPS, watermark=("at", "5 seconds"))


PORTS = {
    "from-to": of(from_to),
    "time": of(end_and_time),
    "showers": of(showers),
    "showers-column": of(showers_by_a_column),
}
