"""The process of a member: it runs until it is stopped, or until its control plane says that it is none any more."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from queue import SimpleQueue

from sparkjet_grid.access import Access
from sparkjet_grid.control import Control
from sparkjet_grid.log import logger
from sparkjet_grid.member import Member, MemberSettings
from sparkjet_grid.strangers import raise_limit

_ARENAS = "MALLOC_ARENA_MAX"
_CLOSES_WITHIN = 5.0
_LEAVES_WITHIN = 30.0
_JOINS_WITHIN = 10.0
"""Seconds for which a member that is stopped during its start may still join, and then leave in order."""


def run(settings: MemberSettings, access: Access, control: Control) -> int:
    """Run a member in this process; returns the exit status.

    SIGTERM and SIGINT let it leave: others copy what it holds before it ends. One that has not joined within seconds
    holds nothing, and just ends.
    """
    raise_limit()
    member = Member(settings, access, control)
    asked: SimpleQueue[int] = SimpleQueue()
    joined = threading.Event()
    # Not in the handler itself: it interrupts this thread, perhaps while that holds a lock which leaving needs.
    threading.Thread(target=_stop, args=(asked, joined, member), name="grid-stop", daemon=True).start()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda which, _: asked.put(which))
    try:
        member.start()
        joined.set()
    except BaseException:
        member.close()
        raise
    # For whoever has started it, and waits for its port.
    try:
        sys.stdout.write(f"member {member.id} listens at {member.address.uri}\n")
        sys.stdout.flush()
    except OSError as error:
        # Others may hold by now what this member would take with it.
        logger.warning("Member %s listens at %s, and cannot say so: %s", member.id, member.address.uri, error)
    reason, status = member.wait(), 1
    try:
        # The others have seen it leave already, but another one may still have to vote in its place.
        status = 0 if member.has_left(_LEAVES_WITHIN) else 1
        closing = threading.Thread(target=member.close, name="grid-close", daemon=True)
        closing.start()
        closing.join(_CLOSES_WITHIN)
        # Last of all: who looks why it has ended looks there.
        logger.log(logging.ERROR if status else logging.INFO, "Member %s has ended: %s", member.id, reason)
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        # A call that hangs must not keep a process alive that is no member any more.
        os._exit(status)


def _stop(asked: SimpleQueue[int], joined: threading.Event, member: Member) -> None:
    """Let a member leave when it is asked to for the first time."""
    asked.get()
    # Others may know it already: one that does not say goodbye counts for the size of the grid for ever.
    if joined.wait(_JOINS_WITHIN):
        member.begin_to_leave()
        return
    os.write(sys.stderr.fileno(), b"the member was stopped before it had joined\n")
    # Not an exception: it would be taken for the failure of whatever is under way, and that begun again.
    os._exit(0)


def with_one_arena() -> None:
    """Begin this process anew, with one arena of memory for all threads, unless it has been told how many.

    gRPC allocates what arrives in whichever of its threads reads it. With an arena for each of them, what is removed
    from one is of no use to the others: a member that held 127 MB grew to 590 MB within a dozen snapshots. glibc reads
    the variable when a process begins, and other allocators do not.
    """
    if sys.platform == "linux" and _ARENAS not in os.environ:
        os.environ[_ARENAS] = "1"
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 - its own arguments
