"""Which of pytest's processes runs which files."""

from __future__ import annotations

from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling


class OneProcessForEachBroker(LoadFileScheduling):
    """With ``--dist loadfile``, gives the files of a broker to one process: each starts brokers of its own."""

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        return next((broker for broker in ("kafka", "rabbitmq", "artemis") if f"/{broker}/" in file), file)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling | None:
    """The scheduler above, in its place."""
    return OneProcessForEachBroker(config, log) if config.getvalue("dist") == "loadfile" else None
