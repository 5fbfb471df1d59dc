"""The query of a case as a real stream with kills, and a replay of it with kills: they must come to the same."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.errors import StreamingQueryException

import sparkjet as sj
from sparkjet import EpochPhase, ManualClock
from sparkjet.snapshots import DirectoryStore
from sparkjet.snapshots.pins import Pins
from sparkjet.snapshots.record_log import RecordLog
from tests.differential.cases import Case, Event, Input, Step

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from sparkjet.snapshots.record import Record

PHASES = (EpochPhase.BEGIN, EpochPhase.SAVE, EpochPhase.PREPARE, EpochPhase.DECIDE, EpochPhase.COMMIT)


class Killed(Exception):  # noqa: N818 - what stands for the death of a driver
    """The driver has died."""


class Killer:
    """A listener that lets a query die at the end of a phase, once it is armed."""

    def __init__(self) -> None:
        self.at: EpochPhase | None = None

    def __call__(self, phase: EpochPhase, epoch: int) -> None:
        """Called by the engine."""
        if phase is self.at:
            self.at = None
            raise Killed


class Lived:
    """A fork that has run a case by itself, and a fork of that which has replayed it.

    Args:
        spark: The session.
        case: The case; its sink and home do not matter, as forks write to files.
        place: A directory that is empty.
    """

    def __init__(self, spark: SparkSession, case: Case, place: Path) -> None:
        # Late rows go where those of a fork go.
        self._spark, self._case, self._place = spark, replace(case, dropped=None), place
        self._clock, self._killer = ManualClock(case.start), Killer()
        made: dict[str, Any] = {}
        exec(self._case.definitions(), made)  # noqa: S102 - what the printed script runs is what is tested
        self._query = made["query"]
        for side in range(len(case.inputs)):
            (place / f"{side}").mkdir()
        writers, rest = self._writers(ended=False)
        writers[0] = writers[0].trigger(availableNow=True)
        root = sj.start(*writers, **rest, checkpointLocation=str(place / "root"))
        root.awaitTermination()
        root.snapshot("nothing")
        self.live = self._fork("root", "live")

    def _fork(self, of: str, to: str) -> sj.Fork:
        fork = sj.fork(self._place / of, at="nothing", to=self._place / to)
        pins = Pins(DirectoryStore(self._place / to / "snapshots"))
        if not pins.all():
            pins.put("nothing", 0)
        return fork

    def run(self) -> None:
        """Run the case: a file of each input is an epoch or more, and its query ends or dies after some."""
        running = None
        for number, epoch in enumerate(self._case.epochs):
            if running is None:
                running = self._started(self.live.start)
            if epoch.pause:
                self._clock.advance(epoch.pause)
                running.processAllAvailable()
            if epoch.then.isupper():
                self._killer.at = EpochPhase[epoch.then]
            for side, (events, each) in enumerate(zip(epoch.rows, self._case.inputs, strict=True)):
                self._write(side, number, events, each)
            with suppress(Killed, StreamingQueryException):
                running.processAllAvailable()
            self._killer.at = None
            if epoch.then:
                running.stop()
                with suppress(Killed, StreamingQueryException):
                    running.awaitTermination()
                running = None
        if running is not None:
            running.processAllAvailable()
            running.stop()
        self._started(self.live.start, ended=True).awaitTermination()

    def replay(self, to: str, seed: int) -> sj.Fork:
        """Replay it, and die now and then."""
        fork, rng = self._fork("live", to), random.Random(seed)
        for _ in range(2):
            self._killer.at = rng.choice(PHASES)
            with suppress(Killed):
                self._started(fork.replay)
        self._killer.at = None
        self._started(fork.replay)
        return fork

    def newest(self, fork: sj.Fork) -> Record:
        """The newest record of a fork."""
        found = RecordLog(DirectoryStore(Path(fork.home) / "snapshots")).newest()
        assert found is not None
        return found[1]

    def _started(self, start: Callable[..., Any], *, ended: bool = False) -> Any:
        writers, rest = self._writers(ended=ended)
        return start(*writers, **rest)

    def _writers(self, *, ended: bool) -> tuple[list[Any], dict[str, Any]]:
        case, inputs = self._case, []
        for side, each in enumerate(case.inputs):
            reader = self._spark.readStream.schema(each.schema).option("maxFilesPerTrigger", 1)
            inputs.append(sj.stream(reader.json(str(self._place / f"{side}"))))
        results = self._query(*inputs)
        every = [result.writeStream.format("noop") for result in results]
        dead, writers = every[len(case.branches) :], every[: len(case.branches)]
        writers = [writer.outputMode(case.mode).onEpochPhase(self._killer).clock(self._clock) for writer in writers]
        steps = [step for branch in case.branches for step in branch] + [case.meet or Step("", "")]
        keeps = any(step.judge or step.parts for step in steps)
        for name, value in case.options:
            if name == "isEarly":
                writers = [writer.option(name, value) for writer in writers]
            elif keeps:
                writers[0] = writers[0].option(name, value)
        if ended:
            writers = [writer.trigger(availableNow=True) for writer in writers]
            if case.has_an_end:
                writers[0] = writers[0].option("closeWindowsAtEnd", True)
        late = [found for found in map(_late, results[: len(case.branches)]) if found is not None]
        return writers, {"deadLetters": dead, "lateRows": late}

    def _write(self, side: int, number: int, events: tuple[Event, ...], each: Input) -> None:
        names = ["t", "sub", "n", *(["p"] if each.timed else []), *(f"v{place}" for place in range(len(each.columns)))]
        lines = [json.dumps(dict(zip(names, event.record(), strict=True))) for event in events]
        hidden = self._place / f"{side}" / f".{number}.json"
        hidden.write_text("\n".join(lines))
        os.utime(hidden, (number + 1, number + 1))
        hidden.rename(self._place / f"{side}" / f"{number}.json")


def _late(result: Any) -> Any:
    """A writer of late rows, None of what drops none."""
    try:
        return result.lateRows.writeStream.format("noop")
    except (AttributeError, sj.AnalysisError):
        return None
