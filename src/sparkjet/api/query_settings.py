"""The settings of a query as a whole, from its options, which are read once, here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import quote

from sparkjet.engine.on_change import OnChange
from sparkjet.engine.state_limit import StateLimit
from sparkjet.errors import AnalysisError
from sparkjet.options import (
    ADOPT,
    ADOPT_REPLAY,
    AUTO,
    CHECKPOINT_LOCATION,
    CLOSE_WINDOWS_AT_END,
    MAX_STATE_BYTES,
    MAX_STATE_ENTRIES,
    ON_CHANGE,
    ON_STATE_LIMIT,
    OVERLAP_EPOCHS,
    PIN_RETENTION,
    PROCESSING_GUARANTEE,
    PUBLISH_AFTER,
    QUERY_ID,
    REFILL_FROM,
    SNAPSHOT_BACKUP,
    SNAPSHOT_BACKUP_EVERY,
    SNAPSHOT_STORE,
    STATE_PARTITIONS,
    Options,
)
from sparkjet.sinks.protocol import Guarantee
from sparkjet.storage.schemes import scheme_of


@dataclass(frozen=True)
class QuerySettings:
    """The values of a query's options; those that depend on its plan are judged where the plan is known.

    Attributes:
        guarantee: The option ``processingGuarantee``.
        close_at_end: The option ``closeWindowsAtEnd``.
        overlap: The option ``overlapEpochs``: auto, true or false.
        partitions: The option ``statePartitions``; None for as many as the application has cores.
        location: The option ``checkpointLocation``.
        store: The option ``snapshotStore``.
        identity: The option ``queryId``.
        backup: The option ``snapshotBackup``.
        backup_every: The option ``snapshotBackupEvery``, in epochs.
        pin_retention: The option ``pinRetention``, in microseconds; None for forever.
        on_change: The option ``onChange``.
        publish_after: The option ``publishAfter``.
        refill_from: The option ``refillFrom``.
        adopt: The option ``adopt``.
        adopt_replay: The option ``adoptReplay``.
        limit: The options ``maxStateEntries``, ``maxStateBytes`` and ``onStateLimit``.
    """

    guarantee: Guarantee = Guarantee.EXACTLY_ONCE
    close_at_end: bool = False
    overlap: str = AUTO
    partitions: int | None = None
    location: str | None = None
    store: str | None = None
    identity: str | None = None
    backup: str | None = None
    backup_every: int = 100
    pin_retention: int | None = None
    on_change: OnChange = field(default_factory=OnChange)
    publish_after: str | None = None
    refill_from: str | None = None
    adopt: str | None = None
    adopt_replay: bool = False
    limit: StateLimit = field(default_factory=StateLimit)

    @staticmethod
    def of(options: Options, trigger: Mapping[str, str | bool]) -> QuerySettings:
        """The settings in some options.

        Raises:
            AnalysisError: One is wrong, or needs another one that is missing.
        """
        settings = QuerySettings(
            Guarantee(options[PROCESSING_GUARANTEE]),
            options[CLOSE_WINDOWS_AT_END],
            options[OVERLAP_EPOCHS],
            options[STATE_PARTITIONS],
            options[CHECKPOINT_LOCATION],
            options[SNAPSHOT_STORE],
            options[QUERY_ID],
            options[SNAPSHOT_BACKUP],
            options[SNAPSHOT_BACKUP_EVERY],
            options[PIN_RETENTION],
            OnChange.of(options[ON_CHANGE]),
            options[PUBLISH_AFTER],
            options[REFILL_FROM],
            options[ADOPT],
            options[ADOPT_REPLAY],
            StateLimit(options[MAX_STATE_ENTRIES], options[MAX_STATE_BYTES], sheds=options[ON_STATE_LIMIT] == "shed"),
        )
        if settings.adopt_replay and (settings.adopt is None or settings.publish_after is not None):
            message = (
                "adoptReplay: windows are rebuilt after a checkpoint of Spark's, not after another query. Set "
                "adopt, and leave publishAfter out."
            )
            raise AnalysisError(message)
        if settings.close_at_end and not trigger.get("availableNow"):
            raise AnalysisError("closeWindowsAtEnd needs trigger(availableNow=True): other queries have no end.")
        if settings.close_at_end and settings.publish_after is not None:
            message = (
                "closeWindowsAtEnd: with publishAfter the other query says up to where windows close, and the rest of "
                "the input would be lost. Leave closeWindowsAtEnd out."
            )
            raise AnalysisError(message)
        if settings.identity is not None and settings.store is None:
            raise AnalysisError("option: queryId names a query in a grid: set snapshotStore too, or leave it out.")
        if settings.backup is None and SNAPSHOT_BACKUP_EVERY in options:
            message = "option: snapshotBackupEvery needs snapshotBackup, the home to copy to. Set both, or none."
            raise AnalysisError(message)
        return settings

    @property
    def of_stages(self) -> dict[str, bool]:
        """The options that only queries with stages have, and whether they ask for anything."""
        return {
            "closeWindowsAtEnd": self.close_at_end,
            "overlapEpochs": self.overlap == "true",
            "statePartitions": self.partitions is not None,
            "maxStateEntries": self.limit.entries is not None,
            "maxStateBytes": self.limit.size is not None,
        }

    @property
    def place_option(self) -> str:
        """The option that gives the location of the home."""
        return "checkpointLocation" if self.store is None else "snapshotStore"

    def home(self, name: str | None) -> str | None:
        """The home of a query of this name, if the options give one.

        Raises:
            AnalysisError: It is in a grid, and has no name there.
        """
        if self.store is None:
            return self.location
        identity = self.identity or self.location or name
        if identity is None:
            message = (
                'start: snapshotStore needs a name of the query in the grid: set option("queryId", "…"), or '
                "checkpointLocation or queryName, which it takes otherwise."
            )
            raise AnalysisError(message)
        if self.store != "grid" and scheme_of(self.store) != "grid":
            message = (
                f'option: snapshotStore="{self.store}" is neither grid nor grid://host:port,…; any other place for '
                "snapshots is given as the checkpointLocation."
            )
            raise AnalysisError(message)
        address = "grid://" if self.store == "grid" else self.store.rstrip("/")
        return f"{address}/{quote(identity.strip('/'), safe='/')}"
