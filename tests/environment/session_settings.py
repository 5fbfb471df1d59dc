"""Every setting of Spark's sessions, in groups, each with a value that is not its default."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

FORMATS = re.compile(
    r"spark\.sql\.(parquet|files|legacy\.parquet|sources|variant)\."
    r"|spark\.sql\.(caseSensitive|timestampType|session\.timeZone|datetime\.java8API\.enabled)$"
    r"|spark\.sql\..*([cC]har[A-Z]|charAs|Varchar|schemaPruning|nestedSchema|maxConcurrentOutputFileWriters|plannedWrite)"
    r"|spark\.sql\.legacy\.timeParserPolicy|spark\.sql\.ansi\.enabled|spark\.sql\.leafNodeDefaultParallelism"
)
"""Settings that readers and writers take from a session, and those around them that could change a value."""

GROUPS: Mapping[str, re.Pattern[str]] = {
    "formats": FORMATS,
    "text": re.compile(r"spark\.sql\.(json|csv|orc|fileSource|columnNameOfCorruptRecord|execution\.data)"),
    "legacy": re.compile(r"spark\.sql\.(legacy\.|.*\.legacy\.)"),
    "streams": re.compile(r"spark\.sql\.streaming\."),
    "plans": re.compile(
        r"spark\.sql\.(adaptive|optimizer|cbo|join|shuffle|exchange|limit|sort|window|shuffledHashJoinFactor"
        r"|sortMergeJoinExec|sessionWindow|cartesianProductExec|windowExec|autoBroadcast|broadcastTimeout|crossJoin"
        r"|constraintPropagation|inMemory|objectHash|optimizeNullAware|orderingAware|subexpression|unionOutput"
        r"|requireAllClusterKeys|maxSinglePartition|maxBroadcast|bucketing|statistics|defaultSizeInBytes|topK"
        r"|shuffleDependency|lightweightPlan|planChangeValidation|useCommonExpr|alwaysInline)"
    ),
    "execution": re.compile(r"spark\.sql\.(execution|codegen|columnVector|python|chunkBase64)"),
    "analysis": re.compile(
        r"spark\.sql\.(analyzer|ansi|groupBy|orderBy|retainGroup|lateralColumn|selfJoin|mapKey|decimal|collation|function"
        r"|storeAssignment|runCollation|insertNested|mergeNested|enforceType|prioritize|stable|parser|transpose|lazySet"
        r"|allowNamed|dropDuplicates|mapZip|icu|dataFrameQueryContext|stackTraces|assumeAnsi|dataSource|subquery|udt"
        r"|timestampNanos|timeType|generated|defaultColumn|listagg|pivot|readSide|preserve|charAs|variable"
        r"|functionResolution|operatorPipe|binByRelation|geospatial|path\.|runSQL|view|cte)"
    ),
}
"""By name; the first that matches has a setting."""

ALL = "all settings"
"""Stands for all groups at once."""

OTHERS: Mapping[str, list[str]] = {
    "spark.sql.adaptive.advisoryPartitionSizeInBytes": ["1"],
    "spark.sql.adaptive.autoBroadcastJoinThreshold": ["-1"],
    "spark.sql.adaptive.coalescePartitions.initialPartitionNum": ["3"],
    "spark.sql.adaptive.coalescePartitions.maxReducerPartitionsPerTask": ["1"],
    "spark.sql.adaptive.coalescePartitions.minPartitionNum": ["2"],
    "spark.sql.adaptive.coalescePartitions.minPartitionSize": ["1b"],
    "spark.sql.adaptive.convertSortMergeJoinToShuffledHashJoin.minWideningFactor": ["2.0"],
    "spark.sql.adaptive.costEvaluator.countLocalSort.enabled": ["true"],
    "spark.sql.adaptive.maxShuffledHashJoinLocalMapThreshold": ["1g"],
    "spark.sql.adaptive.nonEmptyPartitionRatioForBroadcastJoin": ["0.9"],
    "spark.sql.adaptive.rebalancePartitionsSmallPartitionFactor": ["0.9"],
    "spark.sql.adaptive.shuffle.targetPostShuffleInputSize": ["1b"],
    "spark.sql.adaptive.skewJoin.skewedPartitionFactor": ["1.0"],
    "spark.sql.adaptive.skewJoin.skewedPartitionThresholdInBytes": ["1b"],
    "spark.sql.analyzer.canonicalization.multiCommutativeOpMemoryOptThreshold": ["100"],
    "spark.sql.autoBroadcastJoinThreshold": ["-1"],
    "spark.sql.bucketing.coalesceBucketsInJoin.maxBucketRatio": ["2"],
    "spark.sql.cartesianProductExec.buffer.in.memory.threshold": ["1"],
    "spark.sql.cartesianProductExec.buffer.spill.threshold": ["2"],
    "spark.sql.codegen.aggregate.fastHashMap.capacityBit": ["10"],
    "spark.sql.codegen.hugeMethodLimit": ["1"],
    "spark.sql.codegen.maxFields": ["1"],
    "spark.sql.codegen.methodSplitThreshold": ["1"],
    "spark.sql.codegen.wholeStage.union.maxChildren": ["2"],
    "spark.sql.columnNameOfCorruptRecord": ["_broken"],
    "spark.sql.csv.parser.inputBufferSize": ["128"],
    "spark.sql.defaultSizeInBytes": ["1"],
    "spark.sql.execution.arrow.compression.codec": ["zstd"],
    "spark.sql.execution.arrow.localRelationThreshold": ["1b"],
    "spark.sql.execution.arrow.maxBytesPerBatch": ["1k"],
    "spark.sql.execution.arrow.maxRecordsPerBatch": ["1"],
    "spark.sql.execution.arrow.maxRecordsPerOutputBatch": ["1"],
    "spark.sql.execution.arrow.pyspark.enabled": ["false"],
    "spark.sql.execution.arrow.pyspark.fallback.enabled": ["false"],
    "spark.sql.execution.arrow.transformWithStateInPySpark.maxStateRecordsPerBatch": ["1"],
    "spark.sql.execution.broadcastHashJoin.outputPartitioningExpandLimit": ["0"],
    "spark.sql.execution.pandas.structHandlingMode": ["row"],
    "spark.sql.execution.python.udf.maxRecordsPerBatch": ["1"],
    "spark.sql.execution.pythonUDF.arrow.concurrency.level": ["2"],
    "spark.sql.execution.rangeExchange.sampleSizePerPartition": ["1"],
    "spark.sql.execution.topKSortFallbackThreshold": ["1"],
    "spark.sql.files.ignoredPathSegmentRegex": ["part"],
    "spark.sql.files.maxPartitionBytes": ["100"],
    "spark.sql.files.maxPartitionNum": ["1"],
    "spark.sql.files.maxRecordsPerFile": ["1"],
    "spark.sql.files.minPartitionNum": ["7"],
    "spark.sql.files.openCostInBytes": ["1"],
    "spark.sql.functionResolution.sessionOrder": ["first"],
    "spark.sql.inMemoryColumnarStorage.batchSize": ["1"],
    "spark.sql.leafNodeDefaultParallelism": ["3"],
    "spark.sql.legacy.timeParserPolicy": ["LEGACY"],
    "spark.sql.limit.initialNumPartitions": ["2"],
    "spark.sql.limit.scaleUpFactor": ["2"],
    "spark.sql.mapKeyDedupPolicy": ["LAST_WIN"],
    "spark.sql.maxConcurrentOutputFileWriters": ["2"],
    "spark.sql.maxSinglePartitionBytes": ["1"],
    "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": ["1"],
    "spark.sql.optimizeNullAwareAntiJoin.broadcastThreshold": ["1b"],
    "spark.sql.optimizer.dynamicPartitionPruning.fallbackFilterRatio": ["0.1"],
    "spark.sql.optimizer.expressionProjectionCandidateLimit": ["1"],
    "spark.sql.optimizer.inSetConversionThreshold": ["0"],
    "spark.sql.optimizer.inSetSwitchThreshold": ["1"],
    "spark.sql.optimizer.mapLookupHashThreshold": ["1"],
    "spark.sql.optimizer.optimizeExpandRatio": ["2"],
    "spark.sql.optimizer.runtime.bloomFilter.applicationSideScanSizeThreshold": ["1b"],
    "spark.sql.optimizer.singleTaskExecution.localTableScan.threshold": ["1"],
    "spark.sql.optimizer.windowGroupLimitThreshold": ["-1"],
    "spark.sql.orc.columnarReaderBatchSize": ["1"],
    "spark.sql.orc.columnarWriterBatchSize": ["1"],
    "spark.sql.orc.compression.codec": ["none"],
    "spark.sql.orc.impl": ["native"],
    "spark.sql.parquet.columnarReaderBatchSize": ["1"],
    "spark.sql.parquet.compression.codec": ["none", "zstd"],
    "spark.sql.parquet.datetimeRebaseModeInRead": ["LEGACY", "EXCEPTION"],
    "spark.sql.parquet.datetimeRebaseModeInWrite": ["LEGACY", "EXCEPTION"],
    "spark.sql.parquet.int96RebaseModeInRead": ["LEGACY", "EXCEPTION"],
    "spark.sql.parquet.int96RebaseModeInWrite": ["LEGACY", "EXCEPTION"],
    "spark.sql.parquet.output.committer.class": ["org.apache.hadoop.mapreduce.lib.output.PartialFileOutputCommitter"],
    "spark.sql.parquet.outputTimestampType": ["TIMESTAMP_MILLIS", "INT96"],
    "spark.sql.parquet.pushdown.inFilterThreshold": ["0"],
    "spark.sql.python.filterPushdown.enabled": ["false"],
    "spark.sql.session.timeZone": ["America/New_York", "Asia/Kathmandu"],
    "spark.sql.sessionWindow.buffer.in.memory.threshold": ["1"],
    "spark.sql.sessionWindow.buffer.spill.threshold": ["2"],
    "spark.sql.shuffle.partitions": ["5"],
    "spark.sql.shuffledHashJoinFactor": ["1"],
    "spark.sql.sortMergeJoinExec.buffer.in.memory.threshold": ["1"],
    "spark.sql.sortMergeJoinExec.buffer.spill.threshold": ["2"],
    "spark.sql.sources.commitProtocolClass": ["org.apache.spark.sql.execution.streaming.ManifestFileCommitProtocol"],
    "spark.sql.sources.default": ["json"],
    "spark.sql.sources.outputCommitterClass": ["org.apache.hadoop.mapreduce.lib.output.PartialFileOutputCommitter"],
    "spark.sql.sources.partitionOverwriteMode": ["DYNAMIC"],
    "spark.sql.sources.parallelPartitionDiscovery.threshold": ["0"],
    "spark.sql.sources.useListFilesFileSystemList": ["file"],
    "spark.sql.sources.useV1SourceList": [""],
    "spark.sql.storeAssignmentPolicy": ["LEGACY"],
    "spark.sql.streaming.aggregation.stateFormatVersion": ["1"],
    "spark.sql.streaming.checkpointLocation": ["/nowhere/that/exists"],
    "spark.sql.streaming.disabledV2MicroBatchReaders": ["org.apache.spark.sql.kafka010.KafkaSourceProvider"],
    "spark.sql.streaming.fileSink.log.compactInterval": ["2"],
    "spark.sql.streaming.fileSource.log.cleanupDelay": ["1ms"],
    "spark.sql.streaming.fileSource.log.compactInterval": ["2"],
    "spark.sql.streaming.flatMapGroupsWithState.stateFormatVersion": ["1"],
    "spark.sql.streaming.internal.stateStore.partitions": ["3"],
    "spark.sql.streaming.join.stateFormatVersion": ["1"],
    "spark.sql.streaming.maxBatchesToRetainInMemory": ["0"],
    "spark.sql.streaming.minBatchesToRetain": ["1"],
    "spark.sql.streaming.multipleWatermarkPolicy": ["max"],
    "spark.sql.streaming.noDataProgressEventInterval": ["1ms"],
    "spark.sql.streaming.numRecentProgressUpdates": ["1"],
    "spark.sql.streaming.offsetLog.formatVersion": ["2"],
    "spark.sql.streaming.pollingDelay": ["1ms"],
    "spark.sql.streaming.ratioExtraSpaceAllowedInCheckpoint": ["0"],
    "spark.sql.streaming.sessionWindow.stateFormatVersion": ["1"],
    "spark.sql.streaming.stateStore.checkpointFormatVersion": ["2"],
    "spark.sql.streaming.stateStore.compression.codec": ["zstd"],
    "spark.sql.streaming.stateStore.encodingFormat": ["avro"],
    "spark.sql.streaming.stateStore.minDeltasForSnapshot": ["1"],
    "spark.sql.streaming.stateStore.providerClass": [
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ],
    "spark.sql.streaming.stopTimeout": ["60000"],
    "spark.sql.subexpressionElimination.cache.maxEntries": ["1"],
    "spark.sql.timestampType": ["TIMESTAMP_NTZ"],
    "spark.sql.variant.shredding.maxSchemaDepth": ["1"],
    "spark.sql.variant.shredding.maxSchemaWidth": ["1"],
    "spark.sql.window.segmentTree.blockSize": ["64"],
    "spark.sql.window.segmentTree.minPartitionRows": ["2"],
    "spark.sql.windowExec.buffer.in.memory.threshold": ["1"],
    "spark.sql.windowExec.buffer.spill.threshold": ["2"],
}
"""Values other than the default of what is not true or false."""

UNTOUCHED = re.compile(
    r"spark\.sql\.sources\.(bucketing|v2|disabledJdbcConnProviderList|fileCompressionFactor|schemaStringLengthThreshold"
    r"|parallelPartitionDiscovery\.parallelism|structPredicateDecompose\.maxFields|binaryFile\.maxLength)"
    r"|spark\.sql\.variant\.forceShreddingSchemaForTest|spark\.sql\.parquet\.filterPushdown\.stringPredicate"
    # Sizes of caches and buffers, limits that a query fails at, and details of an optimisation that others turn on.
    r"|spark\.sql\.(adaptive\.(customCostEvaluatorClass|logLevel)|broadcastTimeout|maxBroadcastTableSize|cbo\.\w+\..*\w"
    r"|cbo\.starJoinFTRatio|(pivot|transpose)MaxValues|udt\.allowedDynamicUDTClasses|stackTracesInDataFrameContext"
    r"|.*\.(maxIterations|excludedRules|spill\.size\.threshold)|inMemoryColumnarStorage\.hugeVector.*|cteRec.*"
    r"|statistics\.(histogram\.numBins|ndv\.maxError|percentile\.accuracy)|window\.segmentTree\.fanout|view\..*"
    r"|columnVector\.offheap\.enabled|parser\.parserDfa.*|defaultColumn\.allowedProviders|.*\.dualRunSampleRate"
    r"|codegen\.(broadcastCleanedSourceThreshold|compiler|factoryMode|log.*)"
    r"|execution\.(pyspark\..*|python\.udf\.(buffer\.size|max.*)|pandas\.udf\..*)"
    r"|execution\.arrow\.(compression\.zstd\.level|maxBytesPerOutputBatch)"
    r"|optimizer\.(dynamicPartitionPruning\.broadcastProjection\..*|runtime\.bloomFilter\..*|runtimeFilter\..*"
    r"|nestedPredicatePushdown\..*|singleTaskExecution\..*)"
    r"|legacy\.((csv|json)\.enableDateTimeParsingFallback|ctePrecedencePolicy|nullInEmptyListBehavior))$"
    # Spark then refuses streams of files, joins of streams and whatever has no name.
    r"|spark\.sql\.(streaming\.queryEvolution\..*|analyzer\.singlePassResolver\..*)$"
    # Our own error says so.
    r"|spark\.sql\.retainGroupColumns$"
    # Of state, sinks and modes of Spark's own that no query of ours has.
    r"|spark\.sql\.streaming\.(commitProtocolClass|continuous\..*|disabledV2Writers|fileSink\.log\.cleanupDelay"
    r"|fileSource\.cleaner\..*|realTimeMode\..*|stateStore\..*|statefulOperator\..*|transformWithState\..*)$"
)
"""Settings without another value here: most are not true or false."""

ELSEWHERE = re.compile(
    r"spark\.sql\.(addPartitionInBatch|artifact|avro|binaryOutputStyle|catalog\.|classic|cli|connect|dataframeCache|debug"
    r"|default(CacheStorageLevel|Catalog|Path)|dropTableOnView|error|experimental|expressionTree|extendedExplain|hive"
    r"|insertIntoReplace|maven|max(Metadata|Plan)StringLength|nameResolutionLog|pipelines|planChangeLog|planner|protobuf"
    r"|pyspark|redaction|repl|scripting|scriptTransformation|session\.localRelation|thrift[sS]erver|timeTravel"
    r"|truncateTable|tvf|ui|xml)"
)
"""Settings of what is no part of a query: tables of Hive, shells, servers, logs, Connect."""


@lru_cache(maxsize=1)
def entries(spark: SparkSession) -> dict[str, str]:
    """All settings that a session may change, with their defaults."""
    conf: Any = getattr(spark._jvm.org.apache.spark.sql.internal, "SQLConf$")  # type: ignore[union-attr]
    found, every = {}, getattr(conf, "MODULE$").getConfigEntries().iterator()
    while every.hasNext():
        entry = every.next()
        if spark.conf.isModifiable(entry.key()):
            found[entry.key()] = entry.defaultValueString()
    return found


def group_of(name: str) -> str | None:
    """The group that has a setting, None if none does."""
    return next((group for group, names in GROUPS.items() if names.match(name)), None)


def other(name: str, default: str, number: int = 0) -> str | None:
    """A value that is not the default, None where there is none; a setting may have several."""
    if name in OTHERS:
        return OTHERS[name][number % len(OTHERS[name])]
    return None if UNTOUCHED.match(name) else {"true": "false", "false": "true"}.get(default)


def changed(spark: SparkSession, group: str, number: int = 0) -> dict[str, str]:
    """The settings of a group, or of ``ALL`` of them, none at its default."""
    wanted = set(GROUPS) if group == ALL else {group}
    found = {name: other(name, default, number) for name, default in entries(spark).items() if group_of(name) in wanted}
    return {name: value for name, value in found.items() if value is not None}


def session_with(spark: SparkSession, settings: Mapping[str, str]) -> SparkSession:
    """A new session with these settings."""
    session = spark.newSession()
    for name, value in settings.items():
        session.conf.set(name, value)
    return session
