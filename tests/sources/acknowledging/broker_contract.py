"""The contract of acknowledging sources as brokers pass it: with one random run in CI, as each takes seconds."""

from __future__ import annotations

import pytest

from sparkjet.testing.acknowledging_contract import SEEDS, AcknowledgingContract, QueuesUnderTest


class BrokerContract(AcknowledgingContract):
    """All of it; sources in memory and of directories make the other runs too."""

    @pytest.mark.parametrize(
        "seed", [pytest.param(seed, marks=pytest.mark.long if seed else ()) for seed in range(SEEDS)]
    )
    def test_every_message_is_decided_once_whatever_crashes(self, target: QueuesUnderTest, seed: int) -> None:
        super().test_every_message_is_decided_once_whatever_crashes(target, seed)
