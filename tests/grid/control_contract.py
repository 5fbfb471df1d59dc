"""The contract of the control plane as a suite that every implementation passes.

A test class inherits :class:`ControlContract` and gives it a fixture ``target``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import msgspec
import pytest

from sparkjet_grid.cluster_state import ClusterState, Member, may_start
from sparkjet_grid.control import LONGEST_TOKEN, Control
from sparkjet_grid.errors import QuorumLostError, StaleStateError, StorageError
from tests.faults.waiting import until

RACES = 20
"""How many slots two writers want at the same time."""


@dataclass
class Joined:
    """A member, and what its control plane has told it."""

    member: Member
    control: Control
    states: list[ClusterState] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    threads: set[str] = field(default_factory=set)

    @classmethod
    def joined(cls, control: Control, member: Member, reached: Callable[[], bool] = lambda: False) -> Joined:
        it = cls(member, control)
        control.join(member, it._changed, it._ended, reached)
        return it

    def _changed(self, state: ClusterState) -> None:
        self.threads.add(threading.current_thread().name)
        self.states.append(state)

    def _ended(self, reason: str) -> None:
        self.reasons.append(reason)


@dataclass
class ControlUnderTest:
    """A cluster whose members all vote, if they can be several."""

    members: list[Joined]
    """At least one."""
    end: Callable[[Joined], None]
    """Ends a member without asking it; at once, or as soon as it is noticed."""


def newer(state: ClusterState) -> ClusterState:
    return msgspec.structs.replace(state, version=state.version + 1)


def put(control: Control, name: str, token: bytes) -> bool:
    """As a client does, verify again when the state has changed."""
    while True:
        try:
            return control.put_slot(name, token, control.state().version)
        except StaleStateError:
            continue


class ControlContract:
    """Tests that each implementation's test class inherits; it gives the fixture ``target``."""

    def test_members_agree_on_the_state(self, target: ControlUnderTest) -> None:
        expected = {joined.member.id for joined in target.members}
        for joined in target.members:
            until(
                lambda joined=joined: {member.id for member in joined.control.state().members} == expected,  # type: ignore[misc]
                "all members in the state",
            )
        assert len({joined.control.state().cluster for joined in target.members}) == 1
        assert may_start(target.members[0].control.state())

    def test_a_change_arrives_at_every_member(self, target: ControlUnderTest) -> None:
        state = target.members[0].control.propose(newer)
        for joined in target.members:
            until(
                lambda joined=joined: bool(joined.states) and joined.states[-1].version >= state.version,  # type: ignore[misc]
                "the change",
            )
            assert joined.control.state().version >= state.version

    def test_changes_come_in_ascending_versions_from_a_thread_of_the_control_plane(
        self, target: ControlUnderTest
    ) -> None:
        def many(joined: Joined) -> None:
            for _ in range(RACES):
                joined.control.propose(newer)

        before = target.members[0].control.state().version
        with ThreadPoolExecutor(2 * len(target.members)) as threads:
            list(threads.map(many, target.members * 2))
        last = before + 2 * RACES * len(target.members)
        for joined in target.members:
            until(lambda joined=joined: joined.states[-1].version >= last, "the last change")  # type: ignore[misc]
            versions = [state.version for state in joined.states]
            assert versions == sorted(set(versions))
            assert threading.current_thread().name not in joined.threads
        # Each was made from the one before: none was overwritten.
        assert target.members[0].control.state().version == last

    def test_the_same_state_changes_nothing(self, target: ControlUnderTest) -> None:
        control = target.members[0].control
        state = control.propose(newer)
        assert control.propose(lambda newest: newest) == state

    def test_an_error_of_the_change_reaches_its_proposer(self, target: ControlUnderTest) -> None:
        def refused(state: ClusterState) -> ClusterState:
            raise StorageError(state.cluster)

        control = target.members[0].control
        before = control.state()
        with pytest.raises(StorageError, match=before.cluster):
            control.propose(refused)
        assert control.propose(lambda newest: newest).version == before.version

    def test_of_two_writers_one_wins_each_slot(self, target: ControlUnderTest) -> None:
        writers = [target.members[0].control, target.members[-1].control]
        start = threading.Barrier(len(writers))

        def race(number: int) -> list[bool]:
            won = []
            for slot in range(RACES):
                start.wait(60)
                won.append(put(writers[number], f"raced/{slot}", b"%d of %d" % (slot, number)))
            return won

        with ThreadPoolExecutor(len(writers)) as threads:
            first, second = threads.map(race, range(len(writers)))
        for slot in range(RACES):
            assert first[slot] != second[slot]
            expected = b"%d of %d" % (slot, int(second[slot]))
            assert {writer.slot(f"raced/{slot}") for writer in writers} == {expected}

    def test_a_put_whose_answer_was_lost_is_met_by_its_own_retry(self, target: ControlUnderTest) -> None:
        control = target.members[0].control
        version = control.state().version
        assert control.put_slot("log/1", b"mine", version)
        assert control.put_slot("log/1", b"mine", version)
        assert not control.put_slot("log/1", b"another's", version)
        # Also if the state has changed meanwhile: what is written is written.
        control.propose(newer)
        assert control.put_slot("log/1", b"mine", version)
        assert not control.put_slot("log/1", b"another's", version)

    def test_a_put_with_another_version_of_the_state_is_refused(self, target: ControlUnderTest) -> None:
        version = target.members[-1].control.state().version
        newest = target.members[0].control.propose(newer).version
        for joined in target.members:
            for wrong in (version, newest + 1):
                with pytest.raises(StaleStateError, match=str(wrong)):
                    joined.control.put_slot("log/1", b"late", wrong)
        assert target.members[0].control.slots("log") == []
        assert target.members[-1].control.put_slot("log/1", b"in time", newest)

    def test_slots_are_listed_as_soon_as_they_are_written(self, target: ControlUnderTest) -> None:
        writer, reader = target.members[0].control, target.members[-1].control
        for slot in range(RACES):
            put(writer, f"log/{slot:02}", b"%d" % slot)
            assert reader.slots("log") == [f"log/{each:02}" for each in range(slot + 1)]
            assert reader.slot(f"log/{slot:02}") == b"%d" % slot
            assert reader.last_slot("log") == (f"log/{slot:02}", b"%d" % slot)
        assert reader.slot(f"log/{RACES}") is None
        assert reader.slots("other") == []
        assert reader.slot("other/0") is None

    @pytest.mark.parametrize("name", ["q", "home/state/7-1", ".", "..", "", "/", "a//b", "a b/ü?%2F", "x" * 200])
    def test_any_text_names_a_slot(self, target: ControlUnderTest, name: str) -> None:
        control = target.members[0].control
        put(control, name, b"token")
        put(control, "another", b"token")
        assert control.slot(name) == b"token"
        assert control.slots("") == sorted([name, "another"])

    def test_slots_are_listed_by_their_directory(self, target: ControlUnderTest) -> None:
        control = target.members[0].control
        names = ["a", "a/1", "a/b/c/2", "a/b/3", "ab/4", "b/a/5"]
        for name in names:
            put(control, name, b"token")
        assert control.slots("a") == ["a/1", "a/b/3", "a/b/c/2"]
        assert control.slots("a/b") == ["a/b/3", "a/b/c/2"]
        assert control.slots("a/b/c/2") == []
        assert control.slots("") == sorted(names)
        assert [control.last_slot(each) for each in ("a/b", "b/a", "ab/4", "c")] == [
            ("a/b/3", b"token"),
            ("b/a/5", b"token"),
            None,
            None,
        ]

    def test_slots_that_are_removed_are_free(self, target: ControlUnderTest) -> None:
        control = target.members[0].control
        for name in ("log/1", "log/2", "log/2/3"):
            put(control, name, b"token")
        assert control.last_slot("log") == ("log/2", b"token")
        for _ in range(2):
            control.remove_slots(["log/1", "log/2", "log/4", "nowhere/5"])
        assert control.slots("log") == ["log/2/3"]
        control.remove_slots(["log/2/3"])
        assert control.slots("") == []
        assert control.last_slot("log") is None
        assert put(control, "log/1", b"another")
        assert control.slot("log/1") == b"another"
        assert control.last_slot("log") == ("log/1", b"another")

    def test_a_token_may_be_64_kb_long(self, target: ControlUnderTest) -> None:
        control = target.members[0].control
        assert put(control, "log/1", b"x" * LONGEST_TOKEN)
        assert control.slot("log/1") == b"x" * LONGEST_TOKEN
        with pytest.raises(StorageError, match="holds 65536 bytes, not 65537"):
            put(control, "log/2", b"x" * (LONGEST_TOKEN + 1))
        assert control.slots("log") == ["log/1"]

    def test_voters_are_members(self, target: ControlUnderTest) -> None:
        ids = {joined.member.id for joined in target.members}
        assert set(target.members[0].control.voters()) == ids

    def test_a_member_that_has_left_can_do_nothing_and_is_told_nothing(self, target: ControlUnderTest) -> None:
        leaver, *others = reversed(target.members)
        largest = leaver.control.state().largest
        leaver.control.leave()
        leaver.control.leave()
        self._does_nothing(leaver.control)
        assert not leaver.reasons
        self._noticed(leaver, others)
        # It has said goodbye, and cannot be a part of what goes on elsewhere.
        assert all(joined.control.state().largest == largest - 1 for joined in others)

    def test_a_member_that_ends_is_noticed(self, target: ControlUnderTest) -> None:
        victim, *others = target.members
        target.end(victim)
        self._noticed(victim, others)
        self._does_nothing(victim.control)

    @staticmethod
    def _noticed(gone: Joined, others: list[Joined]) -> None:
        for joined in others:
            until(
                lambda joined=joined: gone.member not in joined.control.state().members,  # type: ignore[misc]
                "the state without it",
            )
            assert gone.member not in joined.states[-1].members
            assert put(joined.control, "log/99", b"token")

    @staticmethod
    def _does_nothing(control: Control) -> None:
        calls: list[Callable[[], object]] = [
            lambda: control.propose(newer),
            lambda: control.put_slot("log/1", b"token", control.state().version),
            lambda: control.slots("log"),
            lambda: control.slot("log/1"),
            lambda: control.last_slot("log"),
            lambda: control.remove_slots(["log/1"]),
            control.confirm,
        ]
        for call in calls:
            with pytest.raises(QuorumLostError):
                call()
