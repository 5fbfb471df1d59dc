"""A client of Redis's or Hazelcast's, in Python as the grid's: rows by key in a map, all of it, and puts.

``python map_client.py <redis or hazelcast> <cluster> <rows> <address>…``, in an environment that has the clients. A
value is the row as text, which nobody decodes. Each line of standard input is what to do, and answered by seconds:
``put`` and ``scan`` of all rows, ``get_all`` of 1,000 keys, ``p99`` of single gets. It imports nothing of sparkjet's.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable
from typing import Any

KEYS = 1_000
GETS = 2_000


def value(number: int) -> bytes:
    """A row as text."""
    return f'{{"k": "key-{number:07d}", "n": {number}, "text": "{number:064d}"}}'.encode()


class Redis:
    """A server of Redis's, whose client sends a thousand commands at once."""

    def __init__(self, _: str, addresses: list[str], rows: dict[str, bytes]) -> None:
        import redis  # noqa: PLC0415 - of the two, each is needed alone

        host, port = addresses[0].split(":")
        self._client = redis.Redis(host, int(port))
        self._rows = rows

    def put(self) -> None:
        """All rows."""
        names = list(self._rows)
        for start in range(0, len(names), KEYS):
            pipeline = self._client.pipeline(transaction=False)
            for name in names[start : start + KEYS]:
                pipeline.set(name, self._rows[name])
            pipeline.execute()

    def get_all(self, keys: list[str]) -> list[Any]:
        """The values of keys."""
        pipeline = self._client.pipeline(transaction=False)
        for key in keys:
            pipeline.get(key)
        return list(pipeline.execute())

    def get(self, key: str) -> Any:
        """The value of a key."""
        return self._client.get(key)

    def scan(self) -> list[Any]:
        """All values."""
        return self.get_all([key.decode() for key in self._client.scan_iter(count=KEYS)])


class Hazelcast:
    """Members of Hazelcast's."""

    def __init__(self, cluster: str, addresses: list[str], rows: dict[str, bytes]) -> None:
        import hazelcast  # noqa: PLC0415 - as above

        self._map = hazelcast.HazelcastClient(cluster_name=cluster, cluster_members=addresses).get_map("rows")
        # Of bytes it would make a pickle.
        self._rows = {name: bytearray(row) for name, row in rows.items()}

    def put(self) -> None:
        """All rows, as many in one call as Redis gets."""
        names = list(self._rows)
        calls = [
            self._map.put_all({name: self._rows[name] for name in names[start : start + KEYS]})
            for start in range(0, len(names), KEYS)
        ]
        for call in calls:
            call.result()

    def get_all(self, keys: list[str]) -> list[Any]:
        """The values of keys."""
        return list(self._map.get_all(keys).result().values())

    def get(self, key: str) -> Any:
        """The value of a key."""
        return self._map.get(key).result()

    def scan(self) -> list[Any]:
        """All values."""
        return list(self._map.values().result())


def main() -> None:
    """Answer until the input ends."""
    kind, cluster, count, *addresses = sys.argv[1:]
    rows = {f"key-{number:07d}": value(number) for number in range(int(count))}
    chosen = random.Random(1)  # noqa: S311 - which keys
    client = (Redis if kind == "redis" else Hazelcast)(cluster, addresses, rows)
    names = list(rows)

    def seconds_of(work: Callable[[], Any], found: int | None = None) -> float:
        began = time.perf_counter()
        result = work()
        taken = time.perf_counter() - began
        if found is not None and (len(result) != found or None in result):
            sys.exit(f"{len(result)} rows were found, some of them none, instead of {found}")
        return taken

    def p99() -> float:
        return sorted(seconds_of(lambda: client.get(chosen.choice(names))) for _ in range(GETS))[GETS * 99 // 100]

    def get_all() -> float:
        keys = chosen.sample(names, KEYS)
        return seconds_of(lambda: client.get_all(keys), KEYS)

    does = {
        "put": lambda: seconds_of(client.put),
        "get_all": get_all,
        "scan": lambda: seconds_of(client.scan, len(names)),
        "p99": p99,
    }
    print("ready", flush=True)
    for line in sys.stdin:
        print(does[line.strip()](), flush=True)


if __name__ == "__main__":
    main()
