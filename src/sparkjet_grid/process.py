"""The process of a member: it runs until it is stopped, or until the control plane ends its membership."""

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
"""Seconds in which a member that is stopped during its start may still join, to leave in order."""


def run(settings: MemberSettings, access: Access, control: Control) -> int:
    """Run a member in this process, which exits with the member's end.

    SIGTERM and SIGINT make it leave: others copy what it holds before it ends. A member that has not joined within
    seconds holds nothing, and just ends.
    """
    raise_limit()
    member = Member(settings, access, control)
    asked: SimpleQueue[int] = SimpleQueue()
    joined = threading.Event()
    # Not in the handler: that interrupts this thread, which may hold a lock that leaving needs.
    threading.Thread(target=_stop, args=(asked, joined, member), name="grid-stop", daemon=True).start()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda which, _: asked.put(which))
    try:
        member.start()
        joined.set()
    except BaseException:
        member.close()
        raise
    # For the process that has started it, and waits for its port.
    try:
        sys.stdout.write(f"member {member.id} listens at {member.address.uri}\n")
        sys.stdout.flush()
    except OSError as error:
        # It must not end now: it may be the only one to hold some entries.
        logger.warning("Member %s listens at %s, and cannot say so: %s", member.id, member.address.uri, error)
    reason, status = member.wait(), 1
    try:
        # The others have seen it leave, but another one may still have to vote in its place.
        status = 0 if member.has_left(_LEAVES_WITHIN) else 1
        closing = threading.Thread(target=member.close, name="grid-close", daemon=True)
        closing.start()
        closing.join(_CLOSES_WITHIN)
        # The last line of the log says why it has ended.
        logger.log(logging.ERROR if status else logging.INFO, "Member %s has ended: %s", member.id, reason)
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        # A hanging call must not keep the process of a former member alive.
        os._exit(status)


def _stop(asked: SimpleQueue[int], joined: threading.Event, member: Member) -> None:
    """Make a member leave at the first signal."""
    asked.get()
    # Others may know it already: without a goodbye it would count for the size of the grid ever after.
    if joined.wait(_JOINS_WITHIN):
        member.begin_to_leave()
        return
    os.write(sys.stderr.fileno(), b"the member was stopped before it had joined\n")
    # Not an exception: it would be taken for a failure of the step that is under way, which would be retried.
    os._exit(0)


def with_one_arena() -> None:
    """Restart this process with one memory arena for all threads, unless the number of arenas has been set.

    gRPC allocates incoming data in whichever of its threads reads it. With an arena for each of them, memory freed in
    one is of no use to the others: a member that held 127 MB grew to 590 MB within a dozen snapshots. glibc reads the
    variable when a process starts; other allocators ignore it.
    """
    if sys.platform == "linux" and _ARENAS not in os.environ:
        os.environ[_ARENAS] = "1"
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 - its own arguments
