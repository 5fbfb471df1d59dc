"""Plans: the same from the same seed, and of every kind."""

from __future__ import annotations

import random
from collections import Counter

from sparkjet import EpochPhase
from tests.faults.kinds import every_kind
from tests.faults.plan import Plan
from tests.faults.test_faults import ROUNDS


def test_a_seed_is_one_plan() -> None:
    assert [str(Plan.of(seed)) for seed in range(50)] == [str(Plan.of(seed)) for seed in range(50)]
    assert len({str(Plan.of(seed)) for seed in range(50)}) == 50


def test_the_rounds_of_the_long_run_meet_every_kind_at_every_step() -> None:
    plans = [Plan.of(seed) for seed in range(ROUNDS)]
    kinds = Counter(fault.kind for plan in plans for fault in plan.faults)
    assert set(kinds) == {fault.kind for fault in every_kind(random.Random(0))}
    assert min(kinds.values()) >= 5
    assert {plan.step for plan in plans} == {*EpochPhase, None}


def test_faults_that_would_take_each_other_back_do_not_meet() -> None:
    for seed in range(1000):
        plan = Plan.of(seed)
        assert len({fault.family for fault in plan.faults}) == len(plan.faults)
