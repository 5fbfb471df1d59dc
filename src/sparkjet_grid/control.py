"""The protocol of the control plane: what members agree on, and slots of which each has one winner."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Protocol

from sparkjet_grid.errors import StorageError

if TYPE_CHECKING:
    from sparkjet_grid.cluster_state import ClusterState, Member

LONGEST_TOKEN = 64 * 1024
"""Bytes: slots are in the memory of every voter, what they name is in that of the members."""


class Control(Protocol):
    """The control plane as one member uses it. Thread-safe.

    Every method but :meth:`state`, :meth:`voters` and :meth:`reform` raises
    :class:`~sparkjet_grid.errors.QuorumLostError` if the member is cut off from the majority, or is none. It must
    refuse what it is asked then; it has to end when ``ended`` is called. No method waits for ever.
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
            member: This one.
            changed: Called with every state from now on, from a thread of the control plane, in ascending versions;
                states between two may be left out.
            ended: Called once, with the reason, from a thread of the control plane, when this member is no longer one:
                it was taken for dead, or has been cut off for so long that nobody waits for it. Not after
                :meth:`leave`, and for no other reason.
            reached: Called from a thread of the control plane where there has been no majority for that long: whether
                any other member answers. Then this one is not cut off, and goes on waiting.
        """
        ...

    def leave(self) -> None:
        """Be no member any more; the others take over. A second call does nothing."""
        ...

    def state(self) -> ClusterState:
        """The newest state that this member has seen."""
        ...

    def contacts(self) -> list[str]:
        """What another member must be told to join this cluster; empty if none can."""
        ...

    def propose(self, change: Callable[[ClusterState], ClusterState]) -> ClusterState:
        """Replace the state by what a pure function makes of the newest one; it is called again if another came first.

        Returns the state that holds then; the same one is no change.
        """
        ...

    def put_slot(self, name: str, token: bytes, version: int) -> bool:
        """Write a slot if it is free and the state is still of a version; whether this token is the slot's.

        Args:
            name: Of the slot, any text; up to its last slash it is the name of a directory.
            token: At most :data:`LONGEST_TOKEN` bytes, and unlike anyone else's: where the answer was lost, the slot
                itself tells who won.
            version: Of the state whose replicas were found to hold what the token names.

        Raises:
            StaleStateError: The slot is free, but there is a newer state: look again whether its replicas hold it.
        """
        ...

    def slot(self, name: str) -> bytes | None:
        """The token of a slot; None if it is free."""
        ...

    def slots(self, directory: str) -> list[str]:
        """Names of the slots below a directory, ascending; none that was written before the call is missing."""
        ...

    def last_slot(self, directory: str) -> tuple[str, bytes] | None:
        """The last slot of a directory, in the order of names, and its token, as one look finds them.

        None if there is none. Directories below it have slots of their own, which do not count.
        """
        ...

    def remove_slots(self, names: Sequence[str]) -> None:
        """Remove slots, of which some may be free."""
        ...

    def confirm(self) -> None:
        """Ask the majority, now, whether this member is still one; no answer is an error."""
        ...

    def voters(self) -> list[str]:
        """Ids of the members that vote, as far as they are known; more than half of them must stay."""
        ...

    def reform(self, survivors: Collection[str]) -> ClusterState:
        """Go on without a majority, as another cluster: what an operator decides who knows that the others are dead.

        To be called at one member that has voted. Survivors that can reach it stay members. What only the others knew
        is lost, decided slots included; two clusters go on if the others are not dead.

        Args:
            survivors: Ids of the members that are left, this one among them.

        Raises:
            StorageError: This member has never voted: another survivor has to do it.
        """
        ...


def is_below(name: str, directory: str) -> bool:
    """Whether a name is below a directory; everything is below the one without a name."""
    return not directory or name.startswith(f"{directory}/")


def checked(token: bytes) -> bytes:
    """A token that is not too long."""
    if len(token) > LONGEST_TOKEN:
        message = f"A slot holds {LONGEST_TOKEN} bytes, not {len(token)}: the token names an entry with the content."
        raise StorageError(message)
    return token
