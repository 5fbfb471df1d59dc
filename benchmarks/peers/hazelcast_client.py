"""A client of Hazelcast's, in Python as the grid's: puts a snapshot's batches into a map, and gets them again.

``python hazelcast_client.py <cluster> <entries> <bytes of each> <address>…``, in an environment that has the client.
Each line of standard input is ``put``, ``get`` or ``clear``, and answered by the seconds that it took.
"""

from __future__ import annotations

import collections
import os
import sys
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import hazelcast

AT_ONCE = 64
"""Calls under way: more are not faster, and ``put_all`` takes twice as long."""


def in_flight(calls: Iterable[Callable[[], Any]]) -> list[Any]:
    """The results of calls, of which some are always under way."""
    waiting: collections.deque[Any] = collections.deque()
    found = []
    for call in calls:
        waiting.append(call())
        if len(waiting) == AT_ONCE:
            found.append(waiting.popleft().result())
    return [*found, *(each.result() for each in waiting)]


def main() -> None:
    """Answer until the input ends."""
    cluster, entries, size, *addresses = sys.argv[1:]
    client = hazelcast.HazelcastClient(cluster_name=cluster, cluster_members=addresses)
    snapshot = client.get_map("snapshot")
    # Of bytes it would make a pickle, of these an array of bytes.
    values = {f"part-{number}": bytearray(os.urandom(int(size))) for number in range(int(entries))}

    def put() -> None:
        in_flight(partial(snapshot.set, key, value) for key, value in values.items())

    def get() -> None:
        found = in_flight(partial(snapshot.get, key) for key in values)
        if [len(each or b"") for each in found] != [len(each) for each in values.values()]:
            sys.exit(f"{sum(each is None for each in found)} of {len(found)} entries are missing")

    does: dict[str, Callable[[], Any]] = {"put": put, "get": get, "clear": lambda: snapshot.clear().result()}
    print("ready", flush=True)
    for line in sys.stdin:
        began = time.perf_counter()
        does[line.strip()]()
        print(time.perf_counter() - began, flush=True)


if __name__ == "__main__":
    main()
