"""Directories as queues: each file is a message until it is removed; what a user's own source may look like."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from sparkjet.sources import AcknowledgingDataSource, AcknowledgingSource, Message


class DirectoryQueues(AcknowledgingSource):
    """Reads the files of directories; the name of a file is the id of its message."""

    def __init__(self, *directories: Path) -> None:
        self._directories = directories
        self._given: deque[Path] = deque()
        self._pause = threading.Event()

    @property
    def queues(self) -> Sequence[str]:
        return [directory.name for directory in self._directories]

    def open(self) -> None:
        self.close()

    def receive(self, most: int, seconds: float) -> Sequence[Message]:
        deadline = time.monotonic() + seconds
        while not (found := self._new()[:most]) and time.monotonic() < deadline:
            self._pause.wait(0.01)
        self._given += found
        return [Message(file.name, file.parent.name, (file.read_text(), file.name, file.parent.name)) for file in found]

    def acknowledge(self, count: int) -> None:
        for _ in range(count):
            self._given[0].unlink()
            self._given.popleft()

    def ready(self) -> Mapping[str, int]:
        new = self._new()
        return {each.name: sum(file.parent == each for file in new) for each in self._directories}

    def close(self) -> None:
        self._given.clear()

    def _new(self) -> list[Path]:
        return sorted({file for each in self._directories for file in each.iterdir()} - set(self._given))


class DirectoryQueueSource(AcknowledgingDataSource):
    """``format("directories")``, with the option ``paths``."""

    @classmethod
    def name(cls) -> str:
        return "directories"

    @property
    def rows(self) -> pa.Schema:
        return pa.schema([(name, pa.string()) for name in ("body", "id", "queue")])

    def source(self) -> DirectoryQueues:
        return DirectoryQueues(*map(Path, self.options["paths"].split(",")))
