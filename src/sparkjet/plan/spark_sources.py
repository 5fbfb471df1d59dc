"""The sources of a streaming DataFrame, and what is known about them: whether they are replayable after a restart."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple

from py4j.java_gateway import is_instance_of

from sparkjet.catalyst.logical_plans import analyzed, attribute_id, children, kind_of, listed, streaming_nodes
from sparkjet.connectors.delta import format as delta
from sparkjet.connectors.format import Followed, Hearing, KnownSource
from sparkjet.connectors.formats import SOURCES
from sparkjet.connectors.iceberg import format as iceberg
from sparkjet.connectors.kafka.options import BEGINS
from sparkjet.errors import AnalysisError
from sparkjet.query_log import logger
from sparkjet.sinks.protocol import Guarantee
from sparkjet.sinks.table import location
from sparkjet.spark_line import LINE

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from pyspark.sql import DataFrame


KNOWN = {
    **dict.fromkeys(("avro", "csv", "json", "orc", "parquet"), KnownSource()),
    "kafka": KnownSource(begins=BEGINS),
    **dict.fromkeys(("rate-micro-batch", "text", "xml"), KnownSource()),
    "rate": KnownSource(ends=False),
    "socket": KnownSource(keeps=False, ends=False),
    "delta": delta.SOURCE,
    **{each.name: each.known for each in SOURCES.values() if each.known is not None},
}
"""The known sources, by their short names."""
KEEPING = tuple(sorted(name for name, known in KNOWN.items() if known.keeps))
"""The sources that keep their rows."""
_UNKNOWN = KnownSource(None, ends=False)
_UNTELLING = ("kafka", "socket")
"""Sources of Spark's own, beside those of files; not ``rate``, which stands for others in tests."""

_RELATIONS = ("StreamingRelation", "StreamingRelationV2")
_NAMING = (4, 2)
"""The first version line of Spark with ``readStream.name``."""
_WHERE = ("path", "table", "dbtable", "subscribe", "subscribepattern", "assign", "queue", "queues", "topic")
"""Options that say what a source reads, by their names in lower case."""
_NAMED = "org.apache.spark.sql.sources.DataSourceRegister"
_PYTHON = "org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2"


class Replayability(Enum):
    """Whether a source returns the same rows for the same offsets, even after a restart; in ascending severity."""

    YES = "yes"
    UNKNOWN = "unknown"
    NO = "no"


def replayability(df: DataFrame) -> tuple[Replayability, str]:
    """The worst replayability of the sources of a streaming DataFrame, and the name of such a source."""
    judged = [_replayability(df, leaf) for leaf in _leaves(df)]
    return max(judged, key=lambda each: list(Replayability).index(each[0]))


def check_replayable(df: DataFrame, guarantee: Guarantee) -> None:
    """Reject a source that is not replayable, and warn about an unknown one."""
    if guarantee is Guarantee.NONE:
        return
    answer, name = replayability(df)
    if answer is Replayability.NO:
        message = (
            f"start: the source {name!r} is not replayable, so each restart loses rows: processingGuarantee cannot "
            f'be "{guarantee.value}". Write the rows to files or Kafka and read those, or accept it with '
            'option("processingGuarantee", "none").'
        )
        raise AnalysisError(message)
    if answer is Replayability.UNKNOWN:
        logger.warning(
            "the source %r is not known to be replayable, that is, to return the same rows for the same offsets. If it "
            'is, restarts lose nothing; as sparkjet cannot tell, query.guarantees is "none"',
            name,
        )


def guarantee_of_sources(df: DataFrame) -> Guarantee:
    """The strongest guarantee for the rows of a streaming DataFrame, whatever the sinks."""
    return Guarantee.EXACTLY_ONCE if replayability(df)[0] is Replayability.YES else Guarantee.NONE


def streaming_sources(df: DataFrame) -> int:
    """Number of Spark sources that a streaming DataFrame reads."""
    return len(_leaves(df))


def given_names(df: DataFrame) -> tuple[str, ...]:
    """The names given by ``readStream.name`` to the sources of a streaming DataFrame, in order.

    With names, Spark's checkpoint identifies sources by name rather than by order: they may change places.
    """
    if LINE < _NAMING:
        return ()
    names = (leaf.sourceIdentifyingName() for leaf in _leaves(df) if leaf.nodeName() in _RELATIONS)
    given = (name for name in names if kind_of(name) == "UserProvided")
    return tuple(dict.fromkeys(str(name.name()) for name in given))


def described_sources(df: DataFrame) -> list[tuple[str, str]]:
    """For each source of a streaming DataFrame, in order: its given name, and its format with what it reads.

    What it reads is described by its options, as given: the same data under another path counts as different.
    """
    found = []
    for leaf in _leaves(df):
        is_relation = leaf.nodeName() in _RELATIONS
        given = leaf.sourceIdentifyingName() if is_relation and LINE >= _NAMING else None
        name = str(given.name()) if given is not None and kind_of(given) == "UserProvided" else ""
        found.append((name, _described(df, leaf)))
    return found


def taking_sources(df: DataFrame) -> list[str]:
    """The sources of a streaming DataFrame that take what they read away from other readers, as they are described."""
    return [_described(df, leaf) for leaf in _leaves(df) if _known_of(df, leaf).takes or _cleaning(leaf) != "off"]


def read_in_one_batch(df: DataFrame) -> bool:
    """Whether Spark runs only one batch of each start with ``trigger(availableNow=True)``, or nobody knows."""
    return not all(_known_of(df, leaf).ends or _reads_files(leaf) for leaf in _leaves(df))


def beginning_late(df: DataFrame) -> list[tuple[str, tuple[str, ...]]]:
    """The sources that begin with rows that come later, as nothing says where, and the options that could."""
    found = []
    for leaf in _leaves(df):
        options = _known_of(df, leaf).begins
        if options and not _given(leaf, [each.lower() for each in options]):
            found.append((_described(df, leaf), options))
    return found


def _described(df: DataFrame, leaf: Any) -> str:
    """The format of a source, with what it reads."""
    return " ".join([_name(df, leaf), *_given(leaf, _WHERE).values()])


def _given(leaf: Any, names: Sequence[str]) -> dict[str, str]:
    """Which of these options, by their names in lower case, a source has been given."""
    if leaf.nodeName() not in _RELATIONS:
        return {}
    options = _options(leaf) if leaf.nodeName() == "StreamingRelation" else _newer_options(leaf, names)
    return {each: options[each] for each in names if each in options}


def hearings(df: DataFrame) -> tuple[Hearing | None, ...]:
    """For each source of a streaming DataFrame, in order, who hears what its writers tell; None where nobody must."""
    return tuple(_hearing(df, leaf) for leaf in _leaves(df))


def _hearing(df: DataFrame, leaf: Any) -> Hearing | None:
    known = _known_of(df, leaf)
    if known.hearing is None:
        return None
    if leaf.nodeName() == "StreamingRelationV2":
        return known.hearing(Followed(df.sparkSession, table=leaf.table())) if known is iceberg.SOURCE else None
    options, table = _options(leaf), leaf.dataSource().catalogTable()
    place = location(table.get().location()) if table.isDefined() else options.get("path")
    return None if place is None else known.hearing(Followed(df.sparkSession, place, options))


def _newer_options(leaf: Any, names: Sequence[str]) -> dict[str, str]:
    """The given options that a source of API version 2 knows."""
    options, table = leaf.extraOptions(), leaf.identifier()
    found = {each: str(options.get(each)) for each in names if options.containsKey(each)}
    return found | ({"table": str(table.get())} if table.isDefined() else {})


def packages_of_sources(df: DataFrame) -> dict[str, str]:
    """The packages that executors need to read a streaming DataFrame, according to :class:`KnownSource`."""
    return {key: value for leaf in _leaves(df) for key, value in _known_of(df, leaf).packages.items()}


@dataclass(frozen=True)
class PartitionColumns:
    """The columns by which the offsets of a source name its partitions.

    Attributes:
        source: Name of the source.
        columns: The columns of the partitions' names, outermost first.
        kept: Those that a DataFrame still has from the source: others may have taken their names.
    """

    source: str
    columns: tuple[str, ...]
    kept: tuple[str, ...]

    def name(self, columns: tuple[str, ...]) -> bool:
        """Whether these columns are the source's own, and identify its partitions, with or without enclosing ones."""
        return bool(columns) and columns in (self.columns, self.columns[1:]) and set(columns) <= set(self.kept)


def partition_columns(df: DataFrame) -> PartitionColumns | None:
    """The columns that name the partitions of the one source of a DataFrame; None if it reads something else."""
    leaves = _leaves(df)
    if len(leaves) != 1 or leaves[0].nodeName() != "StreamingRelationV2":
        return None
    source = str(leaves[0].sourceName())
    columns = _known(source).partitions
    if not columns:
        return None
    delivered = {attribute_id(attribute) for attribute in listed(leaves[0].output())}
    kept = {each.name() for each in listed(analyzed(df).output()) if attribute_id(each) in delivered}
    return PartitionColumns(source, columns, tuple(name for name in columns if name in kept))


def source_names(df: DataFrame) -> list[str]:
    """The names of the sources of a streaming DataFrame."""
    return [_name(df, leaf) for leaf in _leaves(df)]


def options_given(df: DataFrame, option: str) -> list[tuple[str, str | None]]:
    """For each source of a streaming DataFrame, in order: its name, and the value of an option, None without it."""
    found = []
    for leaf in _leaves(df):
        value = None
        if leaf.nodeName() == "StreamingRelation":
            value = _options(leaf).get(option.lower())
        elif leaf.nodeName() == "StreamingRelationV2" and leaf.extraOptions().containsKey(option):
            value = str(leaf.extraOptions().get(option))
        found.append((_name(df, leaf), value))
    return found


def acknowledging_source(df: DataFrame, without: Collection[str] = ()) -> str | None:
    """A source that discards, or may discard, rows that Spark has committed; None if only those in ``without`` do."""
    for leaf in _leaves(df):
        name = _name(df, leaf)
        if _cleaning(leaf) != "off":
            return f"{name} with cleanSource={_cleaning(leaf)}"
        if not _known_of(df, leaf).keeps and not _reads_files(leaf) and name not in without:
            return name
    return None


def untelling_source(df: DataFrame) -> str | None:
    """A source of Spark's own that has no watermark of who wrote its rows, and no place for one; None without any."""
    names = ((_name(df, leaf), leaf) for leaf in _leaves(df))
    return next((name for name, leaf in names if name in _UNTELLING or _reads_files(leaf)), None)


@dataclass(frozen=True)
class FileSource:
    """A Spark source that lists files.

    Attributes:
        path: The path, as given; empty for a table of a catalog.
        is_recursive: Whether it reads all directories below.
        names: A pattern of the names that it reads (``pathGlobFilter``).
    """

    path: str
    is_recursive: bool
    names: str


def file_sources(df: DataFrame) -> list[FileSource]:
    """The sources of a streaming DataFrame that list files below a path."""
    return [each.files for each in read_sources(df) if each.files is not None and each.files.path]


class ReadSource(NamedTuple):
    """A Spark source: its format, and what it lists if it lists files."""

    format: str
    files: FileSource | None


def read_sources(df: DataFrame) -> list[ReadSource]:
    """The sources of a streaming DataFrame, in order."""
    return [ReadSource(_name(df, leaf), _file_source(leaf) if _reads_files(leaf) else None) for leaf in _leaves(df)]


def _file_source(leaf: Any) -> FileSource:
    options = _options(leaf)
    return FileSource(
        options.get("path", ""),
        options.get("recursivefilelookup", "false").lower() == "true",
        options.get("pathglobfilter", "*"),
    )


def _cleaning(leaf: Any) -> str:
    """The treatment of the files that a source has read: off, delete or archive."""
    return _options(leaf).get("cleansource", "off").lower() if leaf.nodeName() == "StreamingRelation" else "off"


def _options(leaf: Any) -> dict[str, str]:
    """The options of a source of API version 1, by their names in lower case."""
    # Not as a Java map: iterating over one ends with a Java error, which costs PySpark 50 lookups.
    options = leaf.dataSource().options()
    return {str(key).lower(): str(options.apply(key)) for key in listed(options.keys().toSeq())}


def _replayability(df: DataFrame, leaf: Any) -> tuple[Replayability, str]:
    name = _name(df, leaf)
    keeps = _known_of(df, leaf).keeps
    if keeps is False:
        return Replayability.NO, name
    # Python sources must return the same rows for the same offsets, as Spark requests them again after a restart.
    replayable = keeps or _reads_files(leaf) or _provider_class(leaf) == _PYTHON
    return Replayability.YES if replayable else Replayability.UNKNOWN, name


def _known(name: str) -> KnownSource:
    return KNOWN.get(name.lower(), _UNKNOWN)


def _known_of(df: DataFrame, leaf: Any) -> KnownSource:
    """The facts known of a source; of a table of another catalog by its class, as it has the name of the table."""
    if leaf.nodeName() == "StreamingRelationV2" and str(leaf.table().getClass().getName()) == iceberg.TABLE:
        return iceberg.SOURCE
    return _known(_name(df, leaf))


def _leaves(df: DataFrame) -> list[Any]:
    """The Spark sources in a plan; references to common table expressions are leaves too, but not sources."""
    nodes = streaming_nodes(analyzed(df))
    return [node for node in nodes if node.nodeName() != "CTERelationRef" and children(node) == []]


def _reads_files(leaf: Any) -> bool:
    return leaf.nodeName() == "StreamingRelation" and str(leaf.sourceName()).startswith("FileSource[")


def _provider_class(leaf: Any) -> str | None:
    provider = _provider(leaf)
    return None if provider is None else str(provider.getClass().getName())


def _provider(leaf: Any) -> Any:
    """The provider of a source; None for sources of API version 1, and for tables of a catalog."""
    newer = leaf.nodeName() == "StreamingRelationV2" and leaf.source().isDefined()
    return leaf.source().get() if newer else None


def _name(df: DataFrame, leaf: Any) -> str:
    """The short name of a source, whatever name the query uses."""
    if leaf.nodeName() not in _RELATIONS:
        return str(leaf.nodeName())
    if _reads_files(leaf):
        return str(leaf.dataSource().className())
    provider, gateway = _provider(leaf), df.sparkSession.sparkContext._gateway
    registered = provider is not None and is_instance_of(gateway, provider, _NAMED)
    return str(provider.shortName() if registered else leaf.sourceName())
