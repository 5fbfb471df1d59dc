"""Runs: each is a run of one query, as reported by its driver or its records."""

from __future__ import annotations

import math
import re
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from sparkjet.errors import SparkjetError
from sparkjet.monitoring.history import History
from sparkjet.query_log import without_users

ENDED = 20
"""Number of ended runs that are still shown."""
GRID_SECONDS = 10.0
"""Seconds between questions to the grid about its number of members, while somebody wants to know."""
_RAISED = re.compile(r"[A-Za-z_][\w.]*: ")
_CONDITION = re.compile(r"\[([A-Z][A-Z0-9_]*(?:\.[A-Z0-9_]+)*)\]")


@dataclass
class Run:
    """One run of a query, or what its home says of it; written by one thread, read by any.

    Attributes:
        query: Identity of the query, the same in every run.
        run: Identity of this run.
        name: The user's name for the query.
        started_at: Microseconds since 1970.
        recorded: Whether it is known only from its records, which do not tell whether it is running or how long phases
        take.
        history: The reports of its epochs.
        ended_at: When it ended; None while it is running or if nobody knows.
        waiting: Returns the number of decided transactions that wait for their sinks; None if known only from records.
        failure: The error it failed with, in one line; for a recorded run, what keeps its records from being read.
        condition: The error condition of that error, if it has one, as Spark's and ours do.
        grid: Returns the state of the grid that has its home, if any: its number of members, and what they hold.
        shared: Whether another query of the driver has its name: then its label includes its id.
    """

    query: str
    run: str
    name: str | None
    started_at: int
    recorded: bool = False
    history: History = field(default_factory=History)
    ended_at: int | None = None
    waiting: Callable[[], int] | None = None
    failure: str | None = None
    condition: str | None = None
    grid: Callable[[], dict[str, Any]] | None = None
    shared: bool = False
    _members: list[int] = field(default_factory=list)
    _asked: float = -math.inf
    _asking: threading.Lock = field(default_factory=threading.Lock)

    @property
    def label(self) -> str:
        """Its name for people: the query's name, or the beginning of its id."""
        if self.name is None:
            return self.query[:8]
        return f"{self.name} ({self.query[:8]})" if self.shared else self.name

    @property
    def state(self) -> str:
        """``running``, ``ended``, ``failed`` or ``recorded``."""
        if self.recorded:
            return "recorded"
        if self.ended_at is None:
            return "running"
        return "ended" if self.failure is None else "failed"

    def members(self) -> int | None:
        """The number of members that answered last in the grid with its home; None without a grid, or if never asked.

        Asked again in the background, as paused members are waited for, and a scrape must not wait.
        """
        ask = self.grid
        if ask is not None and time.monotonic() >= self._asked + GRID_SECONDS and self._asking.acquire(blocking=False):
            self._asked = time.monotonic()
            threading.Thread(target=self._ask, args=(ask,), name="sparkjet-grid-members", daemon=True).start()
        return self._members[-1] if self._members and ask is not None else None

    def _ask(self, ask: Callable[[], dict[str, Any]]) -> None:
        try:
            found = sum("error" not in each and not each["frozen"] for each in ask()["members"])
        except (SparkjetError, OSError):
            # No answer.
            found = 0
        finally:
            self._asking.release()
        self._members[:] = [found]

    def end(self, now: int, failure: BaseException | None) -> None:
        """Note the end; only the failure's first line is kept, as the error would keep the query's state alive."""
        if failure is not None:
            self.fail(failure)
        self.grid = None
        self.ended_at = now

    def fail(self, failure: BaseException) -> None:
        """Note the error that it failed with."""
        self.failure, self.condition = in_one_line(failure), condition_of(failure)


def in_one_line(error: BaseException) -> str:
    """An error's type and the first line of its message; for one from a Python worker, also what was raised there."""
    try:
        lines = str(error).strip().splitlines()
    except Exception:  # noqa: BLE001 - one of the JVM's asks it for its message, and the JVM may be gone
        lines = []
    if not lines:
        return f"{type(error).__name__}: no message"
    told = lines[0]
    if told.endswith(":"):
        # The traceback of a worker follows, perhaps with the JVM's below it; its end names the row or the key.
        raised = [each for each in lines[1 : _end_of_python(lines)] if _RAISED.match(each)]
        told = f"{told} {raised[-1]}" if raised else told
    return f"{type(error).__name__}: {without_users(told)}"


def _end_of_python(lines: Sequence[str]) -> int:
    return next((n for n, line in enumerate(lines) if line.startswith(("JVM stacktrace", "\tat "))), len(lines))


def condition_of(error: BaseException) -> str | None:
    """The error condition of one of our errors, or of Spark's."""
    if isinstance(error, SparkjetError):
        return error.condition
    found = _CONDITION.search(in_one_line(error))
    return None if found is None else found[1]


class Runs:
    """Runs that can be watched: all that are running, and the last ones that have ended; thread-safe."""

    def __init__(self) -> None:
        self._runs: dict[str, Run] = {}
        self._lock = threading.Lock()

    def add(self, run: Run) -> None:
        """Add a run; replaces one with the same identity.

        Sessions of one driver may have queries of the same name, and reports about one must not be taken for the
        other's: the label of the later one includes its id, until it ends.
        """
        with self._lock:
            others = (each for each in self._runs.values() if each.query != run.query and each.ended_at is None)
            run.shared = run.name is not None and any(each.name == run.name for each in others)
            self._runs[run.run] = run
            ended = [each.run for each in self._runs.values() if each.ended_at is not None]
            for each in ended[:-ENDED]:
                del self._runs[each]

    def all(self) -> list[Run]:
        """All runs: running ones, then ended ones, newest first, whatever the clock said at their start."""
        with self._lock:
            newest_first = list(self._runs.values())[::-1]
        return sorted(newest_first, key=lambda each: each.ended_at is not None)

    def get(self, run: str) -> Run | None:
        """The run with this identity."""
        with self._lock:
            return self._runs.get(run)


DRIVER = Runs()
"""The runs of this driver: each query that starts adds its run."""
