"""The protocol of the control plane: what members agree on, and slots of which each has one winner."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Protocol

from sparkjet_grid.errors import StorageError

if TYPE_CHECKING:
    from sparkjet_grid.cluster_state import ClusterState, Member

LONGEST_TOKEN = 64 * 1024
"""Bytes: slots are in the memory of every voter; what they name is in the memory of members."""


class Control(Protocol):
    """The control plane, as one member uses it. Thread-safe.

    Every method but :meth:`state`, :meth:`voters` and :meth:`reform` raises
    :class:`~sparkjet_grid.errors.QuorumLostError` if the member is cut off from the majority, or is not a member. Then
    it must refuse all requests; it has to end when ``ended`` is called. Every method returns within some time.
    """

    def join(
        self,
        member: Member,
        changed: Callable[[ClusterState], None],
        ended: Callable[[str], None],
        reached: Callable[[], bool] = lambda: False,
    ) -> None:
        """Become a member, or the first one of a new cluster.

        Args:
            member: This member.
            changed: Called with new states, in ascending versions, from a thread of the control plane; some may be
                skipped.
            ended: Called once, with the reason, from a thread of the control plane, when the membership has ended: the
                member was declared dead, or has been cut off for so long that nobody waits for it. Not called after
                :meth:`leave`, nor for any other reason.
            reached: Whether any other member answers; called from a thread of the control plane when there has been no
                majority for that long. If so, this member is not cut off, and keeps waiting.
        """
        ...

    def leave(self) -> None:
        """End the membership; the others take over. A second call does nothing."""
        ...

    def state(self) -> ClusterState:
        """The newest state that this member has seen."""
        ...

    def contacts(self) -> list[str]:
        """The addresses that another member needs to join this cluster; empty if none can."""
        ...

    def propose(self, change: Callable[[ClusterState], ClusterState]) -> ClusterState:
        """Apply a pure function to the newest state; it is applied again if another change came first.

        Returns the resulting state; a function that returns its argument changes nothing.
        """
        ...

    def put_slot(self, name: str, token: bytes, version: int) -> bool:
        """Write a slot if it is free and the state still has a version; returns whether the slot has this token.

        Args:
            name: Of the slot, any text; the part before its last slash is its directory.
            token: At most :data:`LONGEST_TOKEN` bytes, and unique: where an answer was lost, the slot itself tells who
                has won.
            version: Of the state by which replicas were found to hold what the token names.

        Raises:
            StaleStateError: The slot is free, but there is a newer state: check its replicas.
        """
        ...

    def slot(self, name: str) -> bytes | None:
        """The token of a slot; None if it is free."""
        ...

    def slots(self, directory: str) -> list[str]:
        """The names of the slots below a directory, ascending, with all that were written before the call."""
        ...

    def last_slot(self, directory: str) -> tuple[str, bytes] | None:
        """The name and token of the last slot of a directory, in the order of names, read in one step.

        None if there is none. Slots of its subdirectories do not count.
        """
        ...

    def remove_slots(self, names: Sequence[str]) -> None:
        """Remove slots, some of which may be free already."""
        ...

    def confirm(self) -> None:
        """Have the majority confirm, now, that this member still is one; no answer is an error."""
        ...

    def voters(self) -> list[str]:
        """The ids of the members that vote, as far as they are known; more than half of them must stay."""
        ...

    def reform(self, survivors: Collection[str]) -> ClusterState:
        """Go on without a majority, as another cluster: for an operator who knows that the others are dead.

        Called on one member that has voted; survivors that can reach it stay members. What only the others knew is
        lost, including decided slots; if the others are alive, there are two clusters.

        Args:
            survivors: Ids of the surviving members, including this one.

        Raises:
            StorageError: This member has never voted: another survivor has to be asked.
        """
        ...


def is_below(name: str, directory: str) -> bool:
    """Whether a name is below a directory; the empty name is that of the root."""
    return not directory or name.startswith(f"{directory}/")


def checked(token: bytes) -> bytes:
    """Refuse a token that is too long."""
    if len(token) > LONGEST_TOKEN:
        message = f"A slot holds {LONGEST_TOKEN} bytes, not {len(token)}: the token names an entry with the content."
        raise StorageError(message)
    return token
