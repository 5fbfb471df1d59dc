"""Queries with state as Spark's Structured Streaming Programming Guide teaches them, with its names."""
# Written after the guide, not copied from it.
# fmt: off

from datetime import datetime

from pyspark.sql.functions import expr, window

from tests.ported.stateful_port import Input, StatefulPort, Table

FOLLOWS = "after Spark's Structured Streaming Programming Guide, {}"

CLICK_WITHIN_AN_HOUR = """
    clickAdId = impressionAdId AND
    clickTime >= impressionTime AND
    clickTime <= impressionTime + interval 1 hour
    """


def clicks_of_impressions(impressions, clicks, how="inner"):
    impressionsWithWatermark = impressions.withWatermark("impressionTime", "2 hours")
    clicksWithWatermark = clicks.withWatermark("clickTime", "3 hours")
    return impressionsWithWatermark.join(clicksWithWatermark, expr(CLICK_WITHIN_AN_HOUR), how)


def impressions_with_or_without_clicks(impressions, clicks):
    return clicks_of_impressions(impressions, clicks, "leftOuter")


def clicked_impressions(impressions, clicks):
    return clicks_of_impressions(impressions, clicks, "leftSemi")


def all_impressions_and_clicks(impressions, clicks):
    return clicks_of_impressions(impressions, clicks, "fullOuter")


def windows_of_clicks_and_impressions(impressions, clicks):
    impressionsWithWatermark = impressions.withWatermark("impressionTime", "2 hours")
    clicksWithWatermark = clicks.withWatermark("clickTime", "3 hours")
    clicksWindow = clicksWithWatermark.groupBy(
        clicksWithWatermark.clickAdId, window(clicksWithWatermark.clickTime, "1 hour")
    ).count().withColumnRenamed("count", "clicks")
    impressionsWindow = impressionsWithWatermark.groupBy(
        impressionsWithWatermark.impressionAdId, window(impressionsWithWatermark.impressionTime, "1 hour")
    ).count().withColumnRenamed("count", "impressions")
    return clicksWindow.join(impressionsWindow, "window", "inner")


def windows_of_clicked_impressions(impressions, clicks):
    joined = clicks_of_impressions(impressions, clicks, "leftOuter")
    return joined.groupBy("clickAdId", window("clickTime", "1 hour")).count()


def known_types(streamingDf, staticDf):
    return streamingDf.join(staticDf, "type")


def types_known_or_not(streamingDf, staticDf):
    return streamingDf.join(staticDf, "type", "left_outer")


def without_duplicates(streamingDf):
    return streamingDf.select("guid").dropDuplicates(["guid"])


def without_duplicates_of_a_time(streamingDf):
    return streamingDf.withWatermark("eventTime", "10 seconds").dropDuplicates(["guid", "eventTime"])


def without_duplicates_within_watermark(streamingDf):
    return streamingDf.withWatermark("eventTime", "10 hours").dropDuplicatesWithinWatermark(["guid"])


def at(minute):
    return f"2026-01-{1 + minute // 1440:02} {minute // 60 % 24:02}:{minute % 60:02}:00"


IMPRESSIONS = Input(
    "impressionAdId long, impressionTime timestamp",
    [
        [(1, at(0)), (2, at(10)), (3, at(20))], [(4, at(90)), (1, at(15))], [(5, at(300))], [(6, at(1300))],
        [(7, at(1310))],
    ],
)
CLICKS = Input(
    "clickAdId long, clickTime timestamp",
    [
        [(1, at(5)), (3, at(90))], [(2, at(70)), (1, at(60)), (4, at(80))], [(9, at(290))], [(6, at(1310))],
        [(6, at(1361))],
    ],
)
# Each of them once more, and one long after.
EVENTS = Input(
    "guid string, eventTime timestamp, type string",
    [
        [("a", at(0), "x"), ("b", at(1), "y"), ("a", at(0), "x")],
        [("b", at(1), "y"), ("c", at(2), "z"), ("a", at(3), "x")],
        [("d", at(4), None), ("c", at(2), "z")],
    ],
)
TYPES = Table("type string, meaning string", [("x", "an x"), ("y", "a y"), ("y", "or a why")])


def of(query, section, *inputs, **options):
    return StatefulPort(FOLLOWS.format(section), query, inputs, **options)


JOINS, STATIC, DUPLICATES = "Stream-stream Joins", "Stream-static Joins", "Streaming Deduplication"
PORTS = {
    "join-inner": of(clicks_of_impressions, JOINS, IMPRESSIONS, CLICKS, spark="same"),
    "join-left": of(impressions_with_or_without_clicks, JOINS, IMPRESSIONS, CLICKS, closing=True, spark="closed"),
    "join-semi": of(clicked_impressions, JOINS, IMPRESSIONS, CLICKS),
    "join-full": of(all_impressions_and_clicks, JOINS, IMPRESSIONS, CLICKS, closing=True, spark="closed"),
    "join-windows": of(windows_of_clicks_and_impressions, JOINS, IMPRESSIONS, CLICKS, closing=True),
    "join-then-window": of(windows_of_clicked_impressions, JOINS, IMPRESSIONS, CLICKS, closing=True, spark="closed"),
    "static-inner": of(known_types, STATIC, EVENTS, tables=(TYPES,)),
    "static-left": of(types_known_or_not, STATIC, EVENTS, tables=(TYPES,)),
    "dedup": of(without_duplicates, DUPLICATES, EVENTS),
    "dedup-time": of(without_duplicates_of_a_time, DUPLICATES, EVENTS, spark="same"),
    # None comes more than the lag after the first one.
    "dedup-within-watermark": of(
        without_duplicates_within_watermark, DUPLICATES, EVENTS,
        expected=lambda rows: [
            (guid, datetime(2026, 1, 1, 0, minute), type)
            for guid, minute, type in (("a", 0, "x"), ("b", 1, "y"), ("c", 2, "z"), ("d", 4, None))
        ],
    ),
}
