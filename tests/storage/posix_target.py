"""A POSIX directory under test, whose ``link()`` can be disturbed."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from sparkjet.storage.posix_directory import PosixDirectory
from sparkjet.testing.directory_contract import DirectoryUnderTest

T = TypeVar("T")


class Links:
    """Stands for ``os.link``: what happens before and after it, in the threads that ask for it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._link, self._own = os.link, threading.local()
        monkeypatch.setattr(os, "link", self)

    def __call__(self, source: str | Path, target: str | Path) -> None:
        getattr(self._own, "before", _nothing)()
        self._link(source, target)
        getattr(self._own, "after", _nothing)()

    def disturbed(self, call: Callable[[], T], *, before: Callable[[], None], after: Callable[[], None]) -> T:
        self._own.before, self._own.after = before, after
        try:
            return call()
        finally:
            del self._own.before, self._own.after


class Disturbed(PosixDirectory):
    """Puts through disturbed links."""

    def __init__(self, path: Path, links: Links, *, before: Callable[[], None], after: Callable[[], None]) -> None:
        super().__init__(path)
        self._links, self._before, self._after = links, before, after

    def put(self, name: str, content: bytes) -> bool:
        put = super().put
        return self._links.disturbed(lambda: put(name, content), before=self._before, after=self._after)


def posix_target(
    place: Path, monkeypatch: pytest.MonkeyPatch, kind: type[PosixDirectory] = PosixDirectory
) -> DirectoryUnderTest:
    links = Links(monkeypatch)
    disturbed: type[Disturbed] = Disturbed if kind is PosixDirectory else type("DisturbedKind", (Disturbed, kind), {})
    return DirectoryUnderTest(
        kind(place),
        again=lambda: kind(place),
        # NFS sends link() again if the answer is lost, and meets what it has made.
        losing=lambda: disturbed(place, links, before=_nothing, after=_taken),
        held=lambda event: disturbed(place, links, before=lambda: _wait(event), after=_nothing),
    )


def _nothing() -> None:
    pass


def _taken() -> None:
    raise FileExistsError(17, "File exists")


def _wait(event: threading.Event) -> None:
    assert event.wait(60)
