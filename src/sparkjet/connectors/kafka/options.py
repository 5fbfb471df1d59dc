"""Options of ``format("kafka")`` and ``format("sparkjet-kafka")``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sparkjet.options import MOST_PARTITIONS, PROGRESS_INTERVAL, Option, choice, family, flag, names, number, text
from sparkjet.sources.alignment import MAX_DRIFT

SOURCE_NAME = "sparkjet-kafka"
"""The name of the source."""
PACKAGES = {"confluent_kafka": "confluent-kafka", "pyarrow": "pyarrow"}
"""Packages that the driver and the executors need, for the source and the sink."""
PREFIX = "kafka."
"""Prefix of the options that are passed to librdkafka."""
_PROPERTIES = family(PREFIX, "librdkafka's properties; kafka.bootstrap.servers is required. Never logged or recorded.")

TOPIC = text("topic", "Topic to write to; overrides a column topic.")
NUM_PARTITIONS = number("numPartitions", "Maximum number of transactions per epoch.", 16, most=MOST_PARTITIONS)
STAGED, PREPARED = "staged", "prepared"
COMMIT = choice(
    "commit",
    "Whether rows wait for the decision in the home, or in open transactions. Without exactly-once, prepared.",
    (STAGED, PREPARED),
    STAGED,
)
PROGRESS_TOPIC = text(
    "progressTopic",
    "Compacted topic of the markers; named after query and output by default. With commit=prepared none by default.",
)
_WAYS = ("fail", "continue")
ON_LOST_TRANSACTION = choice(
    "onLostTransaction", "commit=prepared: what to do if the brokers have dropped what was decided.", _WAYS, "fail"
)
ON_RESTORED_BACKUP = choice(
    "onRestoredBackup", "What to do if the topic has epochs that the snapshots do not know.", _WAYS, "fail"
)
SINK_OPTIONS: Sequence[Option[Any]] = (
    *(_PROPERTIES, TOPIC, NUM_PARTITIONS, COMMIT, PROGRESS_TOPIC),
    PROGRESS_INTERVAL,
    *(ON_LOST_TRANSACTION, ON_RESTORED_BACKUP),
)

SUBSCRIBE = text("subscribe", "Topics, separated by commas.")
SUBSCRIBE_PATTERN = text(
    "subscribePattern", "Regular expression that matches the whole topic name; new topics are discovered."
)
ASSIGN = text("assign", 'Partitions: {"topic": [0, 1]}.')
STARTING_OFFSETS = text(
    "startingOffsets", 'Where a new query starts: latest, earliest or {"topic": {"0": 23, "1": -2}}.', "latest"
)
STARTING_TIMESTAMP = text("startingTimestamp", "Start time for all partitions: milliseconds since 1970.")
STARTING_OFFSETS_BY_TIMESTAMP = text(
    "startingOffsetsByTimestamp", 'Start time by partition: {"topic": {"0": 1700000000000}}.'
)
BEGINS = STARTING_OFFSETS.name, STARTING_TIMESTAMP.name, STARTING_OFFSETS_BY_TIMESTAMP.name
"""Options of which one says where a new query begins, of this source and of Spark's."""
STRATEGY = choice(
    "startingOffsetsByTimestampStrategy",
    "What to do if no record is at or after the start time.",
    ("error", "latest"),
    "error",
)
MAX_OFFSETS = number(
    "maxOffsetsPerTrigger",
    "Approximate limit of offsets per batch, split in proportion to each partition's backlog.",
)
FAIL_ON_DATA_LOSS = flag(
    "failOnDataLoss",
    "Whether the query fails if records to read are gone, or continues without them.",
    default=True,
)
INCLUDE_HEADERS = flag("includeHeaders", "Whether to add a column headers.")
WRITERS_TOPICS = names("progressTopic", "For carried(): the progress topics of the queries that write the topics.")
POLL_TIMEOUT = number(
    "kafkaConsumer.pollTimeoutMs", "How long to wait for an unresponsive broker, or schema registry.", 120_000
)
BINARY, AVRO, PROTOBUF, DEBEZIUM_JSON, DEBEZIUM_AVRO = "binary", "avro", "protobuf", "debezium-json", "debezium-avro"
_FORMATS = BINARY, AVRO, PROTOBUF, DEBEZIUM_JSON, DEBEZIUM_AVRO
FORMAT = choice("format", "What its bytes are; the column is then a struct.", _FORMATS, BINARY)
SCHEMA = text(
    "schema",
    "Schema to read with: Avro's JSON; for debezium-json the columns of a row, as DDL. By default the registry's.",
)
SUBJECT = text("subject", "Subject in the registry; by default named after the topic.")
VERSION = text("version", "Version of the subject to read with: latest, as of load(), or a number.", "latest")
DESCRIPTOR = text("descriptor", "protobuf: file of a FileDescriptorSet, as protoc writes it.")
MESSAGE = text("message", "protobuf: full name of the message; by default the first of the registry's file.")
_OF_A_PART: Sequence[Option[Any]] = (FORMAT, SCHEMA, SUBJECT, VERSION, DESCRIPTOR, MESSAGE)
KEY_PREFIX, VALUE_PREFIX = "key.", "value."
REGISTRY_URL = text("schemaRegistry.url", "Address of a schema registry with Confluent's protocol.")
REGISTRY_USER = text("schemaRegistry.username", "Its user.", "")
REGISTRY_PASSWORD = text("schemaRegistry.password", "The user's password; never logged or recorded.", "")
REGISTRY_TOKEN = text("schemaRegistry.token", "A bearer token instead; never logged or recorded.", "")
REGISTRY_CA_FILE = text("schemaRegistry.caFile", "PEM file of the authorities to trust; the system's by default.", "")
FAILFAST, PERMISSIVE = "failfast", "permissive"
MODE = choice(
    "mode",
    "What becomes of a record that cannot be decoded: it ends the query, or is told in a column malformed.",
    (FAILFAST, PERMISSIVE),
    FAILFAST,
)
INCLUDE_SCHEMA_ID = flag(
    "includeSchemaId", "Whether to add a column schemaId: the registry's number of the schema that wrote the value."
)
FORMAT_OPTIONS: Sequence[Option[Any]] = (
    *(each.below(VALUE_PREFIX, "Of the value") for each in _OF_A_PART),
    *(each.below(KEY_PREFIX, "Of the key") for each in _OF_A_PART),
    *(REGISTRY_URL, REGISTRY_USER, REGISTRY_PASSWORD, REGISTRY_TOKEN, REGISTRY_CA_FILE, MODE, INCLUDE_SCHEMA_ID),
)
"""Options of the formats of keys and values."""
SOURCE_OPTIONS: Sequence[Option[Any]] = (
    *(_PROPERTIES, SUBSCRIBE, SUBSCRIBE_PATTERN, ASSIGN),
    *(STARTING_OFFSETS, STARTING_TIMESTAMP, STARTING_OFFSETS_BY_TIMESTAMP, STRATEGY),
    *(MAX_OFFSETS, MAX_DRIFT, FAIL_ON_DATA_LOSS, INCLUDE_HEADERS, WRITERS_TOPICS, POLL_TIMEOUT),
    *FORMAT_OPTIONS,
)
"""Options of the source, with the names that Spark's source gives them."""
