"""The Kafka sink with ``commit=staged``: rows wait in the outbox, and are published after the decision."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import confluent_kafka
from pyspark.sql import Observation
from pyspark.sql import functions as F

from sparkjet.connectors.kafka import native, parts, producing, publishing
from sparkjet.connectors.kafka.cluster import Cluster, unusable
from sparkjet.connectors.kafka.columns import check_columns, records
from sparkjet.connectors.kafka.connection import BrokerError
from sparkjet.connectors.kafka.division import names_of, parts_of
from sparkjet.connectors.kafka.ends import PartitionEnds
from sparkjet.connectors.kafka.options import PACKAGES
from sparkjet.connectors.kafka.parts import Marker, Part, PublishError
from sparkjet.connectors.kafka.progress_topic import COMPLETE, ProgressTopic, key_of, reached
from sparkjet.connectors.kafka.publishing import KafkaBrokers, Place, PublishTask
from sparkjet.connectors.kafka.refused_rows import (
    Topic,
    by_topic,
    check_ends,
    check_epoch,
    check_rows,
    check_targets,
    describe,
    measures,
)
from sparkjet.errors import AnalysisError, SinkError
from sparkjet.query_log import logger
from sparkjet.sinks.copies import check_run, origin
from sparkjet.sinks.outbox import Outbox
from sparkjet.sinks.pace import Pace
from sparkjet.sinks.protocol import Guarantee, Handle, Later, TransactionId, Unknown
from sparkjet.sinks.tasks import run_tasks
from sparkjet.snapshots.outbox_entries import files_of
from sparkjet.storage.file_reader import read
from sparkjet.storage.written import ROWS, metrics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from sparkjet.connectors.kafka.staged_settings import StagedSettings
    from sparkjet.storage.directory import Directory

WAY = "kafka-staged"
"""The value by which a handle says how it is committed."""
PROBE = "sparkjet/probe"
BEGUN, ALL = -1, -2
"""Instead of a part's number: that the epoch's first part may be published, and that all of them are published."""
_NAMES = {BEGUN: "begun", ALL: "all"}
_KNOWN = 60.0
"""Seconds for which the brokers' description of a topic is considered valid."""
_ARRIVING = 0.5
"""Seconds that end markers may take to reach the partitions; usually it takes a few milliseconds."""


class StagedKafkaSink(Outbox):
    """Writes the rows of each epoch as records of a topic, exactly once; no transaction waits for a decision.

    The rows wait in the outbox. After the decision they are written part by part in librdkafka's transactions, each
    with a marker in the progress topic that says how far its part has got. After an interruption, it is read there.

    Args:
        settings: The parsed options.
    """

    guarantee = Guarantee.EXACTLY_ONCE
    compares_last = True
    # Dictionaries cost more than they save; compression pays, as everything written is synced and checksummed.
    writer_options: Mapping[str, str] = {"parquet.enable.dictionary": "false"}

    def __init__(self, settings: StagedSettings) -> None:
        super().__init__()
        self._settings = settings
        self._session: SparkSession | None = None
        self._ends = PartitionEnds(settings)
        self._progress: ProgressTopic | None = None
        self._topics: tuple[float, dict[str, Topic]] = 0.0, {}
        self._ids: tuple[TransactionId | None, int] = None, 0
        self._untried: str | None = None
        self._warm: dict[str, KafkaBrokers] = {}
        self._forgets = False
        self._told: set[str] = set()
        self._pace = Pace(settings.progress_interval)
        self.packages = PACKAGES

    def attach(self, directory: Path | Directory, session: SparkSession) -> None:
        """See :meth:`Outbox.attach`."""
        super().attach(directory, session)
        self._session = session

    def check(self, schema: StructType) -> None:
        """See :meth:`Sink.check`; leaves nothing behind except the probe's transactional id."""
        settings = self._settings
        check_columns(schema, settings.topic)
        try:
            if settings.access is not None:
                # librdkafka would retry for a minute, and not say what was wrong.
                with Cluster(settings.access) as cluster:
                    cluster.metadata()
            self._check_transactions()
            topics = self._described([settings.topic] if settings.topic else [])
        except (BrokerError, SinkError) as error:
            raise unusable(error) from error
        if settings.topic is not None and settings.topic not in topics:
            message = (
                f'topic: "{settings.topic}" does not exist, is the brokers\' own, or is not visible to this user. '
                "Create it first, with the partitions and replicas that it needs."
            )
            raise AnalysisError(message)
        keyless = 0 if "key" in schema.fieldNames() else "all"
        try:
            check_targets({}, topics)
            check_ends(topics, settings.takes)
            for name, topic in topics.items():
                check_rows({"keyless": keyless, "record": 0}, name, topic, self._settings.takes, compresses=False)
        except SinkError as error:
            raise AnalysisError(f"start: {error}") from error

    def published_after(self, newest: TransactionId, handle: Handle | None) -> Later:
        """See :meth:`Sink.published_after`; checks the progress topic as well, whose name it knows."""
        if handle is not None and handle.get("way") != WAY:
            message = (
                'commit: this home was written with commit=prepared. Go on with option("commit", "prepared"); or start '
                "from scratch with another checkpointLocation."
            )
            raise AnalysisError(message)
        progress = self._progress_of(newest.query, newest.sink)
        progress.check(self._settings.writers, self._replicas())
        if progress.partitions():
            progress.catch_up()
            if self._settings.repeats:
                # A later epoch that is hidden now, and is not forgotten, would pass for epochs that are still to come.
                self._once_readable(progress, newest)
        if self._settings.repeats:
            self._forgets = progress.later(newest) is not None
            return self._marked(newest)
        if handle is not None:
            self._check_progress(progress, newest, handle)
        later = progress.later(newest)
        if later is not None:
            return (
                f"the progress topic {progress.name!r} says that epoch {later.epoch} was published. Restore the newest "
                "copy of the home, and nothing is lost or repeated. To go on from this one, set option("
                '"onRestoredBackup", "continue") until an epoch with rows is published: the epochs in between are then '
                "written to the topic again."
            )
        return self._marked(newest)

    def _marked(self, newest: TransactionId) -> Later:
        """Later epochs that the outbox says were delivered: it would drop the rows of all epochs up to there."""
        marked = super().published_after(newest, None)
        return None if marked is Unknown.UNKNOWN else marked

    def _check_progress(self, progress: ProgressTopic, newest: TransactionId, handle: Handle) -> None:
        if progress.wrong_for(handle) is not None and progress.partitions():
            self._once_readable(progress, newest)
        wrong = progress.wrong_for(handle)
        if wrong is not None:
            message = (
                f'progressTopic: "{progress.name}" {wrong}. Name the right one. To go on without it, set '
                'option("onRestoredBackup", "continue") until an epoch with rows is published: the last epoch may then '
                "be written twice."
            )
            raise AnalysisError(message)

    def _once_readable(self, progress: ProgressTopic, newest: TransactionId) -> None:
        """Read the progress topic, once readers get all of its markers."""
        where = (progress.name, COMPLETE)
        self._ends.write_lost([where], newest.query, newest.sink)
        if not self._ends.are_read([where], self._settings.patience):
            message = (
                f"progressTopic: a transaction is open in {progress.name}-{COMPLETE}, so that it cannot be known which "
                "epochs were published. kafka-transactions.sh find-hanging and describe-producers show whose it is; "
                "start again once it has ended."
            )
            raise AnalysisError(message)
        progress.catch_up()

    def create(self) -> None:
        """See :meth:`Creating.create`: the progress topic."""
        if self._progress is not None:
            self._progress.create(self._settings.writers, self._replicas())
            if self._forgets:
                self._progress.forget(self._settings.producer)

    def prepare(self, rows: DataFrame, transaction: TransactionId) -> Handle | None:
        """See :meth:`Sink.prepare`; refuses rows that no broker would take."""
        settings = self._settings
        noticed, encoded = Observation(), records(rows, settings.topic)
        observed = [column.alias(name) for name, column in measures(encoded, settings.topic).items()]
        watched = encoded.coalesce(settings.writers).observe(noticed, F.count(F.lit(1)).alias(ROWS), *observed)
        handle = super().prepare(watched, transaction)
        if handle is None:
            return None
        # The topic of the option is a target, too: it may have been deleted since the start.
        found = {"targets": [{"topic": settings.topic, "partition": None}]}
        found |= metrics(noticed, "records of Kafka", SinkError)
        names = sorted({each["topic"] for each in found["targets"] if each["topic"]})
        topics, progress = self._described(names), self._progress_of(transaction.query, transaction.sink)
        each = partial(self._measured, transaction, handle)
        try:
            check_epoch(found, topics, progress, settings, each)
        except SinkError:
            # The description may be a minute old: by now, a topic may have the partition, or take rows of that size.
            self._topics = -_KNOWN, topics
            check_epoch(found, self._described(names), progress, settings, each)
        return self.in_parts(handle | {"headers": "headers" in encoded.columns}, transaction, names)

    def tells(self, clock: int, watermark: int | None) -> bool:
        """See :meth:`Telling.tells`: with ``progressInterval``, at intervals, if the watermark has changed."""
        return self._pace.is_due(clock, watermark)

    def tell(self, transaction: TransactionId) -> Handle:
        """See :meth:`Telling.tell`: a marker alone, after everything in the topic."""
        stored = {"sink": transaction.sink, "box": str(transaction), "epoch": transaction.epoch, "rows": 0, "files": []}
        return self.in_parts(stored, transaction, [] if self._settings.topic is None else [self._settings.topic])

    def _measured(self, transaction: TransactionId, stored: Handle) -> dict[str, Mapping[str, Any]]:
        assert self._session is not None  # noqa: S101 - attach() comes first
        entry = self._entries(transaction.sink).at(stored["box"])
        return by_topic(read(self._session, entry, files_of(stored)))

    def in_parts(self, stored: Handle, transaction: TransactionId, topics: Sequence[str]) -> Handle:
        """The handle of rows in the outbox, with everything needed to publish them."""
        self._pace.note(transaction)
        progress = self._progress_of(transaction.query, transaction.sink)
        entry, complete = self._entries(transaction.sink).at(stored["box"]), progress.complete
        self._untried = stored["box"]
        return stored | {
            "way": WAY,
            "query": transaction.query,
            "ids": self._generation(transaction),
            "parts": parts_of(entry, stored, max(1, progress.partitions() - 1), self._settings.few),
            "topic": self._settings.topic,
            "topics": list(topics),
            "made": {name: each.made for name, each in self._described(topics).items()},
            "progress": progress.name,
            # After that, the markers tell.
            **({"progressMade": progress.made()} if complete is None else {}),
            "after": 0 if complete is None else complete.epoch,
            "watermark": transaction.reached,
            **origin(transaction),
        }

    def deliver(self, entry: Directory, handle: Handle) -> None:
        """See :meth:`Outbox.deliver`."""
        progress = self._progress_of(handle["query"], handle["sink"])
        progress.catch_up()
        if self._is_published(progress, handle):
            return
        handle = handle | {"named": [*handle["topics"], *progress.earlier(handle["topics"])]}
        again, self._untried = self._untried != handle["box"], None
        where = self._written(progress, handle)
        if again:
            # Before anything initializes the ids: after that, nobody knows how their transactions ended.
            self._ends.write_lost(where, handle["query"], handle["sink"])
        try:
            if not handle["parts"]:
                self._publish(progress, entry, handle, ALL, again=again, completes=True)
            elif len(handle["parts"]) == 1:
                self._publish(progress, entry, handle, 0, again=again, completes=True)
            else:
                self._publish_several(progress, entry, handle, again=again)
        except (PublishError, SinkError) as error:
            self._renew()
            progress.catch_up()
            self._check_copies(progress, handle)
            raise SinkError(str(error)) from error
        progress.note(Marker(handle["epoch"], handle["box"], handle.get("run", ""), 0), handle["named"])
        try:
            self._confirm(progress, handle)
        except BaseException:
            # Nobody asks again once the epoch is published: the next transaction would share an end that was lost.
            self._renew()
            raise

    def has_arrived(self, handle: Handle) -> bool:
        """See :meth:`Outbox.has_arrived`: markers are committed with the rows."""
        progress = self._progress_of(handle["query"], handle["sink"])
        progress.catch_up()
        return self._is_published(progress, handle)

    def _is_published(self, progress: ProgressTopic, handle: Handle) -> bool:
        self._check_copies(progress, handle)
        found = progress.complete
        return found is not None and (found.epoch > handle["epoch"] or found.name == handle["box"])

    def _check_copies(self, progress: ProgressTopic, handle: Handle) -> None:
        for found in progress.newest.values():
            if not self._settings.repeats:
                check_run(handle, found.epoch, found.run, f"the progress topic {progress.name!r}")

    def _publish(
        self,
        progress: ProgressTopic,
        entry: Directory,
        handle: Handle,
        number: int,
        *,
        again: bool,
        completes: bool = False,
    ) -> None:
        """Publish a part, or that all are begun or published, in this process; keeps its producer for the next one."""
        part, place = self._part(progress, handle, number, completes=completes)
        rows: publishing.Rows | None = None
        if number >= 0:
            rows = partial(publishing.rows_of, [partial(entry.open, name) for name in names_of(handle, number)])
        brokers = self._warm.pop(place.name, None)
        if brokers is None:
            brokers = KafkaBrokers(place, rows)
        brokers.turn_to(place, rows)
        publishing.run(part, brokers, place, again=again)
        self._warm[place.name] = brokers

    def _publish_several(self, progress: ProgressTopic, entry: Directory, handle: Handle, *, again: bool) -> None:
        # Of two copies of a home only one may begin; with a single part, its marker decides which.
        self._publish(progress, entry, handle, BEGUN, again=again)
        if entry.path is not None:
            self._publish_in_tasks(progress, entry, handle, again=again)
        else:
            for number in range(len(handle["parts"])):
                self._publish(progress, entry, handle, number, again=again)
        # After the marker with which it began, whose end marker may take a moment, or be lost.
        epochs = [(progress.name, COMPLETE)]
        if not self._ends.are_read(epochs, _ARRIVING):
            self._ends.write_lost(epochs, handle["query"], handle["sink"])
            # A kept producer would take markers that readers do not get yet for another publisher's; a new one waits.
            self._warm.clear()
        progress.catch_up()
        self._publish(progress, entry, handle, ALL, again=again, completes=True)

    def _publish_in_tasks(self, progress: ProgressTopic, entry: Directory, handle: Handle, *, again: bool) -> None:
        assert self._session is not None  # noqa: S101 - attach() comes first
        count = len(handle["parts"])
        each = {}
        for number in range(count):
            part, place = self._part(progress, handle, number)
            each[number] = part, place, [str(entry.below(name)) for name in names_of(handle, number)]
        numbers = self._session.range(count, numPartitions=count)
        run_tasks(
            numbers, PublishTask(each, again).task, (native, producing, parts, publishing), PublishError, PACKAGES
        )

    def _part(
        self, progress: ProgressTopic, handle: Handle, number: int, *, completes: bool = False
    ) -> tuple[Part, Place]:
        settings, query, sink = self._settings, handle["query"], handle["sink"]
        limits = [each.largest for each in self._described(handle["topics"]).values() if each.largest is not None]
        rows = 1 if number < 0 else handle["parts"][number][1]
        keys = [] if number == ALL else [(number + 1, key_of(query, sink, number))]
        if completes:
            keys.append((COMPLETE, key_of(query, sink)))
        part = Part(handle["epoch"], handle["box"], handle.get("run", ""), handle.get("since", 0), rows)
        place = Place(
            settings.producer_for(min(limits, default=None)),
            settings.client,
            f"sparkjet/{query}/{sink}/{handle['ids']}/{_NAMES.get(number, number)}",
            progress.name,
            tuple(keys),
            rows,
            handle["topic"],
            tuple((name, self._ends.made.get(name, "")) for name in handle["named"]),
            handle.get("watermark"),
            tuple(progress.positions.get((progress.name, where), 0) for where, _ in keys),
            progress.newest.get(keys[0][1]),
            number >= 0 and handle.get("headers", True),
            settings.longest,
            settings.patience,
        )
        return part, place

    def _confirm(self, progress: ProgressTopic, handle: Handle) -> None:
        """Check that readers get everything that was written; if not, the next epoch uses other transactional ids.

        If an end marker was lost, the next transaction of the same id would share its end with the previous one.
        """
        where = self._written(progress, handle)
        if not self._ends.are_read(where, _ARRIVING):
            self._renew()
            self._ends.write_lost(where, handle["query"], handle["sink"], is_routine=True)

    def _written(self, progress: ProgressTopic, handle: Handle) -> list[tuple[str, int]]:
        """Every partition in which the transactions of an epoch may be open."""
        found = self._ends.of(handle["named"])
        self._tell_of_new_topics(handle)
        return [*found, *((progress.name, number) for number in range(len(handle["parts"]) + 1))]

    def _tell_of_new_topics(self, handle: Handle) -> None:
        for name, made in self._ends.made.items():
            if handle.get("made", {}).get(name, made) != made and made not in self._told:
                self._told.add(made)
                logger.warning(
                    "Kafka: topic %r was deleted and created again after epoch %d was prepared. What had been "
                    "published there, of this epoch too, is gone with the old one; the rest is in the new one.",
                    name,
                    handle["epoch"],
                )

    def _renew(self) -> None:
        self._ids = self._ids[0], self._ids[1] + 1
        self._warm.clear()

    def _generation(self, transaction: TransactionId) -> str:
        driver = self._ids[0]
        if driver is None or (driver.query, driver.sink, driver.takeover, driver.run) != (
            transaction.query, transaction.sink, transaction.takeover, transaction.run,
        ):  # fmt: skip
            self._ids = transaction, 0
        return f"{transaction.takeover:06d}.{self._ids[1]}-{transaction.run}"

    def _progress_of(self, query: str, sink: str) -> ProgressTopic:
        name = self._settings.progress_topic(query, sink)
        found = self._progress
        if found is None or not found.is_of(name, query, sink):
            found = self._progress = ProgressTopic(self._settings.client, name, query, sink, self._settings.patience)
        return found

    def _described(self, names: Sequence[str]) -> dict[str, Topic]:
        since, topics = self._topics
        if time.monotonic() > since + _KNOWN or not topics.keys() >= set(names):
            before = topics
            with reached("topics of the rows"):
                topics = describe(self._ends.admin, names, self._settings.patience) if names else {}
            if any(each.partitions != before.get(name, each).partitions for name, each in topics.items()):
                # Producers keep using the partitions that they know, and would refuse rows for others.
                self._warm.clear()
            self._topics = time.monotonic(), topics
        return {name: topics[name] for name in names if name in topics}

    def _replicas(self) -> int:
        """The replicas of the destination; -1 for the brokers' default if that is not known."""
        return max((each.replicas for each in self._topics[1].values()), default=-1)

    def _check_transactions(self) -> None:
        with reached("transactions"):
            probe = confluent_kafka.Producer({**self._settings.producer, "transactional.id": PROBE, "log_level": 0})
            probe.init_transactions(self._settings.patience)
