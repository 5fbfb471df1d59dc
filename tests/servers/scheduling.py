"""Which of pytest's processes runs which files."""

from __future__ import annotations

from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling

SHARING = {
    "/farmed/": "the crash farm",
    "/cluster/": "stores",
    "/test_remote_": "stores",
    "/test_store": "stores",
    "/storage/test_file_writer": "stores",
    "/storage/test_hadoop_": "stores",
    "kafka": "kafka",
    "/environment/": "kafka",
    "examples/test_clicks": "kafka",
    "/test_two_servers": "kafka",
    "rabbitmq": "rabbitmq",
    "guide/queues": "rabbitmq",
    "artemis": "artemis",
}
"""Parts of the paths of files that share something expensive to start: the drivers of the crash farm, a cluster and the
stores beside it, a broker. The first that is in a path decides."""


class OneProcessForEachServer(LoadFileScheduling):
    """With ``--dist loadfile``, gives the files that share something to one process each."""

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        return next((shared for part, shared in SHARING.items() if part in file), file)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling | None:
    """The scheduler above, in its place."""
    return OneProcessForEachServer(config, log) if config.getvalue("dist") == "loadfile" else None
