"""Kafka Streams with a broker beside it: starts both, and lets the program answer for itself."""

from __future__ import annotations

import subprocess
import sys

from tests.servers.kafka import KafkaServer

HOUR = "3600000"
SETTINGS = {
    # Nothing shall have timed out when a benchmark has suspended all of it for minutes.
    "broker.session.timeout.ms": HOUR,
    "group.max.session.timeout.ms": HOUR,
    "transaction.max.timeout.ms": HOUR,
    "log.retention.bytes": str(1 << 30),
    "log.segment.bytes": str(1 << 27),
    "log.retention.check.interval.ms": "10000",
}
PARTITIONS = 2


def main() -> int:
    """Run the Java command that the arguments are, with the addresses of the broker and its topic as properties."""
    java, *arguments = sys.argv[1:]
    with KafkaServer(settings=SETTINGS) as server:
        topic = server.topic(partitions=PARTITIONS)
        places = [f"-Dservers={server.bootstrap}", f"-Dtopic={topic}"]
        return subprocess.run([java, *places, *arguments], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
