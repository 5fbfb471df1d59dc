"""An epoch that has no executor says so once, after a while, and again only if some had come in between."""

from __future__ import annotations

import pytest

from sparkjet.executors import AwaitedExecutors


def test_a_lack_of_executors_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    counts = iter([2, 0, 0, 0, 1, 0, 0])
    executors = AwaitedExecutors(lambda: next(counts), patience=0)
    said = []
    for _ in range(7):
        executors.look()
        said.append(caplog.text.count("spark.deploy.recoveryMode"))
    assert said == [0, 1, 1, 1, 1, 2, 2]


def test_it_is_not_said_at_once(caplog: pytest.LogCaptureFixture) -> None:
    executors = AwaitedExecutors(lambda: 0, patience=3600)
    for _ in range(3):
        executors.look()
    assert caplog.text == ""
