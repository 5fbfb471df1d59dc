"""Forks: another query that continues from a pinned record, alongside the original one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from sparkjet.api.checks import checked, output_names
from sparkjet.api.sink_formats import ChosenSink
from sparkjet.api.writer import StreamWriter, all_settings
from sparkjet.connectors.grid.options import GRID_JOURNAL
from sparkjet.connectors.grid.unregistered import unregistered, unregistered_count
from sparkjet.connectors.spark_formats import SCRATCH
from sparkjet.engine.rerunning import RecordedEpochs, last_epoch
from sparkjet.errors import AnalysisError
from sparkjet.options import (
    ADOPT,
    ADOPT_REPLAY,
    CHECKPOINT_LOCATION,
    DEAD_LETTERS_PATH,
    EARLY_RESULTS_PERIOD,
    IS_EARLY,
    IS_SHED,
    LATE_ROWS_PATH,
    PATH,
    PIN_RETENTION,
    PUBLISH_AFTER,
    QUERY_ID,
    QUERY_OPTIONS,
    REFILL_FROM,
    SNAPSHOT_BACKUP,
    SNAPSHOT_BACKUP_EVERY,
    SNAPSHOT_STORE,
    Options,
)
from sparkjet.plan.spark_sources import acknowledging_source, source_names, taking_sources
from sparkjet.sinks.manifest import MANIFEST_DIRECTORY
from sparkjet.snapshots import DirectoryStore
from sparkjet.snapshots.copying import fork_pinned, origin_of
from sparkjet.snapshots.record_log import RecordLog, newest_record
from sparkjet.storage.schemes import directory_at, is_within, scheme_of, session_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparkjet.api.launch import Launch
    from sparkjet.api.output_settings import OutputSettings
    from sparkjet.api.query import StreamingQuery

_OF_A_HOME = {
    *(CHECKPOINT_LOCATION, SNAPSHOT_STORE, QUERY_ID, SNAPSHOT_BACKUP, SNAPSHOT_BACKUP_EVERY, PIN_RETENTION),
    PUBLISH_AFTER,
    REFILL_FROM,
    ADOPT,
    ADOPT_REPLAY,
}
_PLACES = (PATH, LATE_ROWS_PATH, DEAD_LETTERS_PATH)
_KEPT = [*(option for option in QUERY_OPTIONS if option not in _OF_A_HOME), EARLY_RESULTS_PERIOD, IS_EARLY, IS_SHED]


@dataclass(frozen=True)
class Fork:
    """A query that begins where another one was pinned, with its own id, home and outputs.

    Attributes:
        home: Its home.
        outputs: The directory below which each of its outputs is a directory of Parquet files.
        query: Its id.
        epoch: The epoch of the pinned record, after which it continues.
        parent: The home of the original query.
        pin: Name of the pin.
    """

    home: str
    outputs: str
    query: str
    epoch: int
    parent: str
    pin: str

    def start(
        self,
        *writers: StreamWriter,
        lateRows: StreamWriter | Sequence[StreamWriter] = (),
        deadLetters: StreamWriter | Sequence[StreamWriter] = (),
        queryName: str | None = None,
    ) -> StreamingQuery:
        """Start the query, or continue it, like :func:`sparkjet.start`, with other outputs.

        The writers determine which rows there are: whatever their sinks, including functions of ``foreachBatch``, the
        rows go to directories below :attr:`outputs` instead, named like the outputs in the progress (``results``,
        ``results1``, ``late``, ``dead`` …). So no destination of the original query is touched.

        Args:
            writers: As in :func:`sparkjet.start`. Their home is this fork's.
            lateRows: As in :func:`sparkjet.start`; the option ``lateRowsPath`` is replaced as well.
            deadLetters: As in :func:`sparkjet.start`; the option ``deadLettersPath`` is replaced as well.
            queryName: Name of the query.

        Raises:
            AnalysisError: If anything is set wrongly; or a source is a queue, whose messages it would acknowledge, or a
                journal that was not read yet when the query was pinned. Nothing has been started or changed.
            RecoveryError: If the query does not fit the pinned state.
        """
        return self._launch(writers, lateRows, deadLetters, queryName).start()

    def replay(
        self,
        *writers: StreamWriter,
        lateRows: StreamWriter | Sequence[StreamWriter] = (),
        deadLetters: StreamWriter | Sequence[StreamWriter] = (),
        until: int | str | None = None,
    ) -> Replayed:
        """Run the epochs that the first query has had since the pin, and return when they are committed.

        Each epoch has the rows that it had then, from the same offsets of the sources, and the same clock reading; so
        days of input are tried in minutes. The first query may be running. When called again, even after a crash, it
        continues after the last epoch that it has run; :meth:`start` then continues with new rows.

        Args:
            writers: As in :meth:`start`, from the code to be tried.
            lateRows: As in :meth:`start`.
            deadLetters: As in :meth:`start`.
            until: The last epoch, by its number or as the epoch of another pin of the first query; by default the
                newest recorded one.

        Raises:
            AnalysisError: As in :meth:`start`; there is no such epoch; or the fork was started before, and has read its
                sources by itself.
            RecoveryError: The query does not fit the pinned state, or the records are gone with the pin.
            SourceError: A source no longer has the rows.
        """
        launch = self._launch(writers, lateRows, deadLetters, None)
        session = launch.plan.source.sparkSession
        store = DirectoryStore(directory_at(self.parent, "parent", lambda: session).below("snapshots"))
        log, origin = RecordLog(store), origin_of(launch.home)
        if origin is None:
            raise AnalysisError(f'replay: "{self.home}" is no longer a fork. Make a new one with sj.fork(…).')
        last = last_epoch(log, self.epoch, until)
        reran = launch.rerun(RecordedEpochs(log, store, origin.slot, self.epoch, self.pin, last))
        return Replayed(reran.epochs, reran.last, reran.rows, self)

    def _launch(
        self,
        writers: Sequence[StreamWriter],
        lateRows: StreamWriter | Sequence[StreamWriter],
        deadLetters: StreamWriter | Sequence[StreamWriter],
        name: str | None,
    ) -> Launch:
        given = [all_settings(kind) for kind in (writers, lateRows, deadLetters)]
        for each in (settings for kind in given for settings in kind):
            self._check_sources(each)
            self._check_beside(each)
        results, dropped, failed = (
            [self._aside(each, name) for each, name in zip(kind, output_names(what, len(kind)), strict=True)]
            for kind, what in zip(given, ("results", "late", "dead"), strict=True)
        )
        for each in (*results, *dropped, *failed):
            self._check_apart(each)
        return checked(results, dropped, failed, name=name, home=self.home)

    def _aside(self, settings: OutputSettings, name: str) -> OutputSettings:
        given = Options(settings.options)
        options = {**given.among(_KEPT), PATH.name: f"{self.outputs}/{name}"}
        for option, place in ((LATE_ROWS_PATH, "late"), (DEAD_LETTERS_PATH, "dead")):
            if option in given:
                options[option.name] = f"{self.outputs}/{place}-of-{name}"
        return replace(settings, sink=ChosenSink(SCRATCH), options=options, partition_by=(), name=None)

    def _check_sources(self, settings: OutputSettings) -> None:
        frame = settings.chain.source
        source = acknowledging_source(frame, {GRID_JOURNAL}) or next(iter(taking_sources(frame)), None)
        if source is not None:
            message = f"fork: {source} discards what has been read: the query that this comes from would lack it."
            raise AnalysisError(message)
        journals = source_names(frame).count(GRID_JOURNAL)
        if not journals:
            return
        home = directory_at(self.home, "home", lambda: frame.sparkSession)
        if unregistered_count(newest_record(home, "fork")[1]) < journals:
            message = (
                f'fork: format("{GRID_JOURNAL}") would register a reader, for which the journal keeps rows, as the '
                f'query had not read it when it was pinned as "{self.pin}". Pin the query later, and fork that.'
            )
            raise AnalysisError(message)

    def _check_beside(self, settings: OutputSettings) -> None:
        """Refuse to write where a writer would: the first query may not have written there yet."""
        options, session = Options(settings.options), settings.chain.source.sparkSession
        aside = directory_at(self.outputs, "outputs", lambda: session).resolved()
        for place in filter(None, map(options.get, _PLACES)):
            if scheme_of(place) == scheme_of(self.outputs):
                given = directory_at(place, "outputs", lambda: session).resolved()
                if is_within(given, aside) or is_within(aside, given):
                    message = (
                        f'outputs: "{aside}" is not apart from "{given}", which a writer names. Give '
                        "sj.fork(…, outputs=…) a separate directory."
                    )
                    raise AnalysisError(message)

    def _check_apart(self, settings: OutputSettings) -> None:
        """Refuse places that have other files, such as those to which the first query writes."""
        for option in _PLACES:
            location = Options(settings.options).get(option)
            if location is None:
                continue
            place = directory_at(location, "outputs", lambda: settings.chain.source.sparkSession)
            names, queries = {*place.names()}, {*place.below(MANIFEST_DIRECTORY).names()}
            # A run that was killed may have left only the directory of manifests.
            if queries - {self.query} or (names - {MANIFEST_DIRECTORY} and not queries):
                message = (
                    f'outputs: "{place}" has files of something else, perhaps of the query that it comes '
                    "from. Give sj.fork(…, outputs=…) a separate directory."
                )
                raise AnalysisError(message)


@dataclass(frozen=True)
class Replayed:
    """The result of :meth:`Fork.replay`.

    Attributes:
        epochs: The number of epochs that it has run; 0 if it had run all of them before.
        last: The last epoch that the fork has now.
        rows: Rows of these epochs, by the name of their output.
        fork: The fork.
    """

    epochs: int
    last: int
    rows: Mapping[str, int]
    fork: Fork


def fork(
    home: str | Path,
    at: str,
    to: str | Path,
    outputs: str | Path | None = None,
    session: SparkSession | None = None,
) -> Fork:
    """Begin another query where one was pinned (:meth:`StreamingQuery.snapshot`); the original may be running.

    Copies everything that the pinned record names into a new home, on any store. When called again, as by the next run
    of a program, it returns the existing fork, even once the pin is removed. Sources are read from the offsets of that
    record.

    Args:
        home: The home of the query, as its ``checkpointLocation``; or ``grid://host:port,…/name``.
        at: Name of the pin.
        to: The home of the fork; it has no records, or those of this fork.
        outputs: The directory of its outputs, which all executors can reach and nobody else writes to; ``to`` with
            ``/outputs`` by default.
        session: For file systems that only Hadoop reads; the active one by default.

    Raises:
        AnalysisError: There is no such pin, or a place cannot be used.
        RecoveryError: The query reads queues, or something that the record names is missing.
    """
    for argument, given in (("home", home), ("at", at), ("to", to), ("outputs", outputs)):
        if not isinstance(given, str | Path) and (argument, given) != ("outputs", None):
            raise AnalysisError(f"{argument}: {given!r} is not text. See help(sj.fork).")
    if outputs is None and str(to).startswith("grid:"):
        message = "outputs: a grid has no place for the files of a fork. Give a directory that all executors reach."
        raise AnalysisError(message)
    aside = f"{to}/outputs" if outputs is None else str(outputs)
    directory_at(aside, "outputs", lambda: session_for("fork", session))
    source = directory_at(str(home), "home", lambda: session_for("fork", session))
    target = directory_at(str(to), "to", lambda: session_for("fork", session))
    origin = fork_pinned(source, target, at, unregistered)
    return Fork(str(to), aside, origin.query, origin.epoch, str(home), origin.pin)
