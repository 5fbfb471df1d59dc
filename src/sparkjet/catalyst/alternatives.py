"""Parts of Spark's API that sparkjet does not offer, each with a way that works: none leads to another refusal."""

from __future__ import annotations

from collections.abc import Mapping

BEFORE = "Do it with Spark before sj.stream(…), on the DataFrame."
OWN_QUERY = "Do it in a separate Spark query whose output this query reads."

WATERMARK = "Leave it out, and call withWatermark after sj.stream(…)."
AGGREGATION = (
    "Aggregate after sj.stream(…): groupBy(…).agg(…), for rows that are final with withWatermark(…) and sj.window(…)."
)
TOTALS = (
    "Aggregate by all the columns first, and the complete results once more, as in "
    'groupBy("a", "b").agg(F.sum("n").alias("n")).rollup("a", "b").agg(F.sum("n")) with outputMode("complete"). For '
    "windows that are final, group by each set of columns, with one output for each: sj.start(…)."
)
SAMPLE = (
    "Choose rows with where(F.rand() < 0.1); or by a column, so that the same ones are chosen wherever they are read: "
    'where(F.pmod(F.hash("id"), F.lit(10)) == 0).'
)
VIEW = (
    "A view is made of a DataFrame. Create it from the one that sj.stream(…) is given, and give sj.stream(…) what "
    "spark.sql makes of the view."
)
OBSERVE = (
    "Observe the DataFrame before sj.stream(…): progress and Spark's events have its metrics as observedMetrics. What "
    "an epoch counted, dropped and wrote is in lastProgress as well."
)
NOT_A_FRAME = (
    "What you called takes one of Spark's DataFrames, and this is not one. Call the method of this side instead: "
    "a.join(b) of a batch DataFrame a is b.join(a), and F.broadcast(a) goes around a; a.union(b) is "
    "sj.stream(a).union(b); model.transform(df), and what else takes a streaming DataFrame, comes before sj.stream(…)."
)
DUPLICATES = (
    "Drop them after sj.stream(…): dropDuplicates(…), distinct(), or withWatermark(…) and "
    "dropDuplicatesWithinWatermark(…)."
)
STATE = "Call it after sj.stream(…), on groupBy(…) of keys alone, without a window."
STREAM_JOIN = (
    "Join two streams after sj.stream(…): sj.stream(a).withWatermark(…).join(sj.stream(b).withWatermark(…), …), with a "
    "bound on how far their event times are apart. Results of the same window are joined by their window and keys: "
    'a.groupBy(w, k).agg(…).join(b.groupBy(w, k).agg(…), ["window", "k"]).'
)
FIRST_ROWS = (
    "A stream has no first rows that are the same after a restart. Choose rows by their columns with where(…), or the "
    "lowest and highest of a window with sparkjet.functions.bottom_n and top_n."
)
ORDER = (
    "The rows of a stream have no order. Sort where its results are read, or the results of groupBy(…).agg(…), which "
    'outputMode("complete") emits all at once.'
)
RANKS = (
    "It would number or compare the rows of each batch separately. Compare the rows of a window with aggregates, such "
    "as F.first, F.last, F.max_by and sparkjet.functions.top_n."
)
SET = "Keep or drop rows by a batch DataFrame with a left_semi or left_anti join."
GROUPS = (
    "It would see each group of a batch separately. Aggregate the groups of a window in Python: "
    "agg(sj.python_aggregate(…)) after groupBy(sj.window(…), …)."
)
ALL_ROWS = (
    "It needs all rows, and a stream has no end. Aggregate it in windows, write the results with writeStream, e.g. "
    'format("memory"), and look at those.'
)
ONE_WATERMARK = "The rows already have the watermark of their stream; leave it out."
ON_RESULTS = "Do it with Spark on the rows of each epoch, in writeStream.foreachBatch(…)."
ROWS_OF_RESULTS = (
    'The rows arrive while the query runs: write them with writeStream, e.g. format("memory"), and look there.'
)
AFTER_AGG = "Call agg(…) first: the rows of its result have it."
STARTED = "It belongs to the running query, which start(…) returns."
SHORT_BATCHES = (
    "sparkjet commits in epochs, one for each micro-batch. Leave trigger(…) out for the lowest latency: the next batch "
    "then starts as soon as the last one has ended."
)

_ROW_BY_ROW = """
    colRegex lateralJoin metadataColumn repartitionById repartitionByRange sampleBy to withMetadata
"""
_VIEWS = """
    createGlobalTempView createOrReplaceGlobalTempView createOrReplaceTempView createTempView registerTempTable
"""
_OF_ALL_ROWS = """
    approxQuantile asTable cache checkpoint collect corr count cov crosstab describe executionInfo exists explain first
    foreach foreachPartition freqItems head inputFiles isEmpty isLocal localCheckpoint mergeInto pandas_api persist plot
    randomSplit rdd scalar show stat storageLevel summary tail take toArrow toJSON toLocalIterator toPandas transpose
    unpersist write writeTo
"""
_OF_THE_PLAN = {
    **dict.fromkeys(("sameSemantics", "semanticHash"), "Compare the DataFrames that sj.stream(…) is given."),
    "sql_ctx": "Use sparkSession.",
    **dict.fromkeys(("_jdf", "_plan"), NOT_A_FRAME),
}

STREAMS: Mapping[str, str] = {
    **dict.fromkeys(_ROW_BY_ROW.split(), BEFORE),
    **dict.fromkeys(_OF_ALL_ROWS.split(), ALL_ROWS),
    **dict.fromkeys(("cube", "groupingSets", "rollup"), TOTALS),
    **dict.fromkeys(_VIEWS.split(), VIEW),
    "observe": OBSERVE,
    "sample": SAMPLE,
    **dict.fromkeys(("limit", "offset"), FIRST_ROWS),
    **dict.fromkeys(("orderBy", "sort", "sortWithinPartitions"), ORDER),
    **dict.fromkeys(("exceptAll", "intersect", "intersectAll", "subtract"), SET),
    **dict.fromkeys(("zip", "zipWithIndex", "nearestByJoin"), RANKS),
    **_OF_THE_PLAN,
}
"""Methods of ``DataFrame``, for streams."""

RESULTS: Mapping[str, str] = {
    **dict.fromkeys((*STREAMS, "agg", "groupBy", "groupby", "join", "union", "unionAll", "unionByName"), ON_RESULTS),
    **dict.fromkeys(("distinct", "dropDuplicates", "dropDuplicatesWithinWatermark", "drop_duplicates"), ON_RESULTS),
    **dict.fromkeys(_OF_ALL_ROWS.split(), ROWS_OF_RESULTS),
    **_OF_THE_PLAN,
    "withWatermark": ONE_WATERMARK,
    **dict.fromkeys(_VIEWS.split(), ROWS_OF_RESULTS),
    "observe": ON_RESULTS,
    "sample": SAMPLE,
}
"""Methods of ``DataFrame``, for the results of windows and for late rows."""

ROLLING_RESULTS: Mapping[str, str] = {
    **RESULTS,
    "lateRows": "No row is late where nothing is final.",
    "withWatermark": "Call it before groupBy(…), with a window: groupBy(F.window(…), …).",
}
"""Methods of ``DataFrame``, for results that are never final."""

GROUPS_OF_STREAMS: Mapping[str, str] = {
    **dict.fromkeys(("apply", "applyInArrow", "applyInPandas"), GROUPS),
    **dict.fromkeys(("applyInPandasWithState", "transformWithState", "transformWithStateInPandas"), STATE),
    **dict.fromkeys(("columns", "drop", "filter", "printSchema", "schema", "select", "where", "withColumn"), AFTER_AGG),
    **dict.fromkeys(("lateRows", "writeStream"), AFTER_AGG),
    "cogroup": STREAM_JOIN,
}
"""Methods of ``GroupedData``, for grouped streams."""

GROUPS_OF_RESULTS: Mapping[str, str] = {
    **dict.fromkeys((*GROUPS_OF_STREAMS, "cogroup"), ON_RESULTS),
    **dict.fromkeys(("columns", "drop", "filter", "printSchema", "schema", "select", "where", "withColumn"), AFTER_AGG),
    "writeStream": AFTER_AGG,
}
"""Methods of ``GroupedData``, for complete results that are grouped again."""

WRITERS: Mapping[str, str] = {
    "clusterBy": 'Only tables are clustered. For directories by column: format("files"), partitionBy(…).',
    "mode": "It is called outputMode here.",
    "save": "It is called start here.",
    **dict.fromkeys(("awaitTermination", "lastProgress", "processAllAvailable", "stop"), STARTED),
}
"""Methods of ``DataStreamWriter``, and those often looked for there."""

TRIGGERS: Mapping[str, str] = {
    "continuous": f"continuous is not supported. {SHORT_BATCHES}",
    "realTime": f"realTime is not supported. {SHORT_BATCHES}",
}
"""Arguments of ``DataStreamWriter.trigger``."""
