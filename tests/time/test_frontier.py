from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from sparkjet.time import MIN, Frontier
from sparkjet.time.frontier import FrontierState, Ideal
from tests.time.laws import TIMES, law, through_json

NAMES = ["a", "b", "c"]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["advance", "advance", "advance", "mark_idle", "mark_idle", "mark_active", "insert", "remove"]),
        st.sampled_from(NAMES),
        TIMES,
    ),
    max_size=25,
)


@dataclass
class Naive:
    """The expected answer of a frontier, from all that was ever reported."""

    watermarks: dict[str, int] = field(default_factory=dict)
    idle: set[str] = field(default_factory=set)
    reached: list[int] = field(default_factory=lambda: [MIN])
    announced: bool = False

    def act(self, step: tuple[str, str, int]) -> None:
        action, name, time = step
        if action == "insert" and name not in self.watermarks:
            self.watermarks[name] = MIN
            self.idle.discard(name)
        elif name not in self.watermarks:
            return
        elif action == "advance":
            self.watermarks[name] = max(self.watermarks[name], time)
            self.reached.append(time)
            self.idle.discard(name)
            self.announced = False
        elif action == "mark_idle":
            self.idle.add(name)
        elif action == "mark_active":
            self.idle.discard(name)
            self.announced = False
        elif action == "remove":
            del self.watermarks[name]

    @property
    def active(self) -> list[int]:
        return [watermark for name, watermark in self.watermarks.items() if name not in self.idle]

    def ideal(self) -> Ideal:
        reported, self.announced = self.announced, not self.active
        if self.active:
            return Ideal(min(self.active), went_idle=False)
        return Ideal(None, went_idle=False) if reported else Ideal(max(self.reached), went_idle=True)


def act(frontier: Frontier, step: tuple[str, str, int]) -> None:
    """A step, if it makes sense: members are inserted once, and only members do anything."""
    action, name, time = step
    if (action == "insert") == (name in frontier):
        return
    call: Callable[..., None] = getattr(frontier, action)
    call(name, time) if action == "advance" else call(name)


@law
@given(STEPS)
def test_a_frontier_is_the_minimum_of_the_active_and_the_maximum_when_none_is(
    steps: list[tuple[str, str, int]],
) -> None:
    frontier, naive = Frontier(), Naive()
    for step in steps:
        act(frontier, step)
        naive.act(step)
        assert frontier.least == min(naive.active, default=None)
        assert frontier.top == max(naive.reached)
        assert {name: each.watermark for name, each in frontier.members.items()} == naive.watermarks
        assert {name for name, each in frontier.members.items() if each.idle} == naive.idle & naive.watermarks.keys()
        assert frontier.ideal() == naive.ideal()
        assert frontier.quiet == naive.announced


@law
@given(STEPS)
def test_the_order_of_the_members_makes_no_difference(steps: list[tuple[str, str, int]]) -> None:
    one, other = Frontier(), Frontier()
    for name in NAMES:
        one.insert(name)
    for name in reversed(NAMES):
        other.insert(name)
    for step in steps:
        if step[0] != "insert":
            act(one, step)
            act(other, step)
            assert one.ideal() == other.ideal()


@law
@given(STEPS, st.integers(0, 25))
def test_restored_at_any_step_it_goes_on_alike(steps: list[tuple[str, str, int]], cut: int) -> None:
    frontier = Frontier()
    for step in steps[:cut]:
        act(frontier, step)
        frontier.ideal()
    state = frontier.snapshot()
    restored = Frontier(msgspec.convert(through_json(state), FrontierState))
    assert restored.snapshot() == state
    for step in steps[cut:]:
        act(frontier, step)
        act(restored, step)
        assert restored.ideal() == frontier.ideal()
    # Taken before, a snapshot no longer changes.
    assert Frontier(state).snapshot() == state


def test_going_idle_is_reported_once_and_again_after_a_member_was_active() -> None:
    frontier = Frontier()
    frontier.insert("a")
    frontier.advance("a", 5)
    frontier.mark_idle("a")
    assert [frontier.ideal(), frontier.ideal()] == [Ideal(5, went_idle=True), Ideal(None, went_idle=False)]
    frontier.mark_active("a")
    frontier.mark_idle("a")
    assert frontier.ideal() == Ideal(5, went_idle=True)


def test_a_new_member_is_waited_for_and_alone_does_not_end_being_quiet() -> None:
    frontier = Frontier()
    assert frontier.ideal() == Ideal(MIN, went_idle=True)
    frontier.insert("a")
    assert frontier.quiet
    assert frontier.ideal() == Ideal(MIN, went_idle=False)
    assert not frontier.quiet


def test_a_member_that_was_placed_counts_for_the_minimum_only() -> None:
    frontier = Frontier()
    frontier.insert("a", 17)
    assert (frontier.least, frontier.top) == (17, MIN)
    frontier.insert("a", 3)
    assert frontier.least == 3
