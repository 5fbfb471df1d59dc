"""Members as processes of their own, to be killed and paused."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from typing_extensions import Self

from tests.faults.waiting import until

_LISTENS = re.compile(r"^member (\w+) listens at (\S+)$", re.MULTILINE)


@dataclass
class MemberProcess:
    """``python -m sparkjet grid start``, on any free port.

    Attributes:
        folder: Where its output goes.
        token: File with the token.
        arguments: Further ones.
    """

    folder: Path
    token: Path
    arguments: tuple[str, ...] = ("--alone",)
    process: subprocess.Popen[bytes] = field(init=False)
    id: str = field(init=False)
    address: str = field(init=False)

    def __enter__(self) -> Self:
        self.begin()
        return self.ready()

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def output(self) -> str:
        """What it has said."""
        return self._log.read_text()

    def begin(self) -> Self:
        """Start it, without waiting."""
        number = len(list(self.folder.glob("member-*.log")))
        self._log = self.folder / f"member-{number}.log"
        command = [sys.executable, "-m", "sparkjet", "grid", "start", "--port", "0", "--token-file", str(self.token)]
        with self._log.open("wb") as log:
            self.process = subprocess.Popen([*command, *self.arguments], stdout=log, stderr=subprocess.STDOUT)
        return self

    def ready(self) -> Self:
        """Wait until it is a member."""
        until(lambda: _LISTENS.search(self.output) or self.process.poll() is not None, "the member to listen", 60)
        found = _LISTENS.search(self.output)
        assert found is not None, self.output
        self.id, self.address = found[1], found[2].partition("//")[2]
        return self

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self.process.send_signal(number)

    def kill(self) -> None:
        """End it without a word; does nothing if it has ended."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    def ended(self) -> int:
        """Wait for its end; returns its exit status."""
        return self.process.wait(60)
