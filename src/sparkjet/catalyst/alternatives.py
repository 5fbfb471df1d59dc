"""What streams do not offer, each with a way that works: none leads to another refusal."""

from __future__ import annotations

BEFORE = "Do it with Spark before sj.stream(…), on the DataFrame."
OWN_QUERY = "Do it in a Spark query of its own whose output this query reads."

WATERMARK = "Leave it out, and call withWatermark after sj.stream(…)."
AGGREGATION = "Aggregate after sj.stream(…): withWatermark(…), groupBy(sj.window(…), …), agg(…)."
DUPLICATES = (
    "sparkjet cannot drop the duplicates of a stream yet. Those in one window can be grouped: take the columns that "
    "identify a row as keys, and sparkjet.functions.first of the others. For all others let a Spark query of its own "
    "drop them, and read its output."
)
STATE = f"sparkjet has no state of the user's yet. {OWN_QUERY}"
STREAM_JOIN = (
    "sparkjet cannot join two streams yet. Rows that belong to one window can be united and aggregated by their key: "
    "sj.stream(a).withWatermark(…).union(…). For the rest let a Spark query of its own join them, and read its output."
)
JOIN = f"A join with a batch DataFrame: {BEFORE[0].lower()}{BEFORE[1:]} A join with a stream: {STREAM_JOIN}"
FIRST_ROWS = (
    "A stream has no first rows that are the same after a restart. Choose rows by their columns with where(…), or the "
    "least and greatest of a window with sparkjet.functions.bottom_n and top_n."
)
ORDER = "The rows of a stream have no order. Sort where its results are read."
RANKS = (
    "It would number or compare the rows of each batch by itself. Compare the rows of a window with aggregates, such "
    "as sparkjet.functions.first, last, top_n and max_by."
)
SET = "Keep or drop rows by a batch DataFrame with a left_semi or left_anti join before sj.stream(…)."
GROUPS = (
    "It would see each group of a batch by itself. Aggregate the groups of a window in Python: "
    "agg(sj.python_aggregate(…)) after groupBy(sj.window(…), …)."
)
ALL_ROWS = (
    "A stream has no end, so there is no moment to do it. Aggregate it in windows, write the results with "
    'writeStream, e.g. format("memory"), and look at those.'
)
WINDOWS_ONLY = "Only results of windows can be written: groupBy(sj.window(…), …), agg(…), then writeStream."
ONE_WATERMARK = "The watermark of the stream that the rows come from goes on here; nothing is to be set."
ON_RESULTS = "Do it with Spark on the rows of each epoch, in writeStream.foreachBatch(…)."
ROWS_OF_RESULTS = (
    'The rows come while the query runs: write them with writeStream, e.g. format("memory"), and look there.'
)

_ROW_BY_ROW = """
    coalesce colRegex createGlobalTempView createOrReplaceGlobalTempView createOrReplaceTempView createTempView
    crossJoin dropna fillna hint lateralJoin mapInArrow mapInPandas melt metadataColumn na observe registerTempTable
    repartition repartitionById repartitionByRange replace sample sampleBy selectExpr to toDF transform unpivot
    withColumnRenamed withColumns withColumnsRenamed withMetadata
"""
_OF_ALL_ROWS = """
    approxQuantile asTable cache checkpoint collect corr count cov crosstab describe executionInfo exists explain first
    foreach foreachPartition freqItems head inputFiles isEmpty isLocal localCheckpoint mergeInto pandas_api persist plot
    randomSplit rdd scalar show stat storageLevel summary tail take toArrow toJSON toLocalIterator toPandas transpose
    unpersist write writeTo
"""
_DATAFRAME = {
    **dict.fromkeys(_ROW_BY_ROW.split(), BEFORE),
    **dict.fromkeys(_OF_ALL_ROWS.split(), ALL_ROWS),
    **dict.fromkeys(("distinct", "dropDuplicates", "dropDuplicatesWithinWatermark", "drop_duplicates"), DUPLICATES),
    **dict.fromkeys(("agg", "cube", "groupingSets", "rollup"), AGGREGATION),
    **dict.fromkeys(("limit", "offset"), FIRST_ROWS),
    **dict.fromkeys(("orderBy", "sort", "sortWithinPartitions"), ORDER),
    **dict.fromkeys(("exceptAll", "intersect", "intersectAll", "subtract"), SET),
    **dict.fromkeys(("zip", "zipWithIndex", "nearestByJoin"), RANKS),
    "join": JOIN,
    "groupby": "It is called groupBy here.",
    "unionAll": "It is called union here.",
    "writeStream": WINDOWS_ONLY,
}
_RESULTS = {
    **dict.fromkeys((*_DATAFRAME, "alias", "groupBy", "union", "unionByName"), ON_RESULTS),
    **dict.fromkeys(_OF_ALL_ROWS.split(), ROWS_OF_RESULTS),
    "withWatermark": ONE_WATERMARK,
}


def of_streams(method: str) -> str | None:
    """What to do instead of a method of DataFrame that streams lack; None if DataFrame has none of that name."""
    return _DATAFRAME.get(method)


def of_results(method: str) -> str | None:
    """The same for the results of windows, and for late rows."""
    return _RESULTS.get(method)
