"""A peer that runs one work, in processes that are suspended while it is another peer's turn."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, TypeVar

import msgspec
from typing_extensions import Self

from benchmarks.report import Results, Stretch

LONGEST = 900
"""Seconds after which a peer is considered hung."""
LOOK = 1.0
"""Seconds between checks that it is alive."""
REPOSITORY = Path(__file__).parent.parent
Said = TypeVar("Said", Stretch, Results)


class PeerError(Exception):
    """A peer did not respond; the message has the end of its output."""


class PeerProcess:
    """Runs a command that answers lines with a :class:`Stretch`, and the end of its input with :class:`Results`.

    Between two requests it is suspended (SIGSTOP) with all its processes, so that it costs the others no time and its
    own stream continues where it was: warm, with full windows.

    Args:
        words: The command line.
        name: Its name in messages.
    """

    def __init__(self, words: Sequence[str], name: str) -> None:
        self._name = name
        self._stack = ExitStack()
        home = self._stack.enter_context(tempfile.TemporaryDirectory(prefix="sparkjet-benchmark-"))
        self._noise = self._stack.enter_context(tempfile.TemporaryFile("w+"))  # noqa: SIM115 - the stack closes it
        # Everything that it leaves behind when it is killed is in `home`, including Java's files.
        places = {"TMPDIR": home, "JAVA_TOOL_OPTIONS": f"-Djava.io.tmpdir={home}", "PYTHONPATH": str(REPOSITORY)}
        self._process = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._noise,
            text=True,
            env={**os.environ, **places},
            # Signals reach all processes of the group.
            start_new_session=True,
        )
        self._lines: queue.Queue[str] = queue.Queue()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def stretch(self) -> Stretch:
        """Run until it has measured a stretch.

        Raises:
            PeerError: It has ended, or is silent for ``LONGEST`` seconds.
        """
        os.killpg(self._process.pid, signal.SIGCONT)
        try:
            self._input.write("go\n")
            self._input.flush()
        except BrokenPipeError:
            raise self._failed("has ended") from None
        measured = self._said(Stretch)
        os.killpg(self._process.pid, signal.SIGSTOP)
        return measured

    def results(self) -> Results:
        """Run to the end.

        Raises:
            PeerError: It has ended before, or is silent for ``LONGEST`` seconds.
        """
        os.killpg(self._process.pid, signal.SIGCONT)
        self._input.close()
        return self._said(Results)

    def end(self) -> None:
        """Kill its remaining processes; a second call does nothing."""
        if self._process.returncode is None:
            # Including processes that its first process has started and left behind.
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._listener.join()
            for pipe in (self._process.stdin, self._process.stdout):
                # Closing flushes input that the ended process has not read, which may fail.
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()  # type: ignore[union-attr]
        self._stack.close()

    @property
    def _input(self) -> IO[str]:
        assert self._process.stdin is not None  # noqa: S101 - for mypy
        return self._process.stdin

    def _listen(self) -> None:
        assert self._process.stdout is not None  # noqa: S101 - for mypy
        for line in self._process.stdout:
            # Libraries may print too.
            if line.startswith("{"):
                self._lines.put(line)

    def _said(self, kind: type[Said]) -> Said:
        deadline = time.monotonic() + LONGEST
        while True:
            # Checked before the line: its last output is there once it has ended.
            gone = self._gone()
            try:
                line = self._lines.get(timeout=LOOK)
            except queue.Empty:
                # Not by the end of its output, which processes that it has started may keep open.
                if gone:
                    raise self._failed("has ended") from None
                if time.monotonic() > deadline:
                    raise self._failed(f"has said nothing for {LONGEST} s") from None
            else:
                return msgspec.json.decode(line, type=kind)

    def _gone(self) -> bool:
        # Not reaped: this reserves the number of its group until the group has been killed.
        return os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def _failed(self, how: str) -> PeerError:
        self._noise.seek(0)
        last = "".join(self._noise.readlines()[-30:])
        return PeerError(f"{self._name} {how}:\n{last}")
