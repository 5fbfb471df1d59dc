"""The control plane of one member keeps the contract."""

from __future__ import annotations

import pytest

from sparkjet_grid.cluster_state import Member
from sparkjet_grid.errors import AnalysisError, QuorumLostError, StorageError
from sparkjet_grid.in_process_control import InProcessControl
from tests.grid.control_contract import ControlContract, ControlUnderTest, Joined

ALONE = Member("n1", "grpc://127.0.0.1:1", "h1")


class TestContract(ControlContract):
    @pytest.fixture
    def target(self) -> ControlUnderTest:
        return ControlUnderTest([Joined.joined(InProcessControl(), ALONE)], end=lambda joined: joined.control.leave())


def test_nobody_can_join() -> None:
    control = InProcessControl()
    Joined.joined(control, ALONE)
    assert control.contacts() == []
    with pytest.raises(StorageError, match="Member n2 cannot join: this grid can only have one member"):
        Joined.joined(control, Member("n2", "grpc://127.0.0.1:2", "h1"))


def test_settings_are_checked_when_it_joins() -> None:
    with pytest.raises(AnalysisError, match="backup_count is 7"):
        Joined.joined(InProcessControl(backup_count=7), ALONE)


def test_before_it_joins_there_is_no_state() -> None:
    with pytest.raises(QuorumLostError, match="has not joined"):
        InProcessControl().state()


def test_clusters_have_their_own_ids() -> None:
    clusters = {Joined.joined(InProcessControl(), ALONE).control.state().cluster for _ in range(3)}
    assert len(clusters) == 3
