"""The doors into Spark that its API does not promise: what goes through each, and which of them a new Spark has closed.

Between two releases of Spark, classes move and constructors get further parameters. On the releases that sparkjet was
tried with, every door is known to be open. On another one, ``sj.stream`` looks through all of them first: it names what
is missing, and a query does not fail in its first epoch.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from py4j.protocol import Py4JError

from sparkjet.errors import AnalysisError
from sparkjet.executors import platform_of
from sparkjet.java import has_member
from sparkjet.platforms import locked_jvm
from sparkjet.spark_line import LINE, NEWEST, NEWEST_NAME, RELEASE, TRIED, line_of

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Door:
    """A way into Spark.

    Attributes:
        purpose: What goes through it.
        modules: The modules that use it, below ``sparkjet``.
        members: What must exist in the JVM: ``package.Class``, ``package.Class.method(2)`` or ``package.Class(3)``, a
            constructor, with the numbers of parameters that it may have.
        without: What is done without it, the slower way or a refusal; None if no query can run.
    """

    purpose: str
    modules: Sequence[str]
    members: Sequence[str]
    without: str | None = None


_SQL = "org.apache.spark.sql"
_CATALYST = f"{_SQL}.catalyst"
_EXECUTION = f"{_SQL}.execution"
_FILES = f"{_EXECUTION}.datasources"
_LOGS = f"{_EXECUTION}.streaming"
_QUERY = f"{_LOGS}.runtime.StreamExecution" if LINE >= (4, 1) else f"{_LOGS}.StreamExecution"
_SINKS = f"{_LOGS}.sinks" if LINE >= (4, 1) else _LOGS
_CHECKPOINTS = f"{_LOGS}.checkpointing" if LINE >= (4, 1) else _LOGS

KEPT_PLANS = Door(
    "plans that are kept from one epoch to the next",
    ("catalyst/kept_plans", "catalyst/shuffles"),
    (
        f"{_EXECUTION}.adaptive.LogicalQueryStage(2)",
        f"{_EXECUTION}.QueryExecution.sparkPlan(0)",
        f"{_EXECUTION}.SparkPlan.transformUp(1)",
        f"{_EXECUTION}.SparkPlan.transformAllExpressions(1)",
        f"{_EXECUTION}.SparkPlan.collectLeaves(0)",
        f"{_EXECUTION}.SparkPlan.treeString({5 if LINE >= (4, 1) else 4})",
        f"{_EXECUTION}.RDDScanExec(6)",
        f"{_EXECUTION}.RDDScanExec.stream(0)",
        f"{_EXECUTION}.aggregate.BaseAggregateExec.requiredChildDistributionExpressions(0)",
        f"{_CATALYST}.util.GenericArrayData(1)",
        f"{_CATALYST}.expressions.Literal(2)",
        *(("org.apache.spark.rdd.SQLPartitioningAwareUnionRDD(4)",) if LINE >= (4, 1) else ()),
    ),
    "each epoch is planned again",
)
MICRO_BATCH = Door(
    "the plan behind the rows of a micro-batch",
    ("catalyst/micro_batch",),
    (
        f"{_QUERY}.lastExecution(0)",
        f"{_EXECUTION}.adaptive.LogicalQueryStage(2)",
        f"{_EXECUTION}.RDDScanExec(6)",
        f"{_EXECUTION}.WholeStageCodegenExec(2)",
    ),
    "rows are written out in memory once more, after the source",
)
COUNTERS = Door(
    "counters of rows inside a plan",
    ("catalyst/row_counter",),
    (
        f"{_SQL}.types.ObjectType(1)",
        f"{_CATALYST}.expressions.Literal(2)",
        f"{_CATALYST}.expressions.objects.InitializeJavaBean(2)",
        "org.apache.spark.SparkContext.longAccumulator(1)",
        "org.apache.spark.util.LongAccumulator.value(0)",
    ),
    "with divert(…), batches are held in memory",
)
JDBC = Door(
    "databases: Spark's dialects, connections and types of columns",
    ("catalyst/jdbc",),
    (
        f"{_SQL}.jdbc.JdbcDialects.get(1)",
        f"{_SQL}.jdbc.JdbcDialect.quoteIdentifier(1)",
        f"{_SQL}.jdbc.JdbcDialect.createConnectionFactory(1)",
        f"{_EXECUTION}.datasources.jdbc.JDBCOptions(1)",
        f"{_EXECUTION}.datasources.jdbc.JdbcUtils.schemaString(4)",
        f"{_SQL}.internal.SharedState.jarClassLoader(0)",
    ),
    'format("jdbc") is refused',
)
BUCKETS = Door(
    "the hash by which Iceberg's tables have buckets",
    ("connectors/iceberg/partitions",),
    (
        f"{_CATALYST}.expressions.Murmur3Hash(2)",
        f"{_CATALYST}.expressions.objects.Invoke(8)",
        f"{_CATALYST}.expressions.objects.StaticInvoke(9)",
        "org.apache.commons.codec.digest.MurmurHash3.hash32x86(1)",
        f"{_SQL}.types.ObjectType(1)",
    ),
    "tables with buckets are refused",
)
TRIES = Door(
    "expressions that may raise for a row",
    ("catalyst/tries", "catalyst/python_calls"),
    (
        *(f"{_CATALYST}.expressions.PythonUDF.{each}(0)" for each in ("evalType", "func")),
        f"{_CATALYST}.expressions.NamedArgumentExpression.key(0)",
        *(f"org.apache.spark.api.python.PythonFunction.{each}(0)" for each in ("command", "broadcastVars")),
        f"{_CATALYST}.expressions.TryEval(1)",
        f"{_CATALYST}.plans.logical.LocalRelation(4)",
        f"{_EXECUTION}.QueryExecution.optimizedPlan(0)",
        f"{_SQL}.types.UpCastRule.canUpCast(2)",
        "org.apache.spark.util.Utils.exceptionString(1)",
        "org.apache.spark.SparkThrowable.getCondition(0)",
    ),
    "divert(…) is refused",
)
_COLLAPSED = ("apply(1)", "getAliasMap(1)", "replaceAlias(2)")
_PATTERNS = ["CURRENT_LIKE", "EXPRESSION_WITH_RANDOM_SEED", "PLAN_EXPRESSION", "PYTHON_UDF", "WITH_EXPRESSION"]
RECORDED = Door(
    "batches that a query has read before, from sources that are opened outside of Spark's query",
    ("catalyst/recorded_batches",),
    (
        f"{_CATALYST}.streaming.StreamingRelationV2.v1Relation(0)",
        *(f"{_FILES}.{each}" for each in ("DataSource.createSource(1)", "v2.MicroBatchScanExec(7)")),
        f"{_FILES}.LogicalRelation.copy(5)",
        f"{_LOGS}{'.runtime' if LINE >= (4, 1) else ''}.SerializedOffset(1)",
    ),
    "replays are refused",
)
DOORS = (
    Door(
        "plans of Columns and DataFrames, taken apart and made again",
        (
            "aggregates/operation",
            "catalyst/columns",
            "catalyst/expressions",
            "catalyst/identities",
            "catalyst/lateral_aliases",
            "catalyst/logical_plans",
            "catalyst/placeholders",
            "catalyst/stars",
            "catalyst/unsaid",
            "catalyst/window_calls",
            "java",
        ),
        (
            f"{_SQL}.classic.SparkSession.expression(1)",
            f"{_SQL}.classic.SparkSession.sessionUUID(0)",
            f"{_SQL}.classic.ExpressionUtils.column(1)",
            f"{_SQL}.classic.Dataset.ofRows(2)",
            f"{_SQL}.classic.Dataset.queryExecution(0)",
            f"{_SQL}.classic.Dataset.logicalPlan(0)",
            f"{_EXECUTION}.QueryExecution.analyzed(0)",
            f"{_CATALYST}.expressions.Alias(6)",
            f"{_CATALYST}.expressions.Expression.withNewChildren(1)",
            f"{_CATALYST}.expressions.AttributeReference.exprId(0)",
            f"{_CATALYST}.expressions.AttributeReference.metadata(0)",
            f"{_CATALYST}.analysis.UnresolvedAttribute.nameParts(0)",
            f"{_CATALYST}.analysis.UnresolvedFunction.nameParts(0)",
            f"{_CATALYST}.analysis.UnresolvedFunction.arguments(0)",
            f"{_CATALYST}.plans.logical.Project(2)",
            f"{_CATALYST}.plans.logical.LogicalPlan.resolve(2)",
            f"{_CATALYST}.plans.logical.LogicalPlan.isStreaming(0)",
            "org.apache.spark.api.python.PythonUtils.toSeq(1)",
            "org.apache.spark.api.python.PythonUtils.toScalaMap(1)",
            "scala.Product.productElementName(1)",
        ),
    ),
    Door(
        "analyzed plans of DataFrames: what streams cannot do, conditions of joins, Python, random numbers",
        (
            "catalyst/join_conditions",
            "catalyst/moments",
            "catalyst/physical_plans",
            "catalyst/plan_analysis",
            "catalyst/python_sources",
            "catalyst/time_bounds",
            "catalyst/written_out",
        ),
        (
            f"{_EXECUTION}.datasources.v2.DataSourceV2Relation.options(0)",
            f"{_EXECUTION}.datasources.v2.DataSourceV2Relation.table(0)",
            f"{_CATALYST}.plans.logical.LogicalPlan.collectLeaves(0)",
            f"{_CATALYST}.plans.logical.LogicalPlan.makeCopy(1)",
            f"{_CATALYST}.plans.logical.LogicalPlan.subqueriesAll(0)",
            f"{_CATALYST}.plans.logical.LogicalPlan.transformWithSubqueries(1)",
            f"{_CATALYST}.analysis.UnsupportedOperationChecker.checkForStreaming(2)",
            f"{_CATALYST}.expressions.ExpressionWithRandomSeed.withNewSeed(1)",
            f"{_CATALYST}.expressions.ExpressionWithRandomSeed.seedExpression(0)",
            f"{_CATALYST}.expressions.{'TimestampAddInterval' if LINE >= (4, 1) else 'TimeAdd'}.zoneId(0)",
            f"{_CATALYST}.expressions.TimestampAddYMInterval.zoneId(0)",
            f"{_CATALYST}.expressions.SubtractTimestamps.zoneId(0)",
            f"{_CATALYST}.optimizer.ReplaceExpressions.apply(1)",
            f"{_CATALYST}.plans.logical.LogicalPlan.transformAllExpressions(1)",
            f"{_CATALYST}.plans.logical.LogicalPlan.containsPattern(1)",
            *(f"{_CATALYST}.trees.TreePattern.{each}(0)" for each in _PATTERNS),
            *(f"{_CATALYST}.optimizer.CollapseProject$.{each}" for each in _COLLAPSED),
        ),
    ),
    Door(
        "rows of the driver's and RDDs as DataFrames: results before they are written, and the state",
        ("catalyst/local_rows", "catalyst/physical_plans", "catalyst/tables", "state/partitions", "state/tasks"),
        (
            f"{_EXECUTION}.LogicalRDD({10 if LINE >= (4, 3) else 9})",
            f"{_EXECUTION}.LogicalRDD.rdd(0)",
            f"{_EXECUTION}.QueryExecution.toRdd(0)",
            f"{_EXECUTION}.QueryExecution.executedPlan(0)",
            f"{_EXECUTION}.SparkPlan.executeCollect(0)",
            f"{_CATALYST}.plans.physical.UnknownPartitioning(1)",
            f"{_CATALYST}.types.DataTypeUtils.toAttributes(1)",
            "org.apache.spark.rdd.PartitionPruningRDD.create(2)",
            "org.apache.spark.rdd.UnionRDD(3)",
            "org.apache.spark.SparkContext.unpersistRDD(2)",
            "org.apache.spark.storage.BlockManager.blockIdsToLocations(3)",
            "org.apache.spark.storage.RDDBlockId(2)",
            "org.apache.spark.SparkContext.getRDDStorageInfo(0)",
        ),
    ),
    BUCKETS,
    COUNTERS,
    JDBC,
    KEPT_PLANS,
    MICRO_BATCH,
    RECORDED,
    TRIES,
    Door(
        "Spark's query: its sources, its settings, its end, its progress, its listeners, its logs",
        ("api/listener_events", "engine/context", "engine/plain_logs", "engine/progress", "plan/spark_sources"),
        (
            f"{_SQL}.streaming.StreamingQueryProgress$.fromJson(1)",
            f"{_SQL}.streaming.StreamingQueryListener$QueryProgressEvent(1)",
            f"{_SQL}.streaming.StreamingQueryException(4)",
            f"{_SQL}.classic.StreamingQueryManager.listListeners(0)",
            f"{_SQL}.classic.StreamingQueryManager.postListenerEvent(1)",
            *(f"{_QUERY}.{each}" for each in ("noNewData(0)", "streamDeathCause(0)", "streamDeathCause_$eq(1)")),
            f"{_CHECKPOINTS}.FileSystemBasedCheckpointFileManager(2)",
            f"{_SQL}.internal.SQLConf.setConf(1)",
            f"{_CATALYST}.streaming.StreamingRelationV2",
            f"{_FILES}.v2.python.PythonDataSourceV2",
            f"{_SQL}.sources.DataSourceRegister.shortName(0)",
        ),
    ),
    Door(
        "files written by a job of Spark's, and which of them count",
        ("storage/write_job", "storage/written"),
        (
            f"{_FILES}.FileFormatWriter.write(11|12)",
            f"{_FILES}.FileFormatWriter$OutputSpec(3)",
            f"{_FILES}.SQLHadoopMapReduceCommitProtocol(3)",
            *(f"{_FILES}.BasicWriteJobStatsTracker{each}" for each in ("(2)", ".metrics(0)")),
            f"{_SINKS}.FileStreamSinkLog(4)",
            f"{_SINKS}.FileStreamSinkLog.VERSION(0)",
            f"{_LOGS}.ManifestFileCommitProtocol(2)",
            f"{_LOGS}.ManifestFileCommitProtocol.setupManifestOptions(2)",
            f"{_EXECUTION}.SQLExecution.withNewExecutionId(3)",
            f"{_EXECUTION}.SQLExecution.withSQLConfPropagated(2)",
            "org.apache.spark.util.SerializableConfiguration(1)",
            f"{_SQL}.internal.SessionState$.newHadoopConf(2)",
            "org.apache.spark.SparkStatusTracker.getJobIdsForTag(1)",
            "org.apache.spark.status.AppStatusStore.taskList(3)",
        ),
    ),
    Door(
        "files read by their names, in a session with Spark's defaults",
        ("api/launch", "engine/shown_state", "storage/file_reader", "storage/read_back", "testing/stream_driver"),
        (
            f"{_FILES}.InMemoryFileIndex(7)",
            f"{_FILES}.InMemoryFileIndex.$lessinit$greater$default$5(0)",
            f"{_FILES}.InMemoryFileIndex.allFiles(0)",
            f"{_FILES}.HadoopFsRelation(7)",
            f"{_FILES}.parquet.ParquetFileFormat",
            f"{_SQL}.classic.SparkSession.baseRelationToDataFrame(1)",
            f"{_SQL}.classic.SparkSession.cloneSession(0)",
            f"{_SQL}.classic.SparkSession.clearActiveSession(0)",
            f"{_SQL}.classic.SparkSession.getActiveSession(0)",
            f"{_SQL}.classic.SparkSession.setActiveSession(1)",
            f"{_SQL}.internal.SQLConf$.getConfigEntry(1)",
        ),
    ),
    Door(
        "the executors, and what Hadoop and jars of the user's have for them",
        (
            "executors",
            "plan/window_join",
            "connectors/delta/kernel",
            "connectors/delta/log_committer",
            "connectors/delta/partitions",
            "connectors/iceberg/appending",
            "connectors/iceberg/library",
            "sinks/jars",
            "storage/hadoop_file_system",
        ),
        (
            "org.apache.spark.SparkContext.getExecutorMemoryStatus(0)",
            "org.apache.spark.SparkContext.maxNumConcurrentTasks(1)",
            f"{_SQL}.internal.SessionState.newHadoopConf(0)",
            f"{_SQL}.internal.SharedState.jarClassLoader(0)",
            f"{_SQL}.classic.SparkSession.createDataFrame(2)",
        ),
    ),
    Door(
        "Spark's UI and its metrics system, which show a query, and the log of the JVM",
        ("api/interrupts", "catalyst/spark_ui", "monitoring/spark_metrics"),
        (
            "org.apache.spark.SparkContext.ui(0)",
            "org.apache.spark.SparkContext.longAccumulator(1)",
            "org.apache.spark.ui.JettyUtils$.createRedirectHandler(5|6)",
            "org.apache.spark.ui.WebUI.attachHandler(1)",
            "org.apache.spark.ui.WebUI.detachHandler(1)",
            "org.apache.spark.metrics.source.LongAccumulatorSource$.register(2)",
        ),
        "the page has no link there, and Spark's metrics lack ours: the log says so",
    ),
    Door(
        "what rows of several schemas have in common, tables of a catalog, and rows as text",
        (
            "plan/replaying",
            "sinks/console",
            "connectors/delta/named",
            "connectors/iceberg/library",
            "sinks/read_files",
            "sinks/table",
        ),
        (
            f"{_SQL}.types.StructType.asNullable(0)",
            f"{_SQL}.types.UpCastRule.canUpCast(2)",
            f"{_CATALYST}.analysis.AnsiTypeCoercion.findWiderTypeForTwo(2)",
            f"{_CATALYST}.util.CharVarcharUtils.stringLengthCheck(2)",
            f"{_CATALYST}.util.CharVarcharUtils.getRawSchema(1)",
            f"{_CATALYST}.catalog.ExternalCatalogUtils.unescapePathName(1)",
            f"{_CATALYST}.catalog.SessionCatalog.defaultTablePath(1)",
            f"{_CATALYST}.catalog.SessionCatalog.getTableMetadata(1)",
            f"{_CATALYST}.catalog.SessionCatalog.tableExists(1)",
            f"{_SQL}.classic.Dataset.showString(3)",
        ),
    ),
)

_warned: set[str] = set()


def lacking(session: SparkSession, doors: Sequence[Door] = DOORS) -> dict[Door, tuple[str, ...]]:
    """The doors that the session's Spark has closed, each with what is missing."""
    found = {door: _missing(session.sparkContext, door) for door in doors}
    return {door: members for door, members in found.items() if members}


def is_open(session: SparkSession, door: Door, release: str = RELEASE) -> bool:
    """Whether a door that can be done without is open; nothing is looked up for releases that were tried."""
    return _was_tried(session, release) or not _missing(session.sparkContext, door)


def check_open(session: SparkSession, door: Door) -> None:
    """Refuse what goes through a door that can be done without, where it is closed."""
    if not is_open(session, door):
        members = ", ".join(_missing(session.sparkContext, door))
        message = f"{door.purpose}: {door.without} on Spark {RELEASE}, which lacks {members}. Use one that was tried."
        raise AnalysisError(message)


def check_doors(
    session: SparkSession, doors: Sequence[Door] = DOORS, release: str = RELEASE, vendor: str | None = None
) -> None:
    """On a Spark that was not tried: refuse what cannot run there, and warn once of a line newer than all tried.

    Args:
        session: The query's session.
        doors: What is looked for.
        release: The version of Spark.
        vendor: Whose build of Spark it is, if not Apache's; by default what the session tells.
    """
    vendor = vendor or platform_of(session).vendor
    if vendor is None and release in TRIED:
        return
    if line_of(release) > NEWEST and release not in _warned:
        _warned.add(release)
        warnings.warn(f"sparkjet has not been tried with Spark {release}, only up to {NEWEST_NAME}.", stacklevel=3)
    found = lacking(session, [each for each in doors if each.without is None])
    closed = [f"{', '.join(members)} ({door.purpose})" for door, members in found.items()]
    if closed:
        build = "" if vendor is None else f", the build by {vendor}"
        message = (
            f"sparkjet cannot run on Spark {release}{build}, which lacks {'; '.join(closed)}. Use one that was tried: "
            f"{', '.join(sorted(TRIED))}."
        )
        raise AnalysisError(message)


def check_one_release(python: str, spark: str) -> None:
    """Refuse a PySpark that has started the Spark of another line: which of its doors are open is not known.

    Args:
        python: The release of PySpark.
        spark: What the JVM says.
    """
    if line_of(python) != line_of(spark):
        message = (
            f"stream: PySpark is {python}, and the Spark that it has started is {spark}: SPARK_HOME names another "
            f"installation. Unset it, or install pyspark {spark}."
        )
        raise AnalysisError(message)


@contextmanager
def named_if_locked() -> Iterator[None]:
    """Refuse a JVM that does not let Python in, with what to do; all other errors pass."""
    try:
        yield
    except Py4JError as error:
        remedy = locked_jvm(str(error))
        if remedy is None:
            raise
        raise AnalysisError(f"stream: {remedy}") from error


def _was_tried(session: SparkSession, release: str) -> bool:
    # A vendor's build may have the version of a release that was tried, and other classes.
    return release in TRIED and platform_of(session).vendor is None


@lru_cache(64)
def _missing(context: SparkContext, door: Door) -> tuple[str, ...]:
    return tuple(each for each in door.members if not has_member(context, each))
