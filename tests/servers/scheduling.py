"""Which of pytest's processes runs which files."""

from __future__ import annotations

from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling

SHARING = ("kafka", "rabbitmq", "artemis", "farmed", "cluster")
"""Folders whose files share what is expensive to start: a broker, a cluster, or the drivers of the crash farm."""


class OneProcessForEachFolder(LoadFileScheduling):
    """With ``--dist loadfile``, gives the files of some folders to one process each."""

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        return next((folder for folder in SHARING if f"/{folder}/" in file), file)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling | None:
    """The scheduler above, in its place."""
    return OneProcessForEachFolder(config, log) if config.getvalue("dist") == "loadfile" else None
