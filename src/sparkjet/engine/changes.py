"""Changes: the windows whose current state an output in update mode has not been sent."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from sparkjet.catalyst.columns import quoted
from sparkjet.state.partitions import release
from sparkjet.windows import SessionWindow

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from sparkjet.engine.arrival import Arrival
    from sparkjet.plan.windowed_aggregation import WindowedAggregation

_KEY = "_sparkjet_changed_key"
_TIME = "_sparkjet_changed_at"


class Changes:
    """The keys and times of the rows that have been accepted since the output was last sent; on the driver.

    They are kept only in memory: at a start, and after a failed epoch, every window counts as changed.

    Args:
        aggregation: The aggregation with these windows.
    """

    def __init__(self, aggregation: WindowedAggregation) -> None:
        self._aggregation = aggregation
        self._window = aggregation.window
        self._all = True
        self._held: DataFrame | None = None
        self._new: DataFrame | None = None

    def arrived(self, arrivals: Iterable[Arrival]) -> None:
        """Note the rows that an epoch has accepted."""
        self._new = None
        for arrival in arrivals:
            if arrival.segment is not None:
                # A frame is named by its exclusive end.
                time = F.col("start") if isinstance(self._window, SessionWindow) else F.col("frame") - 1
                keys = [F.col(name).alias(f"{_KEY}{i}") for i, name in enumerate(self._aggregation.key_names)]
                self._new = arrival.segment.partials.select(*keys, time.alias(_TIME))

    def of(self, rows: DataFrame) -> DataFrame | None:
        """The aggregation's rows that have changed, None if none can have."""
        if self._all:
            return rows
        changed = [each for each in (self._held, self._new) if each is not None]
        if not changed:
            return None
        found = changed[0] if len(changed) == 1 else changed[0].union(changed[1])
        return rows.join(found.hint("shuffle_hash") if self._aggregation.keys else found, self._same, "left_semi")

    @property
    def waiting(self) -> bool:
        """Whether anything may have changed in earlier epochs."""
        return self._all or self._held is not None

    def sent(self) -> None:
        """Note that the output has been sent everything that has changed."""
        self._all = False
        self._hold(None)

    def kept(self) -> None:
        """Note that the output has been sent only final rows: remember the rest."""
        if not self._all and self._new is not None:
            found = self._new if self._held is None else self._held.union(self._new)
            # Now: the partial rows may be merged before the next sending.
            self._hold(found.distinct().localCheckpoint())

    def forget(self) -> None:
        """Forget what was sent."""
        self._all = True
        self._hold(None)

    def _hold(self, rows: DataFrame | None) -> None:
        if self._held is not None:
            release(self._held)
        self._held, self._new = rows, None

    @property
    def _same(self) -> Column:
        names = [F.col(quoted(key.name)) for key in self._aggregation.keys]
        conditions = [name.eqNullSafe(F.col(f"{_KEY}{i}")) for i, name in enumerate(names)]
        if not (isinstance(self._window, SessionWindow) and self._window.max_duration is not None):
            # A maximum duration cuts sessions by their first event, so that any session of a key may have changed.
            window = F.col(quoted(self._window.name))
            conditions.append(F.unix_micros(window.start) <= F.col(_TIME))
            conditions.append(F.col(_TIME) < F.unix_micros(window.end))
        return reduce(and_, conditions, F.lit(True))
