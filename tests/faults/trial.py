"""The trial: one query into files, PostgreSQL and Kafka that goes through rounds of faults."""

from __future__ import annotations

import json
import signal
import time
import uuid
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from typing_extensions import Self

from tests.crash.clocks import set_off
from tests.crash.drivers import Driver, Query, Victim
from tests.crash.feeds import write_skewed
from tests.crash.jobs import AHEAD, Place
from tests.faults.disk import Disk
from tests.faults.judging import check_all, check_so_far
from tests.faults.processes import Process, executors, send
from tests.faults.waiting import PATIENCE, holds_within, let_pass, until
from tests.soak.parts import newest

if TYPE_CHECKING:
    from tests.faults.plan import Plan
    from tests.servers.kafka import KafkaServer
    from tests.servers.postgres import PostgresServer

CLUSTER = "local-cluster[2,1,1024]"
JOBS = [f"everywhere{way}{overlap}" for way in ("", "-outbox") for overlap in ("", AHEAD)]
LONGEST_START = 40.0
"""Seconds that a start may take while a fault is active: it waits for what does not answer."""
MOST_STARTS = 6
"""How many consecutive starts of the query may fail once every fault has been healed."""
HOUR = 3_600_000_000


class Trial:
    """A query in successive drivers; a context manager that leaves no process and no mount behind.

    Args:
        root: A directory for the trial; the query's home and its files are on a small disk in it.
        postgres: The server of its table.
        kafka: The broker of its topic.
        seed: Determines its feed, its way into PostgreSQL, and whether its epochs overlap.
    """

    def __init__(self, root: Path, postgres: PostgresServer, kafka: KafkaServer, seed: int) -> None:
        self._root = root
        self._seed = seed
        self._files = self._drivers = 0
        self._dead = True
        self._dying: dict[Driver, Victim] = {}
        self._zombies: list[Driver] = []
        self._stopped: list[Process] = []
        self._orphans: list[Process] = []
        self._stack = ExitStack()
        self._postgres, self._kafka = postgres, kafka
        self.servers = {"postgres": postgres, "kafka": kafka}
        self.disk = Disk(root / "disk")
        self.driver: Driver
        job = Random(seed).choice(JOBS)
        self.query = Query(job, job, str(self.disk.path / job), str(root / "feed"), until_end=False)
        self.errors: list[str] = []
        """The errors that the query has ended with in the current round."""

    def __enter__(self) -> Self:
        self._stack.enter_context(self.disk)
        self._stack.callback(self._kill_orphans)
        return self

    def __exit__(self, *details: object) -> None:
        self._stack.close()

    @property
    def place(self) -> Place:
        """Where its query runs."""
        return self.query.place

    # Faults.

    def kill(self, victim: Victim) -> None:
        """SIGKILL the driver."""
        self._orphans += executors(self.driver.jvm)
        self.driver.kill(victim)
        self._dying[self.driver] = victim
        self._dead = True

    def kill_again(self, victim: Victim, delay: float) -> None:
        """SIGKILL the driver, and its successor while that recovers."""
        self.kill(Victim.BOTH)
        self.succeed()
        self.driver.wait("ready")
        let_pass(delay)
        self.kill(victim)

    def bury(self) -> None:
        """Stop the driver, take it for dead and start another."""
        self._orphans += executors(self.driver.jvm)
        self.driver.suspend()
        self._zombies.append(self.driver)
        self.succeed()

    def succeed(self) -> None:
        """Start the query in a new driver, without waiting for it."""
        self._drivers += 1
        self._dead = False
        log = self._root / f"driver-{self._drivers}.log"
        self.driver = self._stack.enter_context(Driver(log, CLUSTER))
        self.driver.start([self.query])

    def stop_processes(self, processes: Sequence[Process]) -> None:
        """SIGSTOP."""
        send(processes, signal.SIGSTOP)
        self._stopped += processes

    def resume_processes(self) -> None:
        """SIGCONT all that were stopped."""
        send(self._stopped, signal.SIGCONT)
        self._stopped.clear()

    def kill_processes(self, processes: Sequence[Process]) -> None:
        """SIGKILL."""
        send(processes, signal.SIGKILL)

    def step_clock(self, hours: float) -> None:
        """Set the query's clock off by some hours."""
        set_off(self.place.clock, round(hours * HOUR))

    # The start, a round, and the end.

    def start(self) -> None:
        """Run the query over the first files of its feed."""
        place = self.place
        place.root.mkdir()
        set_off(place.clock, 0)
        client = {f"kafka.{name}": value for name, value in self._kafka.client().items()}
        sink = {**client, "topic": self._kafka.topic(partitions=2), "kafka.log_level": "0"}
        (place.root / "kafka.json").write_text(json.dumps(sink))
        (place.root / "dsn").write_text(self._postgres.database(f"t{uuid.uuid4().hex}"))
        # The substream that is behind has no rows in the first.
        self._grow(2)
        self.succeed()
        self._deliver()

    def round(self, plan: Plan) -> str:
        """Execute a plan and check the sinks; returns a report."""
        began = time.monotonic()
        self.errors.clear()
        self._await_moment(plan)
        for fault in plan.faults:
            fault.inject(self)
        # Also one whose JVM was killed while Python is blocked.
        hearing = [driver for driver, victim in self._dying.items() if victim is Victim.JVM]
        for driver in hearing if self._dead else [*hearing, self.driver]:
            driver.release()
        holds_within(lambda: self._ended or self._has_read_all, plan.hold)
        if plan.impatient and self._down:
            self._start_again()
            holds_within(lambda: self._started or self._ended, LONGEST_START)
        for fault in reversed(plan.faults):
            fault.heal(self)
        self._deliver()
        self._end_zombies()
        self._end_dying()
        took = time.monotonic() - began
        return f"{plan} -> {took:.0f} s, {self.errors or 'no error'}"

    def finish(self) -> None:
        """Kill the driver, run to the end of the feed in another one, and check everything."""
        self.kill(Victim.BOTH)
        self._end_dying()
        until(lambda: not any(process.lives for process in self._orphans), "executors whose driver is dead to end")
        with Driver(self._root / "last.log", CLUSTER) as driver:
            last = replace(self.query, until_end=True)
            driver.bring([last])
            assert driver.end() == 0
        check_all(self.place, self.query.rules, self._postgres, self._kafka)

    def _await_moment(self, plan: Plan) -> None:
        """Give the query its files and wait for the moment of the plan."""
        name = self.query.name
        self.driver.forget(name)
        if plan.step is None:
            self._grow(plan.files)
            let_pass(plan.delay)
            return
        record = newest(self.query)
        self.driver.block(name, plan.step.name, (record.epoch if record else 0) + plan.epochs)
        self._grow(plan.files)
        self.driver.wait_any({"reached", "ended"}, name)

    def _grow(self, files: int) -> None:
        write_skewed(self.place.feed, self._seed, self._files, self._files + files)
        self._files += files

    def _deliver(self) -> None:
        """Run until everything fed has arrived, once every fault has been healed."""
        wrong = ["nothing was compared yet"]

        def delivered() -> bool:
            self._keep_running()
            if self._has_read_all:
                try:
                    check_so_far(self.place, self.query.rules, self._postgres, self._kafka)
                except AssertionError as error:
                    wrong[:] = [str(error) or repr(error)]
                else:
                    return True
            return False

        assert holds_within(delivered, PATIENCE), f"after {PATIENCE:.0f} s: {wrong[0]}; errors: {self.errors}"

    def _keep_running(self) -> None:
        """Start the query again if it is down."""
        starts = 0
        while self._down:
            assert starts < MOST_STARTS, f"the query does not start: {self.errors}\n{self.driver.tail()}"
            starts += 1
            self._start_again()
            self.driver.wait_any({"started", "ended"}, self.query.name)

    def _start_again(self) -> None:
        """Start a query that is down, in its driver or, if that is dead, in another one; does not wait."""
        if self._dead:
            self.succeed()
            return
        name = self.query.name
        self.errors.append(self.driver.results([self.query])[name] or "the query ended without an error")
        self.driver.forget(name)
        self.driver.start([self.query])

    @property
    def _down(self) -> bool:
        return self._dead or self._ended

    @property
    def _ended(self) -> bool:
        return self.query.name in self.driver.ended()

    @property
    def _started(self) -> bool:
        return self.query.name in self.driver.reported("started")

    @property
    def _has_read_all(self) -> bool:
        record = newest(self.query)
        return record is not None and record.spark is not None and record.spark.batch == self._files - 1

    def _end_zombies(self) -> None:
        """Resume drivers that were taken for dead: they end with FencedError, and have changed nothing."""
        for zombie in self._zombies:
            zombie.resume()
            zombie.release()
            # Input for both: one that was stopped while it waited would not notice otherwise.
            self._grow(1)
            error = zombie.results([self.query])[self.query.name] or "the zombie ended without an error"
            assert error.startswith("FencedError"), error
            zombie.end()
            self._deliver()
        self._zombies.clear()

    def _end_dying(self) -> None:
        """Wait for drivers that were partly killed: the other part ends by itself."""
        for driver, victim in self._dying.items():
            if victim is Victim.JVM:
                driver.results([self.query])
                driver.end()
            driver.gone()
        self._dying.clear()

    def _kill_orphans(self) -> None:
        """Executors outlive their driver for a moment or, if stopped, forever."""
        self.kill_processes(self._orphans)
