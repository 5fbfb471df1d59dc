"""A trial of a cell: two runs, the second one in another environment, and a third where that one was refused."""

from __future__ import annotations

import os
import re
import resource
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.errors import StreamingQueryException

import sparkjet as sj
from sparkjet.errors import SparkjetError, UnsettledError
from tests.environment.cells import PATHS, USUAL, Cell
from tests.environment.destinations import DESTINATIONS, Found, Servers, Table, Topic, plain
from tests.environment.queries import LATE, QUERIES, Input
from tests.environment.session_settings import changed, session_with
from tests.mounts import SmallDisk, small_disk
from tests.protocol.test_sessions import STRANGE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.grid.processes import MemberProcess

HOUR = 3600 * 1_000_000
STEPS = {"hour ahead": HOUR, "hour back": -HOUR}
DISKS = {
    "full home": "home",
    "home fills": "home",
    "output fills": "out",
    "late rows fill": "late",
    "dead letters fill": "dead",
    "full tmp": "tmp",
}
"""Places that have a small disk to themselves."""
DATABASES: Mapping[str, Mapping[str, str]] = {
    "sessions": {name: values[0] for name, values in STRANGE.items()} | {"client_encoding": "LATIN1"},
    "read only": {"default_transaction_read_only": "on"},
    "impatient": {"statement_timeout": "1ms", "lock_timeout": "1ms"},
}
"""Settings of a database."""
TOPICS: Mapping[str, Mapping[str, str]] = {
    # Less than a record of ours, more than the broker's own marks of ended transactions.
    "small records": {"max.message.bytes": "90"},
    "other topic": {"message.timestamp.type": "LogAppendTime", "compression.type": "zstd"},
}
"""Settings of a topic."""
SPACE = "No space left on device: .*othing is lost.*Free space there"
REFUSALS: Mapping[str, str] = {
    "full home": SPACE,
    "home fills": SPACE,
    "output fills": SPACE,
    "late rows fill": SPACE,
    "dead letters fill": SPACE,
    "full tmp": SPACE,
    "no token": "token.*cannot be read: No such file",
    # By tasks in new processes; others have read it.
    "token goes": "token.*cannot be read: No such file",
    "no handles": "Too many open files.*othing is lost.*ulimit -n",
    "read only": "read-only",
    "impatient": "timeout",
    "small records": "max.message.bytes",
    "no slots": "Raise max_prepared_transactions",
}
"""Parts of an error that names the cause of a refusal and the way out; the second run may succeed, too."""


LUCKY = frozenset({"impatient", "token goes"})
"""Cells that may be refused or not: a server may answer within a millisecond, a driver that has the token goes on."""


@dataclass
class WrongClock:
    """The machine's clock, set ahead or back."""

    ahead: int = 0
    step: int = 0
    """By how much it is set when it has been read once more: a start has read it, and the epochs see another one."""
    seen: bool = False
    """Whether it has been read while it was wrong."""

    def now(self) -> int:
        """See :class:`sparkjet.Clock`."""
        found = time.time_ns() // 1000 + self.ahead
        self.seen = self.seen or self.ahead != 0
        self.ahead, self.step = self.ahead + self.step, 0
        return found


@dataclass
class Trial:
    """The runs of one query."""

    cell: Cell
    spark: SparkSession
    place: Path
    servers: Servers
    grid: MemberProcess
    clock: WrongClock = field(default_factory=WrongClock)
    token: str = ""
    steps: list[Callable[[], None]] = field(default_factory=list)
    """Called when the next batch begins."""

    def __post_init__(self) -> None:
        self.token = str(self.grid.token)
        self.inputs = Input(self.place / "in")
        # Mounted, created and looked at under its own name.
        self.folder = self.place / PATHS[self.cell.path]
        self.folder.mkdir()
        self.destination = DESTINATIONS[self.cell.sink](self.folder, self.servers)
        self.query = QUERIES[self.cell.query]
        self.name = uuid.uuid4().hex

    def check(self) -> str:
        """Run all, and compare with Spark's batch; says how the second run has ended.

        What is refused for one reason is run again with all others, so that each has shown what it does.
        """
        cell = self.cell
        refused: list[str] = []
        with ExitStack() as stack:
            fault = stack.enter_context(self._fault())
            if cell.clock == "day ahead":
                self.clock.ahead = 24 * HOUR
            self.inputs.first()
            self._run(changes=cell.since != "after", last=False)
            self.inputs.second()
            self.clock.ahead, self.clock.step = 0, STEPS.get(cell.clock, 0)
            wrong = {name for name in (cell.fault, cell.server) if name != USUAL}
            while True:
                try:
                    with self._server(wrong), fault() if cell.fault in wrong else ExitStack():
                        self._run(changes=cell.since != "before", last=True)
                except (SparkjetError, StreamingQueryException) as error:
                    wrong -= self._causes(error, wrong)
                    refused.append(str(error)[:150])
                    self.steps.clear()
                else:
                    break
            self._compare()
        spared = self._spared(wrong)
        assert not spared, f"has changed nothing: {spared}"
        return f"refused: {' '.join(refused)}" if refused else "equal"

    def _causes(self, error: Exception, wrong: Collection[str]) -> set[str]:
        """Which of what is wrong an error names; raises one again that names none, or comes after the decision."""
        found = {name for name in wrong if name in REFUSALS and re.search(REFUSALS[name], str(error), re.DOTALL)}
        if isinstance(error, UnsettledError) or not found:
            raise error
        return found

    def _spared(self, wrong: Collection[str]) -> list[str]:
        """Whatever is strange about the cell did not affect the query: it would be equal with anything else too.

        Args:
            wrong: What went wrong in a run that was not refused.
        """
        cell = self.cell
        found = [name for name in wrong if name in REFUSALS.keys() - LUCKY]
        found += ["a step that was never taken"] if self.steps else []
        found += [cell.clock] if cell.clock != USUAL and not self.clock.seen else []
        # With its home in the grid and its rows on a server, a query has nothing below any path.
        in_folder = cell.home != "grid" or cell.sink == "files" or self.query.closes
        found += [cell.path] if in_folder and cell.path != USUAL and not any(self.folder.iterdir()) else []
        if cell.settings != USUAL and not changed(self.spark, cell.settings):
            found.append(cell.settings)
        return found

    def _run(self, *, changes: bool, last: bool) -> None:
        settings = changed(self.spark, self.cell.settings) if changes and self.cell.settings != USUAL else {}
        session = session_with(self.spark, settings)
        session.conf.set("spark.sparkjet.grid.tokenFile", self.token)
        result, late = self.query.stream(self.inputs.streams(session))
        writer = self.destination.writer(result, self.query.mode).outputMode(self.query.mode)
        writer.trigger(availableNow=True).clock(self.clock).onEpochPhase(self._reached)
        if self.query.closes:
            writer.option("closeWindowsAtEnd", last)
        if self.query.fails:
            writer.option("deadLettersPath", self.folder / "dead")
        if self.cell.home == "grid":
            writer.option("snapshotStore", f"grid://{self.grid.address}").option("queryId", self.name)
        else:
            writer.option("checkpointLocation", self.folder / "home")
        others = [] if late is None else [late.writeStream.format("json").option("path", self.folder / "late")]
        try:
            sj.start(writer, lateRows=others).awaitTermination()
        finally:
            self.destination.ended(session)

    def _reached(self, phase: sj.EpochPhase, epoch: int) -> None:
        del epoch
        if phase is sj.EpochPhase.BEGIN:
            while self.steps:
                self.steps.pop()()

    def _compare(self) -> None:
        expected = Counter(plain(self.query.batch(self.inputs.tables(self.spark))))
        found = list(self.destination.rows())
        if self.query.mode == "update":
            # Each change of a key once, and the last one is the batch's.
            assert len({(row[0], row[2]) for row in found}) == len(found), found
            newest: dict[str, Found] = {}
            for row in sorted(found, key=lambda each: each[2]):
                newest[row[0]] = row
            found = [*newest.values()]
        counts = Counter(found)
        assert counts == expected, f"missing: {sorted(expected - counts)}, too many: {sorted(counts - expected)}"
        if self.query.closes:
            assert self._keys("late") == [LATE]
        if self.query.fails:
            assert self._keys("dead") == self.query.fails

    def _keys(self, name: str) -> list[str]:
        return sorted(row.k for row in sj.read_files(str(self.folder / name)).select("k").collect())

    @contextmanager
    def _fault(self) -> Iterator[Callable[[], Any]]:
        """Prepares for what is to go wrong; what it yields lets that happen for a while."""
        fault = self.cell.fault
        if fault in DISKS:
            with small_disk(self.folder / DISKS[fault], 4) as disk:
                yield lambda: self._full(disk)
        elif fault == "no token":
            yield self._without_token
        elif fault == "token goes":
            yield self._losing_token
        elif fault == "no handles":
            yield self._without_handles
        else:
            yield ExitStack

    @contextmanager
    def _full(self, disk: SmallDisk) -> Iterator[None]:
        before = tempfile.tempdir
        if self.cell.fault == "full tmp":
            tempfile.tempdir = str(disk.directory)
        if self.cell.fault.startswith("full"):
            disk.fill()
        else:
            self.steps.append(disk.fill)
        try:
            yield
        finally:
            tempfile.tempdir = before
            if disk.full:
                disk.free()

    @contextmanager
    def _without_token(self) -> Iterator[None]:
        before, self.token = self.token, str(self.place / "gone")
        try:
            yield
        finally:
            self.token = before

    @contextmanager
    def _losing_token(self) -> Iterator[None]:
        before, copy = self.token, self.place / "token"
        copy.write_text(Path(before).read_text())
        copy.chmod(0o600)
        self.token = str(copy)
        self.steps.append(copy.unlink)
        try:
            yield
        finally:
            self.token = before

    @contextmanager
    def _without_handles(self) -> Iterator[None]:
        before = resource.getrlimit(resource.RLIMIT_NOFILE)

        def use_up() -> None:
            lowest = os.dup(0)
            os.close(lowest)
            # Every number below is taken.
            resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, before[1]))

        self.steps.append(use_up)
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)

    @contextmanager
    def _server(self, wrong: Collection[str]) -> Iterator[None]:
        """Change the server's settings for a run, if they are among what is wrong."""
        destination, now = self.destination, self.cell.server if self.cell.server in wrong else USUAL
        if isinstance(destination, Table):
            destination.set(DATABASES.get(now, {}))
            if now == "no slots":
                destination.fill_slots()
        elif isinstance(destination, Topic):
            destination.set(TOPICS.get(now, {}))
            if now == "more partitions":
                destination.server.grow(destination.name, 3)
        try:
            yield
        finally:
            if isinstance(destination, Table):
                destination.reset()
                if now == "no slots":
                    destination.free_slots()
            elif isinstance(destination, Topic):
                destination.reset(TOPICS.get(now, {}))
