"""Drivers: driver processes as a test sees them, to be commanded, waited for, killed, stopped and resumed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from typing_extensions import Self

from tests.crash.jobs import JOBS, Job, Place

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 420.0
"""Seconds to wait for anything; far more than needed, because a busy machine must not look like a fault."""
SLOW = "Python worker failed to connect back"
GRACE = 10.0
"""Seconds that a JVM may take to notice that its Python process is gone."""


class Victim(Enum):
    """The killed part of a driver; the JVM outlives Python for seconds, and Python the JVM until it notices."""

    PYTHON = "python"
    JVM = "jvm"
    BOTH = "both"


@dataclass(frozen=True)
class Query:
    """A query to run: where, what, and at which phase of which epoch it blocks.

    ``block_at`` is the name of a phase, or ``IDLE`` for after the epoch, when Spark waits for input.
    """

    name: str
    job: str
    root: str
    feed: str
    block_at: str | None = None
    epoch: int | None = None
    until_end: bool = True

    @property
    def place(self) -> Place:
        return Place(Path(self.root), Path(self.feed))

    @property
    def rules(self) -> Job:
        return JOBS[self.job]


class Driver:
    """One driver process, Python and its JVM; ends with the ``with`` block, whatever its state.

    Args:
        log: The file for its output.
        master: Where its tasks run.
        more: Variables of its environment, and of its executors'.
    """

    def __init__(self, log: Path, master: str = "local[2]", more: Mapping[str, str] | None = None) -> None:
        self._log = log
        reading, writing = os.pipe()
        # In front what this process was started with: `make test-sparks` names a Spark there.
        paths = [*filter(None, [os.environ.get("PYTHONPATH")]), str(ROOT / "src"), str(ROOT)]
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(paths),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
            **(more or {}),
        }
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.driver", str(writing), master],
            cwd=log.parent,
            env=environment,
            pass_fds=[writing],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=False,
        )
        os.close(writing)
        self._reports: list[dict[str, Any]] = []
        self._changed = threading.Condition()
        self._closed = False
        self._output = threading.Thread(target=self._copy_output, daemon=True)
        self._output.start()
        self._reader = threading.Thread(target=self._read_reports, args=(reading,), daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Leaves no process behind: not Python, and not a JVM that was stopped or hangs."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self._output.join(GRACE)
        ready = self._of("ready")
        # The pipe is still open, so the pid has not been reused yet.
        if self._output.is_alive() and ready:
            os.kill(ready[0]["jvm"], signal.SIGKILL)
        self._output.join()
        self._reader.join()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    @property
    def jvm(self) -> int:
        """Process id of the JVM, once it is ready."""
        return int(self.wait("ready")[0]["jvm"])

    def start(self, queries: Sequence[Query]) -> None:
        """Start queries; they report ``started``, ``reached`` where they block, and ``ended``."""
        self._tell({"do": "start", "queries": [asdict(query) for query in queries]})

    def bring(self, queries: Sequence[Query], event: str = "ended") -> None:
        """Start queries and wait for an event of each, without errors."""
        self.start(queries)
        self.see(queries, event)

    def see(self, queries: Sequence[Query], event: str = "ended") -> None:
        """Wait for an event of each of some queries that were started, without errors.

        A query is restarted if Spark gave up on a Python process, for which it waits only ten seconds.
        """
        for query in queries:
            while error := self._error_before(event, query):
                assert SLOW in error, f"{query.name} has ended: {error}"
                self.forget(query.name)
                self.start([query])

    def block(self, query: str, block_at: str, epoch: int) -> None:
        """Block a running query at a later phase."""
        self._tell({"do": "block", "query": query, "block_at": block_at, "epoch": epoch})

    def release(self) -> None:
        """Let every blocked query continue, now and until the next :meth:`block` or :meth:`hold`."""
        self._tell({"do": "release"})

    def hold(self) -> None:
        """Block queries that are started from now on, each at its phase."""
        self._tell({"do": "hold"})

    def wait(self, event: str, queries: Collection[str] | None = None) -> list[dict[str, Any]]:
        """The reports of an event, once there is one from each query (None: from any)."""

        def complete() -> bool:
            return (queries is None and bool(self._of(event))) or (queries is not None and not missing())

        def missing() -> set[str]:
            return set(queries or ()) - {report["query"] for report in self._of(event)}

        with self._changed:
            self._changed.wait_for(lambda: complete() or self._closed, PATIENCE)
            errors = [report for report in self._of("ended") if report["error"]]
            assert complete(), f"no {event!r} from {sorted(missing()) or 'the driver'}: {errors}\n{self.tail()}"
            return [report for report in self._of(event) if queries is None or report["query"] in queries]

    def wait_any(self, events: Collection[str], query: str) -> str:
        """The first report of any of some events that a query has sent."""

        def first() -> str | None:
            return next((r["event"] for r in self._reports if r.get("query") == query and r["event"] in events), None)

        with self._changed:
            self._changed.wait_for(lambda: self._closed or first() is not None, PATIENCE)
            found = first()
            assert found is not None, f"none of {events} from {query}\n{self.tail()}"
            return found

    def results(self, queries: Sequence[Query]) -> dict[str, str | None]:
        """Wait for queries to end; returns the name of the error that each ended with, None without one."""
        ended = self.wait("ended", [query.name for query in queries])
        return {report["query"]: report["text"] if report["error"] else None for report in ended}

    def ended(self) -> list[str]:
        """Names of the queries that have ended so far."""
        return self.reported("ended")

    def reported(self, event: str) -> list[str]:
        """Names of the queries that have reported an event so far."""
        with self._changed:
            return [report["query"] for report in self._of(event)]

    def python_lives(self) -> bool:
        """Whether Python has not ended yet."""
        return self._process.poll() is None

    def forget(self, query: str | None = None) -> None:
        """Discard the reports of queries that are started a second time (None: of all)."""
        with self._changed:
            given_up = [report for report in self._reports if "query" in report and query in (None, report["query"])]
            self._reports = [report for report in self._reports if report not in given_up]

    def kill(self, victim: Victim) -> None:
        """SIGKILL, without waiting for the effect."""
        for pid in self._pids(victim):
            os.kill(pid, signal.SIGKILL)

    def suspend(self) -> None:
        """SIGSTOP both: the driver is paused as a virtual machine would be."""
        for pid in self._pids(Victim.BOTH):
            os.kill(pid, signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT both."""
        for pid in reversed(self._pids(Victim.BOTH)):
            os.kill(pid, signal.SIGCONT)

    def end(self) -> int:
        """Have Python end once its queries have, and wait for the JVM too; returns the exit status."""
        self._tell({"do": "end"})
        return self.gone()

    def gone(self) -> int:
        """Wait until Python and JVM are gone: both keep the pipe for their output open."""
        self._output.join(PATIENCE)
        assert not self._output.is_alive(), f"the driver lives on\n{self.tail()}"
        return self._process.wait(PATIENCE)

    def tail(self) -> str:
        """The end of its output."""
        return self._log.read_text(errors="replace")[-3000:] if self._log.exists() else ""

    def _pids(self, victim: Victim) -> list[int]:
        return {
            Victim.PYTHON: [self._process.pid],
            Victim.JVM: [self.jvm],
            Victim.BOTH: [self._process.pid, self.jvm],
        }[victim]

    def _error_before(self, event: str, query: Query) -> str | None:
        """Wait for an event; returns the error if the query has ended instead."""
        self.wait_any({event, "ended"}, query.name)
        return self.results([query])[query.name] if query.name in self.ended() else None

    def _of(self, event: str) -> list[dict[str, Any]]:
        return [report for report in self._reports if report["event"] == event]

    def _tell(self, command: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{json.dumps(command)}\n".encode())
        self._process.stdin.flush()

    def _copy_output(self) -> None:
        assert self._process.stdout is not None
        with self._log.open("wb") as log:
            for line in self._process.stdout:
                log.write(line)
                log.flush()

    def _read_reports(self, descriptor: int) -> None:
        with os.fdopen(descriptor) as lines:
            for line in lines:
                with self._changed:
                    self._reports.append(json.loads(line))
                    self._changed.notify_all()
        with self._changed:
            self._closed = True
            self._changed.notify_all()
