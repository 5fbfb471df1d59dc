"""Copies of a home that run at the same time: what one has published is not taken for a decision of the other.

Both count the same takeovers and epochs. They differ in the run, a new one for each takeover: it is in the handles, and
in what the destination keeps of each epoch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sparkjet.errors import CopiedHomeError

if TYPE_CHECKING:
    from sparkjet.sinks.protocol import Handle, TransactionId

_LENGTH = 8


def run_name(run: str) -> str:
    """A run as part of names: the beginning of the run in the record.

    >>> run_name("0b5e2f8a-5cd1-4a6e-9d5c-0d7a5c1c3f10")
    '0b5e2f8a'
    """
    return run[:_LENGTH]


def origin(transaction: TransactionId) -> Handle:
    """The part of a handle that identifies the driver that prepared it, for :func:`check_run`."""
    return {"run": transaction.run, "since": transaction.since}


def is_of_copy(handle: Handle, epoch: int, run: str | None) -> bool:
    """Whether an epoch at a destination was published by another copy of the handle's home.

    After the epoch that a driver started from, only its own run publishes; its successors publish once it is fenced,
    and then it ends for that reason.
    """
    own = handle.get("run")
    return bool(own and run) and run != own and epoch > int(handle["since"])


def check_run(handle: Handle, epoch: int, run: str | None, where: str) -> None:
    """Refuse to publish if another copy of the home has published."""
    if is_of_copy(handle, epoch, run):
        message = (
            f"{where} has epoch {epoch} of this query by another run ({run}, this one is {handle['run']}): another "
            f"copy of this home is running, and it has published it. Epoch {handle['epoch']} of this one is decided "
            "and not published. End one of the two queries: go on with the home whose rows are there, and remove the "
            "other; or start from scratch with another checkpointLocation and another destination."
        )
        raise CopiedHomeError(message)
