"""Settings of a query: what its options become, and what is refused before anything is looked at."""

from __future__ import annotations

import re

import pytest

from sparkjet.api.query_settings import QuerySettings
from sparkjet.errors import AnalysisError
from sparkjet.options import Options
from sparkjet.sinks.protocol import Guarantee


def settings(**options: str) -> QuerySettings:
    return QuerySettings.of(Options(options), {"availableNow": True})


def test_nothing_given_is_the_defaults() -> None:
    assert settings() == QuerySettings()
    assert QuerySettings().home("q") is None


def test_options_are_read_once_whatever_their_case() -> None:
    found = settings(STATEPARTITIONS="3", processingguarantee="at-least-once", pinRetention="1h", overlapEpochs="False")
    assert (found.partitions, found.guarantee, found.overlap) == (3, Guarantee.AT_LEAST_ONCE, "false")
    assert found.pin_retention == 3_600_000_000
    asked = {name for name, asks in found.of_stages.items() if asks}
    assert asked == {"statePartitions"}


@pytest.mark.parametrize(
    ("options", "home"),
    [
        ({"checkpointLocation": "/ck"}, "/ck"),
        ({"snapshotStore": "grid"}, "grid:///q"),
        ({"snapshotStore": "grid", "checkpointLocation": "/data/ck/"}, "grid:///data/ck"),
        ({"snapshotStore": "grid://a:1,b:2/", "queryId": "ä b"}, "grid://a:1,b:2/%C3%A4%20b"),
    ],
)
def test_a_home_is_a_directory_or_a_name_in_a_grid(options: dict[str, str], home: str) -> None:
    assert settings(**options).home("q") == home


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"queryId": "q"}, "queryId names a query in a grid: set snapshotStore too"),
        ({"snapshotBackupEvery": "2"}, "snapshotBackupEvery needs snapshotBackup"),
        ({"statePartitions": "0"}, 'statePartitions must be a positive whole number, not "0"'),
        ({"pinRetention": "soon"}, "pinRetention"),
        ({"publishAfter": "/old", "closeWindowsAtEnd": "true"}, "closeWindowsAtEnd: with publishAfter the other query"),
        ({"overlapEpochs": "maybe"}, 'overlapEpochs="maybe" is not one of'),
    ],
)
def test_what_is_wrong_is_named(options: dict[str, str], message: str) -> None:
    with pytest.raises(AnalysisError, match=re.escape(message)):
        settings(**options)


def test_what_needs_more_than_the_options_is_said_where_it_is_asked_for() -> None:
    with pytest.raises(AnalysisError, match=r"needs trigger\(availableNow=True\): other queries have no end"):
        QuerySettings.of(Options({"closeWindowsAtEnd": "true"}), {})
    with pytest.raises(AnalysisError, match="snapshotStore needs a name of the query in the grid"):
        settings(snapshotStore="grid").home(None)
    with pytest.raises(AnalysisError, match='snapshotStore="s3a://x" is neither grid nor grid://'):
        settings(snapshotStore="s3a://x").home("q")
