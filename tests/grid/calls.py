"""Calls to another process: a line of JSON each on its standard input, answered in the same way."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import Any

from typing_extensions import Self

from sparkjet.errors import SparkjetError


class RefusedError(Exception):
    """The process has answered with an error; its text begins with the error's name."""


class CalledProcess:
    """A process that answers calls; a context manager that leaves none behind.

    Args:
        module: What it runs.
        arguments: Its only argument, as JSON.
        command: What begins its command line.
    """

    def __init__(self, module: str, arguments: Any, command: Sequence[str] = ()) -> None:
        self._lock = threading.Lock()
        self._process = subprocess.Popen(
            [*command, sys.executable, "-m", module, json.dumps(arguments)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._answer()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def call(self, name: str, *args: Any) -> Any:
        """Its answer."""
        with self._lock:
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps([name, *args]) + "\n")
            self._process.stdin.flush()
            return self._answer()

    def kill(self) -> None:
        """End it as a power cut would."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            # What could not be written to a process that is gone is lost.
            with contextlib.suppress(BrokenPipeError):
                pipe.close()  # type: ignore[union-attr]

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        answer = json.loads(self._process.stdout.readline() or '{"error": "it has ended"}')
        if "error" in answer:
            raise RefusedError(answer["error"])
        return answer["found"]


def answer(calls: object) -> None:
    """Answer with the methods of an object until the standard input ends; it has to be ready."""
    _say({"found": None})
    for line in sys.stdin:
        name, *args = json.loads(line)
        try:
            said = {"found": getattr(calls, name)(*args)}
        except SparkjetError as error:
            said = {"error": f"{type(error).__name__}: {error}"}
        _say(said)


def _say(said: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(said) + "\n")
    sys.stdout.flush()
