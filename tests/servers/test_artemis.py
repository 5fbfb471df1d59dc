"""The broker that tests start: it survives being killed, and leaves nothing behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.servers.artemis import ArtemisServer, jars
from tests.servers.fixtures import REQUIRED, available
from tests.servers.programs import NoProgramError


@pytest.mark.long
def test_what_was_sent_outlives_a_killed_broker(artemis: ArtemisServer) -> None:
    queue = artemis.queue()
    with artemis.client() as client:
        client.send(queue, b"\0", "text")
    killed = artemis.pid
    artemis.restart()
    assert artemis.pid != killed
    with artemis.client() as client:
        assert [frame.body for frame in client.read(queue, 2)] == [b"\0", b"text"]
    assert artemis.count(queue) == 2


def test_without_a_broker_the_test_is_skipped_and_in_ci_it_fails(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv(REQUIRED, raising=False)
    with pytest.raises(pytest.skip.Exception, match="apt-get install maven"):
        available(lambda: jars(tmp_path), NoProgramError)
    monkeypatch.setenv(REQUIRED, "1")
    with pytest.raises(NoProgramError, match="apt-get install maven"):
        available(lambda: jars(tmp_path), NoProgramError)
